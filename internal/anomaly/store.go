package anomaly

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// extend records that an anomaly continues. It returns false if none was found since the time
// since.
func extend(ctx context.Context, tx *db.Tx, env scope.Env, f Finding, now, since time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE anomalies SET last_at = $1,
			evidence = CASE WHEN measured < $2 THEN $3 ELSE evidence END, measured = CASE WHEN measured < $2 THEN $2 ELSE measured END
		WHERE kind = $4 AND environment = $5 AND subject = $6 AND last_at >= $7`,
		now, f.Evidence.Measured, f.Evidence, string(f.Kind), string(env), f.Subject, since)
	return n > 0, err
}

func insert(ctx context.Context, tx *db.Tx, env scope.Env, f Finding, now time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `INSERT INTO anomalies (kind, environment, subject, began_at, last_at, measured, evidence)
		VALUES ($1, $2, $3, $4, $4, $5, $6) RETURNING id`,
		string(f.Kind), string(env), f.Subject, now, f.Evidence.Measured, f.Evidence)
}

const filter = ` FROM anomalies WHERE last_at >= $1 AND ($2 = '' OR environment = $2) AND ($3 = '' OR kind = $3)`

func countKind(ctx context.Context, tx *db.Tx, env scope.Env, kind Kind, since time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*)`+filter, since, string(env), string(kind))
}

func list(ctx context.Context, tx *db.Tx, env scope.Env, kind Kind, since time.Time, skip, limit int64) ([]Anomaly, error) {
	return db.All[Anomaly](ctx, tx, `SELECT id, kind, environment, subject, began_at, last_at, measured, evidence`+filter+`
		ORDER BY last_at DESC, id DESC LIMIT $4 OFFSET $5`, since, string(env), string(kind), limit, skip)
}

func forget(ctx context.Context, tx *db.Tx, before time.Time) error {
	return tx.Do(ctx, `DELETE FROM anomalies WHERE last_at < $1`, before)
}
