-- +goose Up
-- Data sources. credentials are sealed, and empty where there are none. From next_at on the
-- columns are the Syncer's: the replica lane_holder syncs it until lane_until. enabled is
-- what lanes ask for: every connection can be synced by hand.
CREATE TABLE pip_connections (
    id              {{id}},
    name            {{text}} NOT NULL,
    provider        {{text}} NOT NULL,
    connection_type {{text}} NOT NULL,
    configuration   {{text}} NOT NULL,
    credentials     {{bytes}} NOT NULL,
    sync_enabled    {{bool}} NOT NULL,
    sync_frequency  {{text}} NOT NULL,
    created_by      {{text}} NOT NULL,
    created_at      {{int}} NOT NULL,
    updated_at      {{int}} NOT NULL,
    change_no       {{int}} NOT NULL,
    next_at         {{int}},
    last_attempt_at {{int}},
    last_sync_at    {{int}},
    last_error      {{text}},
    failures        {{int}} NOT NULL DEFAULT 0,
    records         {{int}} NOT NULL DEFAULT 0,
    data_bytes      {{int}} NOT NULL DEFAULT 0,
    enabled         {{bool}} NOT NULL DEFAULT TRUE,
    lane_holder     {{text}} NOT NULL DEFAULT '',
    lane_until      {{int}} NOT NULL DEFAULT 0
){{strict}};
CREATE UNIQUE INDEX pip_connections_by_name ON pip_connections (name);

-- The last good data of each connection, and what its fetch left for the next one.
CREATE TABLE pip_data (
    connection_id {{int}} NOT NULL PRIMARY KEY,
    data          {{bytes}} NOT NULL,
    sum           {{text}} NOT NULL,
    state         {{text}} NOT NULL
){{strict}};

-- The last syncs of each connection. finished_at is null until one has ended.
CREATE TABLE pip_syncs (
    id            {{id}},
    connection_id {{int}} NOT NULL,
    reason        {{text}} NOT NULL,
    status        {{text}} NOT NULL,
    attempts      {{int}} NOT NULL DEFAULT 0,
    created_at    {{int}} NOT NULL,
    started_at    {{int}},
    finished_at   {{int}},
    records       {{int}} NOT NULL DEFAULT 0,
    changed       {{bool}} NOT NULL DEFAULT FALSE,
    error         {{text}},
    response_code {{int}} NOT NULL DEFAULT 0
){{strict}};
CREATE INDEX pip_syncs_by_connection ON pip_syncs (connection_id, id);

-- Which connections each revision of an environment touched, as resource_changes has it
-- of resources.
CREATE TABLE pip_changes (
    environment {{text}} NOT NULL,
    revision    {{int}} NOT NULL,
    name        {{text}} NOT NULL,
    PRIMARY KEY (environment, revision, name)
){{strict}};

-- +goose Down
DROP TABLE pip_changes;
DROP TABLE pip_syncs;
DROP TABLE pip_data;
DROP TABLE pip_connections;
