-- +goose Up
-- Domains of the tenant's own. The key of a certificate is sealed.
CREATE TABLE domains (
    domain      {{text}} NOT NULL PRIMARY KEY,
    token       {{text}} NOT NULL,
    certificate {{text}} NOT NULL DEFAULT '',
    sealed_key  {{bytes}} NOT NULL,
    not_after   {{int}},
    created_at  {{int}} NOT NULL,
    verified_at {{int}}
){{strict}};

-- +goose Down
DROP TABLE domains;
