-- +goose Up
-- What was decided, added up by stretches of time: 10 seconds, a minute, an hour
-- and a day (width, in microseconds). A measure is permit, deny, policy_deny,
-- mask, error, cache_hit, us (microseconds of evaluation), or t and the number of
-- a step of the latency histogram.
CREATE TABLE decision_rollups (
    width       {{int}} NOT NULL,
    bucket      {{int}} NOT NULL,
    environment {{text}} NOT NULL,
    measure     {{text}} NOT NULL,
    n           {{int}} NOT NULL,
    PRIMARY KEY (width, bucket, environment, measure)
){{strict}};

-- What is asked of all controls, resources or users in some hours.
CREATE INDEX decision_counts_by_time ON decision_counts (bucket, key);

-- Anomalies, each with the evidence of its worst moment.
CREATE TABLE anomalies (
    id          {{id}},
    kind        {{text}} NOT NULL,
    environment {{text}} NOT NULL,
    subject     {{text}} NOT NULL,
    began_at    {{int}} NOT NULL,
    last_at     {{int}} NOT NULL,
    measured    {{real}} NOT NULL,
    evidence    {{text}} NOT NULL
){{strict}};
CREATE INDEX anomalies_by_time ON anomalies (last_at);

-- What older versions counted by the hour; they kept no latencies.
INSERT INTO decision_rollups (width, bucket, environment, measure, n)
SELECT w.width, (c.bucket / w.width) * w.width, c.environment, CASE c.decision WHEN 'PERMIT' THEN 'permit' ELSE 'deny' END, SUM(c.counted)
FROM decision_counts c CROSS JOIN (SELECT 3600000000 AS width UNION ALL SELECT 86400000000) w
WHERE c.key = '' AND c.counted > 0
GROUP BY w.width, (c.bucket / w.width) * w.width, c.environment, c.decision;

INSERT INTO decision_rollups (width, bucket, environment, measure, n)
SELECT w.width, (c.bucket / w.width) * w.width, c.environment, 'policy_deny', SUM(c.counted)
FROM decision_counts c CROSS JOIN (SELECT 3600000000 AS width UNION ALL SELECT 86400000000) w
WHERE c.key LIKE 'p|%' AND c.key NOT LIKE 'p|%|%' AND c.decision = 'DENY' AND c.counted > 0
GROUP BY w.width, (c.bucket / w.width) * w.width, c.environment;

INSERT INTO decision_rollups (width, bucket, environment, measure, n)
SELECT w.width, (c.bucket / w.width) * w.width, c.environment, 'error', SUM(c.errors)
FROM decision_counts c CROSS JOIN (SELECT 3600000000 AS width UNION ALL SELECT 86400000000) w
WHERE c.key = '' AND c.errors > 0
GROUP BY w.width, (c.bucket / w.width) * w.width, c.environment;

-- +goose Down
DROP TABLE anomalies;
DROP INDEX decision_counts_by_time;
DROP TABLE decision_rollups;
