-- +goose Up
-- pushed is the bundle that a policy engine's store has. looked is what the bundle was last
-- compared with: the revisions of the controls and of the bouncers.
ALTER TABLE integrations ADD COLUMN pushed {{text}};
ALTER TABLE integrations ADD COLUMN looked {{text}};

-- +goose Down
ALTER TABLE integrations DROP COLUMN looked;
ALTER TABLE integrations DROP COLUMN pushed;
