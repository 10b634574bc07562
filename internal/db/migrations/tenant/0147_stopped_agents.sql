-- +goose Up
-- The greatest id of an agent when one was last removed, in one row. Ids are never given out again, so all
-- ids up to it that are not in agents belong to removed agents.
CREATE TABLE agents_removed (
    one     {{int}} NOT NULL PRIMARY KEY,
    last_id {{int}} NOT NULL
){{strict}};

-- The revisions of an environment that changed which agents are stopped.
CREATE TABLE agent_changes (
    environment {{text}} NOT NULL,
    revision    {{int}} NOT NULL,
    PRIMARY KEY (environment, revision)
){{strict}};

-- +goose Down
DROP TABLE agent_changes;
DROP TABLE agents_removed;
