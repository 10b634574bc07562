-- +goose Up
-- What systems that answer back were started with. token_hash is the digest of the callback's
-- token, also after the answer, so that a second one is known. token_sealed holds the token until
-- the system has it.
CREATE TABLE integration_runs (
    id             {{id}},
    integration_id {{int}} NOT NULL,
    environment    {{text}} NOT NULL,
    event_id       {{text}} NOT NULL,
    cause          {{text}} NOT NULL,
    status         {{text}} NOT NULL,
    message        {{text}} NOT NULL DEFAULT '',
    answered_by    {{text}} NOT NULL DEFAULT '',
    token_hash     {{text}} NOT NULL DEFAULT '',
    token_sealed   {{bytes}} NOT NULL,
    expires_at     {{int}},
    created_at     {{int}} NOT NULL,
    started_at     {{int}},
    ended_at       {{int}}
){{strict}};
CREATE INDEX integration_runs_of ON integration_runs (integration_id, id);
CREATE INDEX integration_runs_open ON integration_runs (expires_at) WHERE ended_at IS NULL;
CREATE INDEX integration_runs_ended ON integration_runs (ended_at) WHERE ended_at IS NOT NULL;

-- The run that a message starts.
ALTER TABLE integration_messages ADD COLUMN run_id {{int}};

-- +goose Down
ALTER TABLE integration_messages DROP COLUMN run_id;
DROP TABLE integration_runs;
