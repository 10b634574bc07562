-- +goose Up
-- What AI agents did, by day, as the decision log took it in.
CREATE TABLE agent_usage (
    agent_id {{int}} NOT NULL,
    day      {{int}} NOT NULL,
    requests {{int}} NOT NULL,
    denied   {{int}} NOT NULL,
    tokens   {{int}} NOT NULL,
    last_at  {{int}} NOT NULL,
    PRIMARY KEY (agent_id, day)
){{strict}};
CREATE INDEX agent_usage_by_day ON agent_usage (day);

-- The tools that they called. The name is empty for the calls of tools beyond the first hundred.
CREATE TABLE agent_tools (
    agent_id {{int}} NOT NULL,
    name     {{text}} NOT NULL,
    calls    {{int}} NOT NULL,
    last_at  {{int}} NOT NULL,
    PRIMARY KEY (agent_id, name)
){{strict}};

-- +goose Down
DROP TABLE agent_tools;
DROP TABLE agent_usage;
