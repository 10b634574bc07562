package replay

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

const (
	runColumns = `id, status, environment, source_environment, request, error, evaluated, total, created_by, created_at, updated_at, finished_at`
	inEnv      = ` WHERE ($1 = '' OR environment = $1) AND ($2 = '' OR source_environment = $2) `
)

func insertRun(ctx context.Context, tx *db.Tx, r Run) (int64, error) {
	return db.One[int64](ctx, tx, `INSERT INTO replay_runs (status, environment, source_environment, request, total, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id`,
		r.Status, string(r.Environment), string(r.SourceEnvironment), r.Request, r.Total, r.CreatedBy, r.CreatedAt, r.UpdatedAt)
}

func getRun(ctx context.Context, tx *db.Tx, id int64) (Run, error) {
	return db.One[Run](ctx, tx, `SELECT `+runColumns+`, result FROM replay_runs WHERE id = $1`, id)
}

func listRuns(ctx context.Context, tx *db.Tx, env, source string, skip, limit int64) ([]Run, int64, error) {
	total, err := db.One[int64](ctx, tx, `SELECT count(*) FROM replay_runs`+inEnv, env, source)
	if err != nil {
		return nil, 0, err
	}
	runs, err := db.All[Run](ctx, tx, `SELECT `+runColumns+` FROM replay_runs`+inEnv+`ORDER BY id DESC LIMIT $3 OFFSET $4`, env, source, limit, skip)
	return runs, total, err
}

func countRunning(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM replay_runs WHERE status = 'running'`)
}

// advanceRun stores the progress of a run. It returns false if the run has ended.
func advanceRun(ctx context.Context, tx *db.Tx, id, evaluated, total int64, now time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE replay_runs SET evaluated = $2, total = $3, updated_at = $4 WHERE id = $1 AND status = 'running'`, id, evaluated, total, now)
	return n == 1, err
}

// endRun ends a run. It returns false if the run had already ended.
func endRun(ctx context.Context, tx *db.Tx, id int64, status string, result *Impact, message string, now time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE replay_runs SET status = $2, result = $3, error = $4, updated_at = $5, finished_at = $6 WHERE id = $1 AND status = 'running'`,
		id, status, result, message, now, now)
	return n == 1, err
}

// forgetRuns deletes ended runs that are not among the newest keep runs.
func forgetRuns(ctx context.Context, tx *db.Tx, keep int) error {
	return tx.Do(ctx, `DELETE FROM replay_runs WHERE status <> 'running' AND id <= (SELECT COALESCE(max(id), 0) FROM replay_runs) - $1`, keep)
}
