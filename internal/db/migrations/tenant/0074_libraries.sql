-- +goose Up
-- A library is kept like a control: it has versions, a state and an environment.
ALTER TABLE policies ADD COLUMN kind {{text}} NOT NULL DEFAULT 'control';
CREATE INDEX policies_by_kind ON policies (kind, status);

-- +goose Down
DROP INDEX policies_by_kind;
ALTER TABLE policies DROP COLUMN kind;
