-- +goose Up
-- Whose answer it is, as kind:id: a person who is removed leaves none to the next one
-- with the same id.
ALTER TABLE idempotency ADD COLUMN actor {{text}} NOT NULL DEFAULT '';
CREATE INDEX idempotency_by_actor ON idempotency (actor);

-- +goose Down
DROP INDEX idempotency_by_actor;
ALTER TABLE idempotency DROP COLUMN actor;
