-- +goose Up
-- Whether a resource stands for every spelling of its paths, or for its own alone.
ALTER TABLE resources ADD COLUMN path_matching {{text}} NOT NULL DEFAULT 'folded';
ALTER TABLE resource_past ADD COLUMN path_matching {{text}} NOT NULL DEFAULT 'folded';

-- +goose Down
ALTER TABLE resource_past DROP COLUMN path_matching;
ALTER TABLE resources DROP COLUMN path_matching;
