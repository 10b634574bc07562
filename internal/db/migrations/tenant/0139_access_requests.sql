-- +goose Up
-- Requests for access. An approved one is a grant from starts_at until expires_at; ended_at is
-- set once it was revoked, or was found to be over.
CREATE TABLE access_requests (
    id                {{id}},
    environment       {{text}} NOT NULL,
    subject_id        {{text}} NOT NULL,
    resource_id       {{int}} NOT NULL,
    resource_name     {{text}} NOT NULL,
    resource_type     {{text}} NOT NULL,
    action            {{text}} NOT NULL,
    reason            {{text}} NOT NULL,
    status            {{text}} NOT NULL,
    requested_by_kind {{text}} NOT NULL,
    requested_by_id   {{text}} NOT NULL,
    requested_by      {{text}} NOT NULL,
    created_at        {{int}} NOT NULL,
    decided_by        {{text}},
    decided_at        {{int}},
    decision_reason   {{text}} NOT NULL DEFAULT '',
    starts_at         {{int}},
    expires_at        {{int}},
    ended_by          {{text}},
    ended_at          {{int}}
){{strict}};
CREATE INDEX access_requests_by_status ON access_requests (status, environment, expires_at);
CREATE INDEX access_requests_by_subject ON access_requests (subject_id, status);
CREATE INDEX access_requests_by_caller ON access_requests (requested_by_kind, requested_by_id);

-- The revisions of an environment that changed its grants.
CREATE TABLE access_changes (
    environment {{text}} NOT NULL,
    revision    {{int}} NOT NULL,
    PRIMARY KEY (environment, revision)
){{strict}};

-- +goose Down
DROP TABLE access_changes;
DROP TABLE access_requests;
