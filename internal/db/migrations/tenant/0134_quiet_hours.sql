-- +goose Up
-- quiet_hours is JSON, and null where there are none. Until digest_until, messages are held
-- because one was sent.
ALTER TABLE notification_channels ADD COLUMN quiet_hours {{text}};
ALTER TABLE notification_channels ADD COLUMN digest_window {{int}} NOT NULL DEFAULT 0;
ALTER TABLE notification_channels ADD COLUMN digest_until {{int}};

-- digest_id is the digest that a message is in. digest_size is how many a digest sums up.
ALTER TABLE notification_deliveries ADD COLUMN digest_id {{int}};
ALTER TABLE notification_deliveries ADD COLUMN digest_size {{int}} NOT NULL DEFAULT 0;
CREATE INDEX notification_deliveries_by_digest ON notification_deliveries (digest_id) WHERE digest_id IS NOT NULL;

-- +goose Down
DROP INDEX notification_deliveries_by_digest;
ALTER TABLE notification_deliveries DROP COLUMN digest_size;
ALTER TABLE notification_deliveries DROP COLUMN digest_id;
ALTER TABLE notification_channels DROP COLUMN digest_until;
ALTER TABLE notification_channels DROP COLUMN digest_window;
ALTER TABLE notification_channels DROP COLUMN quiet_hours;
