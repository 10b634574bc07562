-- +goose Up
-- The OAuth clients of agents, as a JSON list of their ids.
ALTER TABLE agents ADD COLUMN oauth_client_ids {{text}} NOT NULL DEFAULT '[]';

-- The OAuth clients of agents that were removed, numbered in the order of their removal.
CREATE TABLE agent_clients_removed (
    client_id {{text}} NOT NULL PRIMARY KEY,
    agent_id  {{int}} NOT NULL,
    no        {{int}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE agent_clients_removed;
ALTER TABLE agents DROP COLUMN oauth_client_ids;
