-- +goose Up
-- Where a control came from that a deployment made or changed: the file, and
-- what the caller says of its repository. version is the control's version that
-- the deployment left; later ones were made elsewhere.
CREATE TABLE policy_origins (
    policy_id     {{int}} NOT NULL PRIMARY KEY,
    path          {{text}} NOT NULL,
    repository    {{text}} NOT NULL DEFAULT '',
    commit_hash   {{text}} NOT NULL DEFAULT '',
    version       {{int}} NOT NULL,
    deployment_id {{text}} NOT NULL,
    deployed_at   {{int}} NOT NULL
){{strict}};
CREATE INDEX policy_origins_by_repository ON policy_origins (repository);

-- Deployments, with the answer that each was given.
CREATE TABLE policy_deployments (
    id            {{text}} NOT NULL PRIMARY KEY,
    repository    {{text}} NOT NULL DEFAULT '',
    commit_hash   {{text}} NOT NULL DEFAULT '',
    report        {{text}} NOT NULL,
    created_by    {{text}} NOT NULL DEFAULT '',
    created_at    {{int}} NOT NULL
){{strict}};

-- +goose Down
DROP TABLE policy_deployments;
DROP TABLE policy_origins;
