-- +goose Up
-- How many decisions of a control set off its actions in a minute, and those beyond the limit,
-- which one message tells of.
CREATE TABLE policy_action_minutes (
    policy_id {{int}} NOT NULL,
    minute    {{int}} NOT NULL,
    sent      {{int}} NOT NULL,
    folded    {{text}} NOT NULL,
    PRIMARY KEY (policy_id, minute)
){{strict}};

-- +goose Down
DROP TABLE policy_action_minutes;
