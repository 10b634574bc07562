-- +goose Up
CREATE TABLE revisions (
    name  {{text}} NOT NULL PRIMARY KEY,
    value {{int}} NOT NULL
){{strict}};

CREATE TABLE settings (
    name  {{text}} NOT NULL PRIMARY KEY,
    value {{text}} NOT NULL
){{strict}};

-- Durable work (package job). A finished job's row is deleted; a dead one stays.
CREATE TABLE jobs (
    id           {{id}},
    kind         {{text}} NOT NULL,
    payload      {{text}} NOT NULL,
    unique_key   {{text}},
    state        {{text}} NOT NULL,
    attempt      {{int}} NOT NULL DEFAULT 0,
    max_attempts {{int}} NOT NULL,
    run_at       {{int}} NOT NULL,
    lease_until  {{int}} NOT NULL DEFAULT 0,
    last_error   {{text}} NOT NULL DEFAULT '',
    created_at   {{int}} NOT NULL,
    finished_at  {{int}}
){{strict}};
CREATE UNIQUE INDEX jobs_unique_key ON jobs (kind, unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX jobs_due ON jobs (state, run_at);

-- +goose Down
DROP TABLE jobs;
DROP TABLE settings;
DROP TABLE revisions;
