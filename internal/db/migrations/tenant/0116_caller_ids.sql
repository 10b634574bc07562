-- +goose Up
-- What the caller named a decision, for its filter; null where it gave no name.
ALTER TABLE decisions ADD COLUMN caller_id {{text}};
CREATE INDEX decisions_by_caller ON decisions (caller_id, environment, decision, at, seq) WHERE caller_id IS NOT NULL;

-- +goose Down
DROP INDEX decisions_by_caller;
ALTER TABLE decisions DROP COLUMN caller_id;
