-- +goose Up
-- How long access was requested for, in seconds; NULL: the request does not say.
ALTER TABLE access_requests ADD COLUMN asked_seconds {{int}};

-- +goose Down
ALTER TABLE access_requests DROP COLUMN asked_seconds;
