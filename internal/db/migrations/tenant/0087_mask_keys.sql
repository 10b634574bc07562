-- +goose Up
-- The keys that masks hash values with, sealed. The newest is used; older ones are
-- kept, so that hashes made with them can still be checked from a backup of the store.
CREATE TABLE mask_keys (
    kid        {{text}} NOT NULL PRIMARY KEY,
    sealed     {{bytes}} NOT NULL,
    created_at {{int}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE mask_keys;
