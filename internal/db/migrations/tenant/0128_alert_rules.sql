-- +goose Up
-- Rules of tenants that watch their decisions and their audit. From firing on it is what the
-- evaluator keeps: at evaluated_at a rule was last looked at, and day counts its fires.
CREATE TABLE alert_rules (
    id            {{id}},
    name          {{text}} NOT NULL,
    description   {{text}} NOT NULL,
    environment   {{text}} NOT NULL,
    severity      {{text}} NOT NULL,
    enabled       {{bool}} NOT NULL,
    condition     {{text}} NOT NULL,
    frequency     {{text}} NOT NULL,
    channels      {{text}} NOT NULL,
    created_by    {{text}} NOT NULL,
    created_at    {{int}} NOT NULL,
    updated_at    {{int}} NOT NULL,
    change_no     {{int}} NOT NULL,
    firing        {{bool}} NOT NULL DEFAULT FALSE,
    value         {{real}},
    evaluated_at  {{int}},
    fired_at      {{int}},
    day           {{int}} NOT NULL DEFAULT 0,
    fires_in_day  {{int}} NOT NULL DEFAULT 0
){{strict}};
CREATE UNIQUE INDEX alert_rules_by_name ON alert_rules (name);

-- Parts of the decisions that are counted by themselves, because a rule watches them.
CREATE TABLE decision_series (
    environment  {{text}} NOT NULL,
    resource_key {{text}} NOT NULL,
    policy_id    {{int}} NOT NULL,
    bouncer_id   {{int}} NOT NULL,
    user_id      {{text}} NOT NULL
){{strict}};

-- Rules count the entries of the administrative log by time.
CREATE INDEX audit_events_by_time ON audit_events (at, type);

-- +goose Down
DROP INDEX audit_events_by_time;
DROP TABLE decision_series;
DROP TABLE alert_rules;
