-- +goose Up
-- What a person or key set for an editor. actor is kind and id.
CREATE TABLE ide_settings (
    actor      {{text}} NOT NULL,
    editor     {{text}} NOT NULL,
    settings   {{text}} NOT NULL,
    updated_at {{int}} NOT NULL,
    PRIMARY KEY (actor, editor)
){{strict}};

-- Documents that editors keep here while they work on them.
CREATE TABLE ide_sessions (
    actor      {{text}} NOT NULL,
    session_id {{text}} NOT NULL,
    file_path  {{text}} NOT NULL DEFAULT '',
    content    {{text}} NOT NULL,
    version    {{int}} NOT NULL,
    updated_at {{int}} NOT NULL,
    expires_at {{int}} NOT NULL,
    PRIMARY KEY (actor, session_id)
){{strict}};
CREATE INDEX ide_sessions_by_age ON ide_sessions (expires_at);

-- Repositories whose webhooks are taken. secret and access_token are sealed.
CREATE TABLE ide_repositories (
    id           {{id}},
    name         {{text}} NOT NULL,
    url          {{text}} NOT NULL,
    branch       {{text}} NOT NULL DEFAULT '',
    path         {{text}} NOT NULL DEFAULT '',
    resource_id  {{int}},
    bouncer_id   {{int}},
    enabled      {{bool}} NOT NULL,
    secret       {{bytes}} NOT NULL,
    access_token {{bytes}} NOT NULL,
    change_no    {{int}} NOT NULL,
    created_by   {{text}} NOT NULL DEFAULT '',
    created_at   {{int}} NOT NULL,
    updated_at   {{int}} NOT NULL
){{strict}};
CREATE UNIQUE INDEX ide_repositories_by_name ON ide_repositories (name);

-- What webhooks and editors deployed or checked. request holds the files until
-- the work is done.
CREATE TABLE ide_deployments (
    id            {{text}} NOT NULL PRIMARY KEY,
    repository_id {{int}},
    source        {{text}} NOT NULL,
    event_type    {{text}} NOT NULL,
    status        {{text}} NOT NULL,
    branch        {{text}} NOT NULL DEFAULT '',
    commit_hash   {{text}} NOT NULL DEFAULT '',
    request       {{text}} NOT NULL DEFAULT '',
    result        {{text}} NOT NULL DEFAULT '{}',
    created_by    {{text}} NOT NULL DEFAULT '',
    created_at    {{int}} NOT NULL,
    finished_at   {{int}}
){{strict}};
CREATE INDEX ide_deployments_by_age ON ide_deployments (created_at);

-- Deliveries that were taken, by a digest of repository and delivery id, and by
-- one of repository and body: a delivery that comes again is not done again.
CREATE TABLE ide_deliveries (
    digest        {{text}} NOT NULL PRIMARY KEY,
    deployment_id {{text}} NOT NULL,
    received_at   {{int}} NOT NULL
){{strict}};
CREATE INDEX ide_deliveries_by_deployment ON ide_deliveries (deployment_id);
CREATE INDEX ide_deliveries_by_age ON ide_deliveries (received_at);

-- +goose Down
DROP TABLE ide_deliveries;
DROP TABLE ide_deployments;
DROP TABLE ide_repositories;
DROP TABLE ide_sessions;
DROP TABLE ide_settings;
