-- +goose Up
-- Systems of the tenant that are called. credential is sealed, and empty where there is none.
-- place is how far a forwarder of the audit has come. lane_holder is the replica that sends for
-- it, until lane_until.
CREATE TABLE integrations (
    id              {{id}},
    name            {{text}} NOT NULL,
    kind            {{text}} NOT NULL,
    endpoint        {{text}} NOT NULL,
    environment     {{text}} NOT NULL,
    settings        {{text}} NOT NULL,
    enabled         {{bool}} NOT NULL,
    credential      {{bytes}} NOT NULL,
    place           {{text}},
    failures        {{int}} NOT NULL DEFAULT 0,
    last_error      {{text}} NOT NULL DEFAULT '',
    last_success_at {{int}},
    last_failure_at {{int}},
    next_at         {{int}},
    created_by      {{text}} NOT NULL,
    created_at      {{int}} NOT NULL,
    updated_at      {{int}} NOT NULL,
    change_no       {{int}} NOT NULL,
    lane_holder     {{text}} NOT NULL DEFAULT '',
    lane_until      {{int}} NOT NULL DEFAULT 0
){{strict}};
CREATE UNIQUE INDEX integrations_by_name ON integrations (name);

-- What the actions of controls send to webhooks, in order.
CREATE TABLE integration_messages (
    id             {{id}},
    integration_id {{int}} NOT NULL,
    event_id       {{text}} NOT NULL,
    event_type     {{text}} NOT NULL,
    at             {{int}} NOT NULL,
    data           {{text}} NOT NULL,
    attempts       {{int}} NOT NULL DEFAULT 0
){{strict}};
CREATE INDEX integration_messages_due ON integration_messages (integration_id, id);

-- +goose Down
DROP TABLE integration_messages;
DROP TABLE integrations;
