-- +goose Up
-- The decision log. record holds the entry as it was answered, byte for byte;
-- the other columns are what is searched by. seq only grows over the tenant, pos
-- counts without gaps within one level, whose rows are chained by hash.
CREATE TABLE decisions (
    seq           {{int}} NOT NULL PRIMARY KEY,
    decision_id   {{text}} NOT NULL,
    at            {{int}} NOT NULL,
    logged_at     {{int}} NOT NULL,
    level         {{text}} NOT NULL,
    pos           {{int}} NOT NULL,
    environment   {{text}} NOT NULL,
    decision      {{text}} NOT NULL,
    user_id       {{text}} NOT NULL,
    policy_id     {{int}} NOT NULL,
    resource_key  {{text}} NOT NULL,
    bouncer_id    {{int}} NOT NULL,
    ip_address    {{text}} NOT NULL,
    evaluation_us {{int}} NOT NULL,
    record        {{text}} NOT NULL,
    hash          {{text}} NOT NULL
){{strict}};
CREATE UNIQUE INDEX decisions_by_id ON decisions (decision_id);
-- Each begins with what is asked for exactly, goes on in the order of the
-- answer, and ends with what is counted without touching a row.
-- Partial, so that it serves only those questions that say seq > 0: a planner
-- that takes it for a user who has no rows walks the whole log.
CREATE INDEX decisions_by_time ON decisions (environment, decision, at, seq) WHERE seq > 0;
CREATE INDEX decisions_by_user ON decisions (user_id, environment, decision, at, seq, policy_id, resource_key);
CREATE INDEX decisions_by_policy ON decisions (policy_id, environment, decision, at, seq, user_id, resource_key);
CREATE INDEX decisions_by_resource ON decisions (resource_key, environment, decision, at, seq, user_id, policy_id);

-- Decisions at audit level none leave no row; their ids are known for a day, so
-- that a resent batch counts once.
CREATE TABLE decision_seen (
    decision_id {{text}} NOT NULL PRIMARY KEY,
    at          {{int}} NOT NULL
){{strict}};
CREATE INDEX decision_seen_by_time ON decision_seen (at);

-- How many decisions there are: logged are rows of the log, counted are all that
-- were ever taken. bucket is the start of an hour, or of a day for users' keys.
CREATE TABLE decision_counts (
    key           {{text}} NOT NULL,
    bucket        {{int}} NOT NULL,
    environment   {{text}} NOT NULL,
    decision      {{text}} NOT NULL,
    logged        {{int}} NOT NULL,
    counted       {{int}} NOT NULL,
    evaluation_us {{int}} NOT NULL,
    cache_hits    {{int}} NOT NULL,
    errors        {{int}} NOT NULL,
    PRIMARY KEY (key, bucket, environment, decision)
){{strict}};
CREATE INDEX decision_counts_spent ON decision_counts (bucket) WHERE logged = 0;

-- The ends of each chain: head is the hash of the newest row, base that of the
-- row before the oldest one still kept.
CREATE TABLE audit_chains (
    name      {{text}} NOT NULL PRIMARY KEY,
    first_pos {{int}} NOT NULL,
    first_seq {{int}} NOT NULL,
    base      {{text}} NOT NULL,
    last_pos  {{int}} NOT NULL,
    last_seq  {{int}} NOT NULL,
    head      {{text}} NOT NULL
){{strict}};

-- The administrative log: written in the transaction of the change it tells of.
CREATE TABLE audit_events (
    seq           {{int}} NOT NULL PRIMARY KEY,
    at            {{int}} NOT NULL,
    type          {{text}} NOT NULL,
    object        {{text}} NOT NULL,
    object_id     {{text}} NOT NULL,
    object_name   {{text}} NOT NULL,
    environment   {{text}} NOT NULL,
    actor_kind    {{text}} NOT NULL,
    actor_id      {{text}} NOT NULL,
    actor_name    {{text}} NOT NULL,
    ip_address    {{text}} NOT NULL,
    request_id    {{text}} NOT NULL,
    changes       {{text}} NOT NULL,
    event_context {{text}} NOT NULL,
    hash          {{text}} NOT NULL
){{strict}};
CREATE INDEX audit_events_by_type ON audit_events (type, seq);
CREATE INDEX audit_events_by_object ON audit_events (object, object_id, seq);
CREATE INDEX audit_events_by_actor ON audit_events (actor_id, seq);

-- What happened, for those who act on it: written with the change, taken by each
-- sink at its own pace, removed when all sinks have it and it is old.
CREATE TABLE events (
    seq         {{int}} NOT NULL PRIMARY KEY,
    at          {{int}} NOT NULL,
    type        {{text}} NOT NULL,
    environment {{text}} NOT NULL,
    data        {{text}} NOT NULL
){{strict}};
CREATE TABLE event_cursors (
    sink {{text}} NOT NULL PRIMARY KEY,
    seq  {{int}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE event_cursors;
DROP TABLE events;
DROP TABLE audit_events;
DROP TABLE audit_chains;
DROP TABLE decision_counts;
DROP TABLE decision_seen;
DROP TABLE decisions;
