-- +goose Up
-- Each batch of stored decisions asks which controls have actions. Few do.
CREATE INDEX policies_acting ON policies (id) WHERE substr(actions, 1, 2) = '[{';

-- +goose Down
DROP INDEX policies_acting;
