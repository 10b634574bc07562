-- +goose Up
-- Agents that act on data by themselves: subjects of decisions beside users.
CREATE TABLE agents (
    id            {{id}},
    name          {{text}} NOT NULL,
    type          {{text}} NOT NULL,
    provider      {{text}} NOT NULL,
    model         {{text}} NOT NULL,
    status        {{text}} NOT NULL,
    configuration {{text}} NOT NULL,
    policies      {{text}} NOT NULL,
    attributes    {{text}} NOT NULL,
    created_at    {{int}} NOT NULL,
    updated_at    {{int}} NOT NULL,
    change_no     {{int}} NOT NULL
){{strict}};
CREATE UNIQUE INDEX agents_by_name ON agents (name);
CREATE INDEX agents_by_type ON agents (type, provider);

-- +goose Down
DROP TABLE agents;
