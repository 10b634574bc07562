-- +goose Up
-- What a replay reads: the decisions whose level keeps the input.
CREATE INDEX decisions_replayable ON decisions (environment, at, seq) WHERE level IN ('detailed', 'comprehensive');

-- Replays that run by themselves. request is what was asked for, result the
-- figures so far or at the end; both JSON. updated_at grows with the progress.
CREATE TABLE replay_runs (
    id                 {{id}},
    status             {{text}} NOT NULL,
    environment        {{text}} NOT NULL,
    source_environment {{text}} NOT NULL,
    request            {{text}} NOT NULL,
    evaluated          {{int}} NOT NULL DEFAULT 0,
    total              {{int}} NOT NULL DEFAULT 0,
    result             {{text}},
    error              {{text}} NOT NULL DEFAULT '',
    created_by         {{text}} NOT NULL DEFAULT '',
    created_at         {{int}} NOT NULL,
    updated_at         {{int}} NOT NULL,
    finished_at        {{int}}
){{strict}};
CREATE INDEX replay_runs_by_status ON replay_runs (status, id);

-- +goose Down
DROP TABLE replay_runs;
DROP INDEX decisions_replayable;
