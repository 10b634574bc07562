-- +goose Up
-- Calls of the API by operation and by the hour, or for long ago by the day (width
-- and bucket in microseconds). A source is one counter of one process, 0 for days.
CREATE TABLE api_calls (
    width     {{int}} NOT NULL,
    bucket    {{int}} NOT NULL,
    operation {{text}} NOT NULL,
    source    {{int}} NOT NULL,
    n         {{int}} NOT NULL,
    PRIMARY KEY (width, bucket, operation, source)
){{strict}};
CREATE INDEX api_calls_by_time ON api_calls (bucket);

-- +goose Down
DROP TABLE api_calls;
