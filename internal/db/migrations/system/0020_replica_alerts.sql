-- +goose Up
-- Open alerts about replicas of the server itself. A replica renews its own. If nobody renews an
-- alert, its replica is gone, and another one resolves it.
CREATE TABLE replica_alerts (
    tenant     {{text}} NOT NULL,
    type       {{text}} NOT NULL,
    subject    {{text}} NOT NULL,
    renewed_at {{int}} NOT NULL,
    PRIMARY KEY (tenant, type, subject)
){{strict}};

-- +goose Down
DROP TABLE replica_alerts;
