package stats

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// busiestSubjects is the largest number of busy users or resources that are examined.
	busiestSubjects = 200

	insertRollups = `INSERT INTO decision_rollups (width, bucket, environment, measure, n) VALUES `
	addRollups    = ` ON CONFLICT (width, bucket, environment, measure) DO UPDATE SET n = decision_rollups.n + excluded.n`
)

// Store adds a batch to the roll-ups of all widths.
func Store(ctx context.Context, tx *db.Tx, rs Rollups) error {
	type cell struct {
		width, bucket        int64
		environment, measure string
	}
	sums := map[cell]int64{}
	for id, r := range rs {
		r.each(func(measure string, n int64) {
			for _, w := range Widths() {
				sums[cell{time.Duration(w).Microseconds(), w.Start(r.Start).UnixMicro(), id.environment, measure}] += n
			}
		})
	}
	list := make([][]any, 0, len(sums))
	for c, n := range sums {
		list = append(list, []any{c.width, c.bucket, c.environment, c.measure, n})
	}
	return db.DoRows(ctx, tx, insertRollups, list, addRollups)
}

type storedSum struct {
	Bucket  time.Time `db:"bucket"`
	Measure string    `db:"measure"`
	N       int64     `db:"n"`
}

// readRollups reads the roll-ups of one width in [from, to), summed over environments.
func readRollups(ctx context.Context, tx *db.Tx, w Width, from, to time.Time, envs []string) ([]Rollup, error) {
	var out []Rollup
	rows := db.Rows[storedSum](ctx, tx, `SELECT bucket, measure, n FROM decision_rollups
		WHERE width = $1 AND bucket >= $2 AND bucket < $3 AND environment IN ($4, $5) ORDER BY bucket`,
		time.Duration(w).Microseconds(), from, to, envs[0], envs[len(envs)-1])
	for r, err := range rows {
		if err != nil {
			return nil, err
		}
		if len(out) == 0 || !out[len(out)-1].Start.Equal(r.Bucket) {
			out = append(out, Rollup{Start: r.Bucket})
		}
		out[len(out)-1].put(r.Measure, r.N)
	}
	return out, nil
}

// sumRollups adds the roll-ups of one width in [from, to) to sum.
func sumRollups(ctx context.Context, tx *db.Tx, w Width, from, to time.Time, envs []string, which measures, sum *Rollup) error {
	only := ""
	if which == outcomes {
		only = ` AND measure IN ('permit', 'deny')`
	}
	rows, err := db.All[storedSum](ctx, tx, `SELECT measure, CAST(SUM(n) AS BIGINT) AS n FROM decision_rollups
		WHERE width = $1 AND bucket >= $2 AND bucket < $3 AND environment IN ($4, $5)`+only+` GROUP BY measure`,
		time.Duration(w).Microseconds(), from, to, envs[0], envs[len(envs)-1])
	for _, r := range rows {
		sum.put(r.Measure, r.N)
	}
	return err
}

func deleteRollups(ctx context.Context, tx *db.Tx, w Width, before time.Time, n int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM decision_rollups WHERE width = $1 AND bucket IN
		(SELECT DISTINCT bucket FROM decision_rollups WHERE width = $1 AND bucket < $2 ORDER BY bucket LIMIT $3)`, time.Duration(w).Microseconds(), before, n)
}

// deleteSteps removes at most n rows of histograms of periods that began before a time.
func deleteSteps(ctx context.Context, tx *db.Tx, w Width, before time.Time, n int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM decision_rollups WHERE (width, bucket, environment, measure) IN
		(SELECT width, bucket, environment, measure FROM decision_rollups WHERE width = $1 AND bucket < $2 AND bucket >= $3
			AND measure LIKE 't%' ORDER BY bucket LIMIT $4)`,
		time.Duration(w).Microseconds(), before, before.Add(-w.retention()), n)
}

// topCounts adds up the counters of controls or resources. It leaves out the keys of pairs, which
// begin like those of controls and contain a second "|". It compares the kind with substr, so that
// the store uses the index by time and not the one by key.
func topCounts(ctx context.Context, tx *db.Tx, kind Kind, from time.Time, envs []string, n int) ([]Share, error) {
	return db.All[Share](ctx, tx, `SELECT name, CAST(SUM(permitted) AS BIGINT) AS permitted, CAST(SUM(denied) AS BIGINT) AS denied, CAST(SUM(errors) AS BIGINT) AS errors FROM (
			SELECT substr(key, 3) AS name, CASE decision WHEN 'PERMIT' THEN counted ELSE 0 END AS permitted,
				CASE decision WHEN 'DENY' THEN counted ELSE 0 END AS denied, errors
			FROM decision_counts
			WHERE bucket >= $2 AND substr(key, 1, 2) = $1 AND ($1 <> 'p|' OR substr(key, 3) NOT LIKE '%|%') AND environment IN ($3, $4)) AS parts
		GROUP BY name ORDER BY denied DESC, permitted DESC, name LIMIT $5`,
		string(kind), from, envs[0], envs[len(envs)-1], n)
}

type countOf struct {
	Name   string    `db:"name"`
	Bucket time.Time `db:"bucket"`
	N      int64     `db:"n"`
}

// busyIn returns the subjects of a kind with at least this many decisions in one bucket, the
// busiest first.
func busyIn(ctx context.Context, tx *db.Tx, kind Kind, bucket time.Time, env scope.Env, least int64) ([]countOf, error) {
	return db.All[countOf](ctx, tx, `SELECT substr(key, 3) AS name, bucket, CAST(SUM(counted) AS BIGINT) AS n FROM decision_counts
		WHERE bucket = $1 AND substr(key, 1, 2) = $2 AND environment = $3 GROUP BY key, bucket HAVING SUM(counted) >= $4 ORDER BY n DESC, name LIMIT $5`,
		bucket, string(kind), string(env), least, busiestSubjects)
}

// historyOf returns the counts of subjects in the buckets of [from, to).
func historyOf(ctx context.Context, tx *db.Tx, kind Kind, env scope.Env, names []string, from, to time.Time) ([]countOf, error) {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = string(kind) + name
	}
	return db.AllIn[countOf](ctx, tx, `SELECT substr(key, 3) AS name, bucket, CAST(SUM(counted) AS BIGINT) AS n FROM decision_counts
		WHERE environment = $1 AND bucket >= $2 AND bucket < $3 AND key IN ($in) GROUP BY key, bucket`, keys, string(env), from, to)
}

type sourceRow struct {
	Address  string `db:"ip_address"`
	User     string `db:"user_id"`
	Resource string `db:"resource_key"`
}

// newestFrom returns the newest n decisions in [from, to): the permits or the denials.
func newestFrom(ctx context.Context, tx *db.Tx, env scope.Env, decision string, from, to time.Time, n int) ([]sourceRow, error) {
	return db.All[sourceRow](ctx, tx, `SELECT ip_address, user_id, resource_key FROM decisions
		WHERE seq > 0 AND environment = $1 AND decision = $2 AND at >= $3 AND at < $4 ORDER BY at DESC, seq DESC LIMIT $5`,
		string(env), decision, from, to, n)
}
