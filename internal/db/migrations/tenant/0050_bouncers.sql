-- +goose Up
-- Enforcement points. Only the digest of a token is kept. The lower half of the
-- columns is what the bridge writes; changes by people bump change_no alone.
CREATE TABLE bouncers (
    id                   {{id}},
    name                 {{text}} NOT NULL,
    hostname             {{text}} NOT NULL DEFAULT '',
    port                 {{int}} NOT NULL DEFAULT 0,
    environment          {{text}} NOT NULL,
    target_app           {{text}} NOT NULL DEFAULT '',
    configuration        {{text}} NOT NULL DEFAULT '{}',
    resource_ids         {{text}} NOT NULL DEFAULT '[]',
    token_digest         {{text}} NOT NULL,
    token_issued_at      {{int}} NOT NULL,
    change_no            {{int}} NOT NULL,
    created_at           {{int}} NOT NULL,
    updated_at           {{int}} NOT NULL,
    status               {{text}} NOT NULL,
    status_detail        {{text}} NOT NULL DEFAULT '',
    last_heartbeat       {{int}},
    version              {{text}} NOT NULL DEFAULT '',
    policies_synced      {{int}} NOT NULL DEFAULT 0,
    requests_per_second  {{real}} NOT NULL DEFAULT 0,
    cache_hit_rate       {{real}} NOT NULL DEFAULT 0,
    target_app_reachable {{bool}} NOT NULL,
    policy_cache_size    {{int}} NOT NULL DEFAULT 0,
    decision_cache_size  {{int}} NOT NULL DEFAULT 0
){{strict}};
CREATE UNIQUE INDEX bouncers_by_name ON bouncers (environment, name);
CREATE UNIQUE INDEX bouncers_by_token ON bouncers (token_digest);

-- The bundle that each bouncer should run and the one it does run.
CREATE TABLE bouncer_bundles (
    bouncer_id       {{int}} NOT NULL PRIMARY KEY,
    revision         {{int}} NOT NULL,
    content_hash     {{text}} NOT NULL,
    published_at     {{int}} NOT NULL,
    active_revision  {{int}} NOT NULL DEFAULT 0,
    activated_at     {{int}},
    refused_revision {{int}} NOT NULL DEFAULT 0,
    refused_errors   {{text}} NOT NULL DEFAULT '[]'
){{strict}};

-- One row a control and bouncer: where its delivery stands.
CREATE TABLE bouncer_sync (
    bouncer_id {{int}} NOT NULL,
    policy_id  {{int}} NOT NULL,
    version    {{int}} NOT NULL,
    revision   {{int}} NOT NULL,
    status     {{text}} NOT NULL,
    started_at {{int}} NOT NULL,
    synced_at  {{int}},
    error      {{text}} NOT NULL DEFAULT '',
    file       {{text}} NOT NULL DEFAULT '',
    line       {{int}} NOT NULL DEFAULT 0,
    PRIMARY KEY (bouncer_id, policy_id)
){{strict}};
CREATE INDEX bouncer_sync_by_policy ON bouncer_sync (policy_id);
CREATE INDEX bouncer_sync_by_status ON bouncer_sync (status, started_at);

-- +goose Down
DROP TABLE bouncer_sync;
DROP TABLE bouncer_bundles;
DROP TABLE bouncers;
