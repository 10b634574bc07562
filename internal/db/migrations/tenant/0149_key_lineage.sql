-- +goose Up
-- The first of the keys that replaced each other; empty for a key that replaced none. All of them
-- share one rate limit.
ALTER TABLE api_keys ADD COLUMN lineage {{text}} NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE api_keys DROP COLUMN lineage;
