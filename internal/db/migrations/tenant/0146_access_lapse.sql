-- +goose Up
-- Until when a request for access can be decided; NULL: it waits for as long as it takes. Those
-- that wait get the default of a week.
ALTER TABLE access_requests ADD COLUMN lapses_at {{int}};
UPDATE access_requests SET lapses_at = created_at + 604800000000 WHERE status = 'pending';

-- The request for access that a run decides; NULL: none.
ALTER TABLE integration_runs ADD COLUMN request_id {{int}};
CREATE INDEX integration_runs_of_request ON integration_runs (request_id) WHERE request_id IS NOT NULL AND ended_at IS NULL;

-- +goose Down
DROP INDEX integration_runs_of_request;
ALTER TABLE integration_runs DROP COLUMN request_id;
ALTER TABLE access_requests DROP COLUMN lapses_at;
