-- +goose Up
-- The first answers to creating requests with an Idempotency-Key. key is a digest
-- of the actor, the operation and the caller's key; request one of the request.
-- status 0 says that the first request runs, for no longer than lease_until.
-- Bodies are encrypted: an answer may hold a credential that is shown once.
CREATE TABLE idempotency (
    key         {{text}} NOT NULL PRIMARY KEY,
    request     {{text}} NOT NULL,
    request_id  {{text}} NOT NULL,
    status      {{int}} NOT NULL,
    headers     {{text}} NOT NULL,
    body        {{bytes}} NOT NULL,
    created_at  {{int}} NOT NULL,
    lease_until {{int}} NOT NULL
){{strict}};
CREATE INDEX idempotency_by_age ON idempotency (created_at);

-- +goose Down
DROP TABLE idempotency;
