-- +goose Up
-- Subscriptions. secret and previous_secret are sealed; since_seq is the last event
-- before the subscription. lane_holder is the replica that sends for it, until lane_until.
CREATE TABLE webhooks (
    id              {{id}},
    name            {{text}} NOT NULL,
    url             {{text}} NOT NULL,
    events          {{text}} NOT NULL,
    environment     {{text}} NOT NULL DEFAULT '',
    enabled         {{bool}} NOT NULL,
    secret          {{bytes}} NOT NULL,
    previous_secret {{bytes}} NOT NULL,
    previous_until  {{int}},
    since_seq       {{int}} NOT NULL,
    created_by      {{text}} NOT NULL,
    created_at      {{int}} NOT NULL,
    updated_at      {{int}} NOT NULL,
    change_no       {{int}} NOT NULL,
    failures        {{int}} NOT NULL DEFAULT 0,
    last_success_at {{int}},
    last_failure_at {{int}},
    lane_holder     {{text}} NOT NULL DEFAULT '',
    lane_until      {{int}} NOT NULL DEFAULT 0
){{strict}};
CREATE UNIQUE INDEX webhooks_by_name ON webhooks (name);

-- What is sent, once an event, however many subscriptions get it. data is redacted.
CREATE TABLE webhook_events (
    event_id   {{text}} NOT NULL PRIMARY KEY,
    event_type {{text}} NOT NULL,
    at         {{int}} NOT NULL,
    data       {{text}} NOT NULL
){{strict}};
CREATE INDEX webhook_events_by_time ON webhook_events (at);

-- One event on its way to one subscription. Those of one object share next_at, so
-- that none overtakes another.
CREATE TABLE webhook_deliveries (
    id              {{id}},
    webhook_id      {{int}} NOT NULL,
    event_id        {{text}} NOT NULL,
    event_type      {{text}} NOT NULL,
    object          {{text}} NOT NULL,
    state           {{text}} NOT NULL,
    redelivery      {{bool}} NOT NULL,
    attempts        {{int}} NOT NULL DEFAULT 0,
    log             {{text}} NOT NULL DEFAULT '[]',
    response_status {{int}} NOT NULL DEFAULT 0,
    error           {{text}} NOT NULL DEFAULT '',
    created_at      {{int}} NOT NULL,
    next_at         {{int}} NOT NULL,
    expires_at      {{int}} NOT NULL,
    finished_at     {{int}}
){{strict}};
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_at, id) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_object ON webhook_deliveries (webhook_id, object, next_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_list ON webhook_deliveries (webhook_id, id);
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);
CREATE INDEX webhook_deliveries_old ON webhook_deliveries (finished_at) WHERE state <> 'pending';

-- +goose Down
DROP TABLE webhook_deliveries;
DROP TABLE webhook_events;
DROP TABLE webhooks;
