package audit

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// withInput is exactly the condition of the partial index decisions_replayable, so that the
// planner can use the index.
const withInput = `level IN ('detailed', 'comprehensive')`

type recordedRow struct {
	At     time.Time `db:"at"`
	Seq    int64     `db:"seq"`
	Record string    `db:"record"`
}

// loggedLines returns the records of a recording whose input is in the log, newest first.
func loggedLines(ctx context.Context, tx *db.Tx, r Recording, before position, n, maxBytes int) (out []recordedRow, more bool, err error) {
	bytes := 0
	for row, err := range db.Rows[recordedRow](ctx, tx, `SELECT at, seq, record FROM decisions
		WHERE environment = $1 AND at >= $2 AND (at, seq) < ($3, $4) AND `+withInput+`
		ORDER BY at DESC, seq DESC LIMIT $5`, string(r.Env), r.From, before.At, before.Seq, n) {
		if err != nil {
			return nil, false, err
		}
		out = append(out, row)
		if bytes += len(row.Record); bytes >= maxBytes {
			return out, true, nil
		}
	}
	return out, len(out) == n, nil
}

func countRecorded(ctx context.Context, tx *db.Tx, r Recording) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM decisions WHERE environment = $1 AND at >= $2 AND at < $3 AND `+withInput,
		string(r.Env), r.From, r.To)
}

func recordsByID(ctx context.Context, tx *db.Tx, ids []string) ([]string, error) {
	return db.AllIn[string](ctx, tx, `SELECT record FROM decisions WHERE decision_id IN ($in)`, ids)
}

// lastBucket returns the last hour in which key was counted; nil if never.
func lastBucket(ctx context.Context, tx *db.Tx, key string, env scope.Env) (*time.Time, error) {
	return db.One[*time.Time](ctx, tx, `SELECT max(bucket) FROM decision_counts WHERE key = $1 AND environment = $2 AND counted > 0`, key, string(env))
}
