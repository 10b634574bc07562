-- +goose Up
-- The region whose store contains the tenant; empty: the deployment's own store.
ALTER TABLE tenants ADD COLUMN store {{text}} NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE tenants DROP COLUMN store;
