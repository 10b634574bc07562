-- +goose Up
-- Whether a certificate is ordered by ACME where the tenant sent none, and for how many
-- seconds browsers are to keep to TLS.
ALTER TABLE domains ADD COLUMN acme {{bool}} NOT NULL DEFAULT TRUE;
ALTER TABLE domains ADD COLUMN hsts {{int}} NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE domains DROP COLUMN hsts;
ALTER TABLE domains DROP COLUMN acme;
