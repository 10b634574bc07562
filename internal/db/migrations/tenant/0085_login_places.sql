-- +goose Up
-- Networks that a person signed in from: guesses from elsewhere do not slow them.
CREATE TABLE login_places (
    user_id {{text}} NOT NULL,
    network {{text}} NOT NULL,
    at      {{int}} NOT NULL,
    PRIMARY KEY (user_id, network)
){{strict}};
CREATE INDEX login_places_by_age ON login_places (at);

-- +goose Down
DROP TABLE login_places;
