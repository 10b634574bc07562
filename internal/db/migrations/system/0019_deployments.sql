-- +goose Up
-- Moves of tenants to the stores of other regions. Whoever moves a tenant holds the token: a
-- later one takes it away, and the earlier one can no longer change anything. Each attempt has a
-- target of its own; leftovers are the targets of earlier attempts that are not dropped yet.
CREATE TABLE deployments (
    id           {{text}} NOT NULL PRIMARY KEY,
    tenant       {{text}} NOT NULL,
    region       {{text}} NOT NULL,
    from_region  {{text}} NOT NULL,
    source       {{text}} NOT NULL,
    target       {{text}} NOT NULL,
    leftovers    {{text}} NOT NULL,
    migrate_data {{bool}} NOT NULL,
    begins_at    {{int}} NOT NULL,
    phase        {{text}} NOT NULL,
    token        {{int}} NOT NULL,
    attempts     {{int}} NOT NULL,
    reason       {{text}} NOT NULL,
    rows_total   {{int}} NOT NULL,
    rows_done    {{int}} NOT NULL,
    changes      {{int}} NOT NULL,
    pause_ms     {{int}} NOT NULL,
    started_at   {{int}} NOT NULL,
    estimated_at {{int}} NOT NULL,
    switched_at  {{int}},
    completed_at {{int}},
    keep_until   {{int}},
    purged_at    {{int}},
    new_domain   {{text}} NOT NULL,
    actor        {{text}} NOT NULL,
    request_id   {{text}} NOT NULL
){{strict}};
CREATE INDEX deployments_tenant ON deployments (tenant, started_at);
CREATE UNIQUE INDEX deployments_open ON deployments (tenant) WHERE completed_at IS NULL;

-- +goose Down
DROP TABLE deployments;
