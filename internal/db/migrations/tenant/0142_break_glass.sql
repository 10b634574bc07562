-- +goose Up
-- A grant that nobody requested first: opened in an emergency.
ALTER TABLE access_requests ADD COLUMN break_glass {{bool}} NOT NULL DEFAULT FALSE;

-- The messages that systems sent of their own accord, so that none counts twice.
CREATE TABLE integration_inbound (
    integration_id {{int}} NOT NULL,
    message_id     {{text}} NOT NULL,
    at             {{int}} NOT NULL,
    PRIMARY KEY (integration_id, message_id)
){{strict}};

-- +goose Down
DROP TABLE integration_inbound;
ALTER TABLE access_requests DROP COLUMN break_glass;
