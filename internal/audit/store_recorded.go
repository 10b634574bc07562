package audit

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// withInput is written as the partial index decisions_replayable has it, so
// that the index serves.
const withInput = `level IN ('detailed', 'comprehensive')`

type recordedRow struct {
	At     time.Time `db:"at"`
	Seq    int64     `db:"seq"`
	Record string    `db:"record"`
}

func recordedLines(ctx context.Context, tx *db.Tx, r Recording, after position, n, maxBytes int) (Lines, error) {
	var out Lines
	bytes := 0
	before := after
	if before.Seq == 0 {
		before = position{At: r.To, Seq: 0}
	}
	for row, err := range db.Rows[recordedRow](ctx, tx, `SELECT at, seq, record FROM decisions
		WHERE environment = $1 AND at >= $2 AND (at, seq) < ($3, $4) AND `+withInput+`
		ORDER BY at DESC, seq DESC LIMIT $5`, string(r.Env), r.From, before.At, before.Seq, n) {
		if err != nil {
			return Lines{}, err
		}
		out.Records = append(out.Records, []byte(row.Record))
		out.next = position{At: row.At, Seq: row.Seq}
		if bytes += len(row.Record); bytes >= maxBytes {
			break
		}
	}
	out.more = len(out.Records) == n || bytes >= maxBytes
	return out, nil
}

func countRecorded(ctx context.Context, tx *db.Tx, r Recording) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM decisions WHERE environment = $1 AND at >= $2 AND at < $3 AND `+withInput,
		string(r.Env), r.From, r.To)
}

func recordsByID(ctx context.Context, tx *db.Tx, ids []string) ([]string, error) {
	var out []string
	for len(ids) > 0 {
		n := portion(len(ids))
		args := make([]any, n)
		for i, id := range ids[:n] {
			args[i] = id
		}
		some, err := db.All[string](ctx, tx, `SELECT record FROM decisions WHERE decision_id IN (`+placeholders(n)+`)`, args...)
		if err != nil {
			return nil, err
		}
		out, ids = append(out, some...), ids[n:]
	}
	return out, nil
}

// lastBucket is the last hour in which something was counted under key; nil for never.
func lastBucket(ctx context.Context, tx *db.Tx, key string, env scope.Env) (*time.Time, error) {
	return db.One[*time.Time](ctx, tx, `SELECT max(bucket) FROM decision_counts WHERE key = $1 AND environment = $2 AND counted > 0`, key, string(env))
}
