-- +goose Up
-- The vendor who made a tenant, '' for all others; and until it is completely made, by
-- which attempt.
ALTER TABLE tenants ADD COLUMN vendor {{text}} NOT NULL DEFAULT '';
ALTER TABLE tenants ADD COLUMN attempt {{text}} NOT NULL DEFAULT '';
CREATE INDEX tenants_by_vendor ON tenants (vendor, id);

-- Tenants that vendors are making or have made. While answer is empty, the tenant is
-- unfinished; after until, nobody works on it any more. The answer is sealed.
CREATE TABLE provisionings (
    attempt    {{text}} NOT NULL PRIMARY KEY,
    vendor     {{text}} NOT NULL,
    request    {{text}} NOT NULL,
    tenant     {{text}} NOT NULL,
    created_at {{int}} NOT NULL,
    until      {{int}} NOT NULL,
    answer     {{bytes}} NOT NULL
){{strict}};
CREATE INDEX provisionings_by_request ON provisionings (vendor, request);
CREATE INDEX provisionings_by_tenant ON provisionings (tenant);

-- +goose Down
DROP TABLE provisionings;
DROP INDEX tenants_by_vendor;
ALTER TABLE tenants DROP COLUMN attempt;
ALTER TABLE tenants DROP COLUMN vendor;
