-- +goose Up
-- A key that is dedicated to one kind of caller, and which caller that is.
ALTER TABLE api_keys ADD COLUMN dedicated {{text}} NOT NULL DEFAULT '';
ALTER TABLE api_keys ADD COLUMN holder {{text}} NOT NULL DEFAULT '';

-- Embedding vendors; only the default tenant has any.
CREATE TABLE vendors (
    id                {{text}} NOT NULL PRIMARY KEY,
    name              {{text}} NOT NULL,
    max_tenants       {{int}} NOT NULL,
    requests_per_hour {{int}} NOT NULL,
    version           {{int}} NOT NULL,
    created_by        {{text}} NOT NULL,
    created_at        {{int}} NOT NULL,
    updated_at        {{int}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE vendors;
ALTER TABLE api_keys DROP COLUMN holder;
ALTER TABLE api_keys DROP COLUMN dedicated;
