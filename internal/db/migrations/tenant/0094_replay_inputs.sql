-- +goose Up
-- The inputs of decisions, redacted, kept a while for replay apart from the log.
-- seq is the decision's in the log. pos counts without gaps and total adds up the
-- bytes, so that the oldest go by count and by size without adding anything up.
CREATE TABLE replay_inputs (
    pos         {{int}} NOT NULL PRIMARY KEY,
    seq         {{int}} NOT NULL,
    at          {{int}} NOT NULL,
    environment {{text}} NOT NULL,
    total       {{int}} NOT NULL,
    input       {{text}} NOT NULL
){{strict}};
CREATE UNIQUE INDEX replay_inputs_by_seq ON replay_inputs (seq);
CREATE INDEX replay_inputs_by_time ON replay_inputs (environment, at, seq);

-- +goose Down
DROP TABLE replay_inputs;
