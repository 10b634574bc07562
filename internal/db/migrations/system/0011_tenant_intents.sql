-- +goose Up
-- Changes of tenants' records that the log of a tenant is still to tell of.
CREATE TABLE tenant_intents (
    seq     {{int}} NOT NULL PRIMARY KEY,
    tenant  {{text}} NOT NULL,
    home    {{text}} NOT NULL,
    at      {{int}} NOT NULL,
    telling {{text}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE tenant_intents;
