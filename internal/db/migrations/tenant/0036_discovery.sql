-- +goose Up
-- Which resources bouncers reported within the last hour: a bouncer's budget.
CREATE TABLE resource_discoveries (
    resource_id   {{int}} NOT NULL PRIMARY KEY,
    bouncer_id    {{int}} NOT NULL,
    discovered_at {{int}} NOT NULL
){{strict}};
CREATE INDEX resource_discoveries_by_bouncer ON resource_discoveries (bouncer_id, discovered_at);
-- Whether a host has a resource already.
CREATE INDEX resources_by_host ON resources (environment, original_host);

-- +goose Down
DROP INDEX resources_by_host;
DROP TABLE resource_discoveries;
