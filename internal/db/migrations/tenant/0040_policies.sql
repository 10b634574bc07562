-- +goose Up
-- Controls. resource_id NULL is tenant-wide. No foreign keys: a soft-deleted
-- control must keep the ids it named, or restoring it would widen its reach.
CREATE TABLE policies (
    id           {{id}},
    name         {{text}} NOT NULL,
    name_folded  {{text}} NOT NULL,
    description  {{text}} NOT NULL DEFAULT '',
    status       {{text}} NOT NULL,
    environment  {{text}} NOT NULL,
    rego_code    {{text}} NOT NULL,
    test_cases   {{text}} NOT NULL DEFAULT '[]',
    actions      {{text}} NOT NULL DEFAULT '[]',
    version      {{int}} NOT NULL,
    resource_id  {{int}},
    bouncer_id   {{int}},
    created_by   {{text}} NOT NULL DEFAULT '',
    created_at   {{int}} NOT NULL,
    updated_at   {{int}} NOT NULL,
    promoted_at  {{int}},
    deleted_at   {{int}}
){{strict}};
CREATE INDEX policies_live ON policies (environment, status, id);
CREATE INDEX policies_by_resource ON policies (resource_id);
CREATE INDEX policies_by_bouncer ON policies (bouncer_id);

-- What a control was after each change, whole: restoring is a copy.
CREATE TABLE policy_versions (
    policy_id    {{int}} NOT NULL,
    version      {{int}} NOT NULL,
    change       {{text}} NOT NULL,
    note         {{text}} NOT NULL DEFAULT '',
    name         {{text}} NOT NULL,
    description  {{text}} NOT NULL DEFAULT '',
    status       {{text}} NOT NULL,
    environment  {{text}} NOT NULL,
    rego_code    {{text}} NOT NULL,
    test_cases   {{text}} NOT NULL DEFAULT '[]',
    actions      {{text}} NOT NULL DEFAULT '[]',
    resource_id  {{int}},
    bouncer_id   {{int}},
    created_by   {{text}} NOT NULL DEFAULT '',
    created_at   {{int}} NOT NULL,
    PRIMARY KEY (policy_id, version)
){{strict}};

-- Counters apart from the control: they change all the time, it seldom does.
CREATE TABLE policy_counters (
    policy_id   {{int}} NOT NULL PRIMARY KEY,
    evaluations {{int}} NOT NULL,
    cache_hits  {{int}} NOT NULL,
    nanoseconds {{int}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE policy_counters;
DROP TABLE policy_versions;
DROP TABLE policies;
