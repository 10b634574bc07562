package live

import (
	"context"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// entry is the part of an entry of the administrative log that a stream needs.
type entry struct {
	Seq         int64  `db:"seq"`
	Type        string `db:"type"`
	Object      string `db:"object"`
	ObjectID    string `db:"object_id"`
	Environment string `db:"environment"`
}

// lastEntry returns the sequence number of the newest entry of the administrative log.
func lastEntry(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.OneOrZero[int64](ctx, tx, `SELECT last_seq FROM audit_chains WHERE name = 'events'`)
}

// entriesBetween returns the entries with sequence numbers above after and up to last, oldest
// first, at most n.
func entriesBetween(ctx context.Context, tx *db.Tx, after, last int64, n int) ([]entry, error) {
	return db.All[entry](ctx, tx, `SELECT seq, type, object, object_id, environment FROM audit_events
		WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3`, after, last, n)
}

// libraries returns the ids of the policies that are libraries, in the form of the log.
func libraries(ctx context.Context, tx *db.Tx) (map[string]bool, error) {
	ids, err := db.All[int64](ctx, tx, `SELECT id FROM policies WHERE kind = 'library'`)
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[strconv.FormatInt(id, 10)] = true
	}
	return out, err
}

// countedPeriod is the period in which decisions are counted. A later delivery of a bouncer does not
// update open screens.
const countedPeriod = 8 * 24 * time.Hour

// reading is the value of a gauge in one environment; the environment is empty for a gauge of the
// whole tenant.
type reading struct {
	Environment string `db:"environment"`
	N           int64  `db:"n"`
}

// gaugeQueries read the gauges, each those of the environments in this order. The
// weights keep two changes at once from cancelling each other out.
var gaugeQueries = []struct {
	first gauge
	text  string
}{
	{revisionsSandbox, `SELECT environment, CAST(SUM(n) AS BIGINT) AS n FROM (
		SELECT substr(name, 5) AS environment, value AS n FROM revisions WHERE name IN ('env:sandbox', 'env:production')
		UNION ALL SELECT b.environment, u.revision + u.active_revision * 1009 + u.refused_revision * 1000003 FROM bouncer_bundles u JOIN bouncers b ON b.id = u.bouncer_id
	) AS parts GROUP BY environment`},
	{bouncersSandbox, `SELECT environment, CAST(SUM(CASE status WHEN 'connected' THEN 1 WHEN 'degraded' THEN 1009 ELSE 1000003 END * (id + 7)
		+ policies_synced * 31) AS BIGINT) AS n FROM bouncers GROUP BY environment`},
	{replaysSandbox, `SELECT environment, CAST(SUM(1 + evaluated * 7 + CASE WHEN finished_at IS NULL THEN 0 ELSE 1000003 END) AS BIGINT) AS n
		FROM replay_runs GROUP BY environment`},
	{deploymentsAll, `SELECT '' AS environment, CAST(COUNT(*) + COUNT(finished_at) * 1000003 AS BIGINT) AS n FROM ide_deployments`},
	// Each attempt changes one of the two times. They are taken modulo a prime, so that no sum overflows.
	{notificationsSandbox, `SELECT environment, CAST(SUM(COALESCE(last_success_at, 0) % 1000003 + COALESCE(last_failure_at, 0) % 1000003 * 7
		+ COALESCE((SELECT MAX(d.id) FROM notification_deliveries d WHERE d.channel_id = notification_channels.id), 0) * 31) AS BIGINT) AS n
		FROM notification_channels GROUP BY environment`},
	{webhooksAll, `SELECT '' AS environment, CAST(SUM(COALESCE(last_success_at, 0) % 1000003 + COALESCE(last_failure_at, 0) % 1000003 * 7
		+ COALESCE((SELECT MAX(d.id) FROM webhook_deliveries d WHERE d.webhook_id = webhooks.id), 0) * 31) AS BIGINT) AS n FROM webhooks HAVING COUNT(*) > 0`},
	// Calls of the license server do not count: the screen that shows the license causes some.
	{telemetryAll, `SELECT '' AS environment, CAST(COUNT(*) + SUM(retries) * 31 + COUNT(sent_at) * 1000003 + MAX(id) * 7 AS BIGINT) AS n
		FROM telemetry_transmissions HAVING COUNT(*) > 0`},
	{dataSourcesAll, `SELECT '' AS environment, CAST(COUNT(started_at) * 31 + COUNT(finished_at) * 1000003 + MAX(id) * 7 AS BIGINT) AS n FROM pip_syncs HAVING COUNT(*) > 0`},
}

// readGauges reads all gauges except those of decisions into p.
func readGauges(ctx context.Context, tx *db.Tx, p *position) error {
	for _, q := range gaugeQueries {
		rows, err := db.All[reading](ctx, tx, q.text)
		if err != nil {
			return err
		}
		p.set(q.first, rows)
	}
	return nil
}

// readDecisions reads the gauges of decisions into p.
func readDecisions(ctx context.Context, tx *db.Tx, now time.Time, p *position) error {
	const day = 24 * time.Hour
	rows, err := db.All[reading](ctx, tx, `SELECT environment, CAST(SUM(n) AS BIGINT) AS n FROM decision_rollups
		WHERE width = $1 AND bucket >= $2 AND measure IN ('permit', 'deny') GROUP BY environment`, day.Microseconds(), now.Add(-countedPeriod))
	if err == nil {
		p.set(decisionsSandbox, rows)
	}
	return err
}

// set stores the readings of a gauge: one for each environment, or the only one.
func (p *position) set(first gauge, rows []reading) {
	for _, r := range rows {
		at := first
		if r.Environment == "production" {
			at++
		}
		p.gauges[at] = r.N
	}
}
