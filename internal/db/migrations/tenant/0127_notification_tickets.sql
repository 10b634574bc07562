-- +goose Up
-- The ticket that is open for a fault in a ticketing system; empty: none is.
ALTER TABLE notification_faults ADD COLUMN ticket {{text}} NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE notification_faults DROP COLUMN ticket;
