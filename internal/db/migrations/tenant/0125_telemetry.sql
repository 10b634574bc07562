-- +goose Up
-- The telemetry configuration and what is known of the license: at most one row.
-- api_key is sealed. The next scheduled report is about the time from period_start
-- until next_at. attempted_at is the last call of the license server, verified_at the
-- last one that it answered; failure says what was wrong with the last one.
CREATE TABLE telemetry (
    id             {{int}} NOT NULL PRIMARY KEY,
    url            {{text}} NOT NULL,
    api_key        {{bytes}} NOT NULL,
    enabled        {{bool}} NOT NULL,
    frequency      {{text}} NOT NULL,
    encryption     {{bool}} NOT NULL,
    anonymization  {{bool}} NOT NULL,
    retention_days {{int}} NOT NULL,
    alias          {{text}} NOT NULL,
    period_start   {{int}},
    next_at        {{int}},
    last_sent_at   {{int}},
    updated_at     {{int}} NOT NULL,
    change_no      {{int}} NOT NULL,
    attempted_at   {{int}},
    verified_at    {{int}},
    failure        {{text}} NOT NULL DEFAULT '',
    key_refused    {{bool}} NOT NULL,
    license        {{text}} NOT NULL DEFAULT '{}',
    server_key     {{text}} NOT NULL DEFAULT ''
){{strict}};

-- Reports on their way or sent. claimed_until is set while one is being sent, next_at
-- when it is to be tried again.
CREATE TABLE telemetry_transmissions (
    id               {{id}},
    at               {{int}} NOT NULL,
    report           {{text}} NOT NULL,
    idempotency_key  {{text}} NOT NULL,
    status           {{text}} NOT NULL,
    records          {{int}} NOT NULL DEFAULT 0,
    response_code    {{int}} NOT NULL DEFAULT 0,
    response_message {{text}} NOT NULL DEFAULT '',
    error            {{text}},
    retries          {{int}} NOT NULL DEFAULT 0,
    sent_at          {{int}},
    claimed_until    {{int}} NOT NULL DEFAULT 0,
    next_at          {{int}}
){{strict}};
CREATE INDEX telemetry_transmissions_by_time ON telemetry_transmissions (at);
CREATE INDEX telemetry_transmissions_due ON telemetry_transmissions (next_at) WHERE next_at IS NOT NULL;

-- License updates that were applied, by a digest of their content, with their answer.
-- Those that are older than the newest one are removed: their date gives them away.
CREATE TABLE license_updates (
    digest       {{text}} NOT NULL PRIMARY KEY,
    effective_at {{int}} NOT NULL,
    answer       {{text}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE license_updates;
DROP TABLE telemetry_transmissions;
DROP TABLE telemetry;
