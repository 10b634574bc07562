-- +goose Up
-- What a bouncer sends to the application in place of its callers' credentials.
-- rules says which headers, sealed holds their values; credentials_no grows with
-- each change, so that the bouncer sees that there is another list to fetch.
CREATE TABLE bouncer_credentials (
    bouncer_id {{int}} NOT NULL PRIMARY KEY,
    rules      {{text}} NOT NULL,
    sealed     {{bytes}} NOT NULL,
    updated_at {{int}} NOT NULL
){{strict}};
ALTER TABLE bouncers ADD COLUMN credentials_no {{int}} NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE bouncers DROP COLUMN credentials_no;
DROP TABLE bouncer_credentials;
