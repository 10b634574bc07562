-- +goose Up
-- Keys that sign session tokens. The private half is sealed; a key verifies
-- for a while after its successor has taken over.
CREATE TABLE signing_keys (
    kid        {{text}} NOT NULL PRIMARY KEY,
    public     {{bytes}} NOT NULL,
    sealed     {{bytes}} NOT NULL,
    created_at {{int}} NOT NULL
){{strict}};

-- Ids of purged tenants: never given again, or an old token, bookmark or DNS
-- record would reach somebody else's data.
CREATE TABLE retired_tenants (
    id         {{text}} NOT NULL PRIMARY KEY,
    retired_at {{int}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE retired_tenants;
DROP TABLE signing_keys;
