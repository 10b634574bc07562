-- +goose Up
-- What the TLS listener needs to know of a domain: the fingerprint of the certificate that
-- its tenant sent (empty: none), whether one is ordered by ACME, and for how many seconds
-- browsers are to keep to TLS. The check of domains at the start fills in those that are
-- there already.
ALTER TABLE domain_routes ADD COLUMN pair {{text}} NOT NULL DEFAULT '';
ALTER TABLE domain_routes ADD COLUMN acme {{bool}} NOT NULL DEFAULT FALSE;
ALTER TABLE domain_routes ADD COLUMN hsts {{int}} NOT NULL DEFAULT 0;

-- The account at each ACME directory. The key is sealed.
CREATE TABLE acme_accounts (
    directory  {{text}} NOT NULL PRIMARY KEY,
    sealed_key {{bytes}} NOT NULL,
    created_at {{int}} NOT NULL
){{strict}};

-- The certificates that were ordered, with their sealed keys, and how the orders go. The
-- challenge is the key authorization (RFC 8555, section 8.1) of an order under way.
CREATE TABLE acme_certificates (
    domain      {{text}} NOT NULL PRIMARY KEY,
    tenant      {{text}} NOT NULL,
    certificate {{text}} NOT NULL DEFAULT '',
    sealed_key  {{bytes}} NOT NULL,
    fingerprint {{text}} NOT NULL DEFAULT '',
    not_after   {{int}},
    method      {{text}} NOT NULL DEFAULT '',
    challenge   {{text}} NOT NULL DEFAULT '',
    attempts    {{int}} NOT NULL DEFAULT 0,
    next_at     {{int}} NOT NULL,
    failure     {{text}} NOT NULL DEFAULT ''
){{strict}};
CREATE INDEX acme_certificates_by_tenant ON acme_certificates (tenant);

-- The orders of the last day, which bound what a tenant may use of the account's limits.
CREATE TABLE acme_orders (
    id     {{id}},
    tenant {{text}} NOT NULL,
    at     {{int}} NOT NULL
){{strict}};
CREATE INDEX acme_orders_by_tenant ON acme_orders (tenant, at);

-- +goose Down
DROP TABLE acme_orders;
DROP TABLE acme_certificates;
DROP TABLE acme_accounts;
ALTER TABLE domain_routes DROP COLUMN hsts;
ALTER TABLE domain_routes DROP COLUMN acme;
ALTER TABLE domain_routes DROP COLUMN pair;
