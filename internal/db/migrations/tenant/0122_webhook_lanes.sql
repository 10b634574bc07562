-- +goose Up
-- paused_until is when a receiver that cannot be reached, or asked for a pause, is called
-- next. until_seq is the last event before a subscription was disabled.
ALTER TABLE webhooks ADD COLUMN paused_until {{int}};
ALTER TABLE webhooks ADD COLUMN until_seq {{int}} NOT NULL DEFAULT 0;
CREATE INDEX webhook_deliveries_dead ON webhook_deliveries (webhook_id) WHERE state = 'dead' AND object <> 'test';

-- +goose Down
DROP INDEX webhook_deliveries_dead;
ALTER TABLE webhooks DROP COLUMN until_seq;
ALTER TABLE webhooks DROP COLUMN paused_until;
