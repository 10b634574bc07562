-- +goose Up
-- Which policies each revision of an environment touched, as resource_changes has
-- it of resources: one change among thousands of controls reads one row.
CREATE TABLE control_changes (
    environment {{text}} NOT NULL,
    revision    {{int}} NOT NULL,
    policy_id   {{int}} NOT NULL,
    PRIMARY KEY (environment, revision, policy_id)
){{strict}};

-- +goose Down
DROP TABLE control_changes;
