-- +goose Up
CREATE TABLE tenants (
    id            {{text}} NOT NULL PRIMARY KEY,
    name          {{text}} NOT NULL,
    domain        {{text}} NOT NULL DEFAULT '',
    custom_domain {{text}},
    status        {{text}} NOT NULL DEFAULT 'active',
    region        {{text}} NOT NULL DEFAULT '',
    plan_type     {{text}} NOT NULL DEFAULT 'standard',
    created_at    {{int}} NOT NULL,
    updated_at    {{int}} NOT NULL,
    expires_at    {{int}},
    deleted_at    {{int}},
    settings      {{text}} NOT NULL DEFAULT '{}'
){{strict}};
CREATE UNIQUE INDEX tenants_custom_domain ON tenants (custom_domain) WHERE custom_domain IS NOT NULL;

-- Which tenant a secret belongs to; the digest is lower hex of its SHA-256.
CREATE TABLE credentials (
    digest {{text}} NOT NULL PRIMARY KEY,
    tenant {{text}} NOT NULL,
    kind   {{text}} NOT NULL,
    ref    {{text}} NOT NULL
){{strict}};
CREATE INDEX credentials_tenant ON credentials (tenant, kind, ref);

-- Who may do the work that only one replica does, and until when.
CREATE TABLE leases (
    name   {{text}} NOT NULL PRIMARY KEY,
    holder {{text}} NOT NULL,
    until  {{int}} NOT NULL
){{strict}};

CREATE TABLE revisions (
    name  {{text}} NOT NULL PRIMARY KEY,
    value {{int}} NOT NULL
){{strict}};

CREATE TABLE settings (
    name  {{text}} NOT NULL PRIMARY KEY,
    value {{text}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE settings;
DROP TABLE revisions;
DROP TABLE leases;
DROP TABLE credentials;
DROP TABLE tenants;
