-- +goose Up
-- Which tenant a verified domain belongs to.
CREATE TABLE domain_routes (
    domain     {{text}} NOT NULL PRIMARY KEY,
    tenant     {{text}} NOT NULL,
    created_at {{int}} NOT NULL
){{strict}};
CREATE INDEX domain_routes_by_tenant ON domain_routes (tenant);

-- +goose Down
DROP TABLE domain_routes;
