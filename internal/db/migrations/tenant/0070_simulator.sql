-- +goose Up
-- One row a run of the simulator. record is the whole of it as JSON, redacted;
-- digest its SHA-256, which the audit entry of the run holds too. The columns
-- beside it are what lists and retention go by.
CREATE TABLE simulations (
    id          {{id}},
    policy_id   {{int}} NOT NULL,
    policy_name {{text}} NOT NULL,
    environment {{text}} NOT NULL,
    actor_kind  {{text}} NOT NULL,
    actor_id    {{text}} NOT NULL,
    actor_name  {{text}} NOT NULL,
    decision    {{text}} NOT NULL,
    nanoseconds {{int}} NOT NULL,
    summary     {{text}} NOT NULL,
    audit_level {{text}} NOT NULL,
    digest      {{text}} NOT NULL,
    record      {{text}} NOT NULL,
    created_at  {{int}} NOT NULL
){{strict}};
CREATE INDEX simulations_by_policy ON simulations (policy_id, id);
CREATE INDEX simulations_by_actor ON simulations (actor_kind, actor_id, id);
CREATE INDEX simulations_by_age ON simulations (audit_level, created_at);

-- Inputs that an author keeps for a control. They are of the control's
-- environment, and follow it through a promotion.
CREATE TABLE simulation_scenarios (
    id          {{id}},
    policy_id   {{int}} NOT NULL,
    name        {{text}} NOT NULL,
    description {{text}} NOT NULL DEFAULT '',
    attributes  {{text}} NOT NULL DEFAULT '{}',
    created_by  {{text}} NOT NULL DEFAULT '',
    created_at  {{int}} NOT NULL,
    last_used   {{int}}
){{strict}};
CREATE INDEX simulation_scenarios_by_policy ON simulation_scenarios (policy_id, id);

-- +goose Down
DROP TABLE simulation_scenarios;
DROP TABLE simulations;
