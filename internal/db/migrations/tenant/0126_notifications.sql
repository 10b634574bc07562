-- +goose Up
-- Channels. credential is sealed, and empty where there is none; for a chat's incoming
-- webhook it contains the URL, and endpoint only its host. lane_holder is the replica
-- that sends for it, until lane_until.
CREATE TABLE notification_channels (
    id                 {{id}},
    name               {{text}} NOT NULL,
    type               {{text}} NOT NULL,
    endpoint           {{text}} NOT NULL,
    environment        {{text}} NOT NULL,
    severity_threshold {{text}} NOT NULL,
    severity_rank      {{int}} NOT NULL,
    max_attempts       {{int}} NOT NULL,
    enabled            {{bool}} NOT NULL,
    settings           {{text}} NOT NULL,
    credential         {{bytes}} NOT NULL,
    created_by         {{text}} NOT NULL,
    created_at         {{int}} NOT NULL,
    updated_at         {{int}} NOT NULL,
    change_no          {{int}} NOT NULL,
    last_success_at    {{int}},
    last_failure_at    {{int}},
    lane_holder        {{text}} NOT NULL DEFAULT '',
    lane_until         {{int}} NOT NULL DEFAULT 0
){{strict}};
CREATE UNIQUE INDEX notification_channels_by_name ON notification_channels (name);

-- One message on its way to one channel. message is redacted. next_at is null once it
-- is not tried any more.
CREATE TABLE notification_deliveries (
    id            {{id}},
    channel_id    {{int}} NOT NULL,
    fault         {{text}} NOT NULL,
    alert         {{text}} NOT NULL,
    severity      {{text}} NOT NULL,
    status        {{text}} NOT NULL,
    message       {{text}} NOT NULL,
    attempts      {{int}} NOT NULL DEFAULT 0,
    log           {{text}} NOT NULL DEFAULT '[]',
    response_code {{int}} NOT NULL DEFAULT 0,
    response      {{text}} NOT NULL DEFAULT '',
    error         {{text}} NOT NULL DEFAULT '',
    created_at    {{int}} NOT NULL,
    next_at       {{int}},
    finished_at   {{int}}
){{strict}};
CREATE INDEX notification_deliveries_due ON notification_deliveries (channel_id, next_at, id) WHERE next_at IS NOT NULL;
CREATE INDEX notification_deliveries_list ON notification_deliveries (channel_id, id);
CREATE INDEX notification_deliveries_old ON notification_deliveries (finished_at) WHERE finished_at IS NOT NULL;

-- What a channel was told of a fault: until it is told of the end, the fault is open.
CREATE TABLE notification_faults (
    channel_id {{int}} NOT NULL,
    fault      {{text}} NOT NULL,
    opened     {{bool}} NOT NULL,
    last_at    {{int}} NOT NULL,
    PRIMARY KEY (channel_id, fault)
){{strict}};
CREATE INDEX notification_faults_by_fault ON notification_faults (fault);
CREATE INDEX notification_faults_old ON notification_faults (last_at);

-- +goose Down
DROP TABLE notification_faults;
DROP TABLE notification_deliveries;
DROP TABLE notification_channels;
