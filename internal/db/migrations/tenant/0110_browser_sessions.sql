-- +goose Up
-- A browser's session is found by the digest of its cookie; a token's has none.
ALTER TABLE sessions ADD COLUMN digest {{text}} NOT NULL DEFAULT '';
-- The User-Agent header of whoever signed in, cleaned and cut.
ALTER TABLE sessions ADD COLUMN agent {{text}} NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN used_at {{int}} NOT NULL DEFAULT 0;
UPDATE sessions SET used_at = created_at;
CREATE INDEX sessions_by_digest ON sessions (digest);

-- +goose Down
DROP INDEX sessions_by_digest;
ALTER TABLE sessions DROP COLUMN used_at;
ALTER TABLE sessions DROP COLUMN agent;
ALTER TABLE sessions DROP COLUMN digest;
