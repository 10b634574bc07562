package integration

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

const (
	runColumns = `id, integration_id, environment, event_id, cause, status, message, answered_by, token_hash, token_sealed, expires_at, created_at, started_at, ended_at`
	// An overdue run counts as expired, even before that is recorded.
	runsOf = ` FROM integration_runs WHERE integration_id = $1
		AND ($2 = '' OR (CASE WHEN status = 'running' AND expires_at <= $3 THEN 'expired' ELSE status END) = $2)`
)

func countRuns(ctx context.Context, tx *db.Tx, integration int64, status string, now time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*)`+runsOf, integration, status, now)
}

func listRuns(ctx context.Context, tx *db.Tx, integration int64, status string, now time.Time, skip, limit int64) ([]Run, error) {
	return db.All[Run](ctx, tx, `SELECT `+runColumns+runsOf+` ORDER BY id DESC LIMIT $4 OFFSET $5`, integration, status, now, limit, skip)
}

func getRun(ctx context.Context, tx *db.Tx, id int64) (Run, error) {
	return db.One[Run](ctx, tx, `SELECT `+runColumns+` FROM integration_runs WHERE id = $1`, id)
}

func runOf(ctx context.Context, tx *db.Tx, integration, id int64) (Run, error) {
	return db.One[Run](ctx, tx, `SELECT `+runColumns+` FROM integration_runs WHERE integration_id = $1 AND id = $2`, integration, id)
}

func insertRun(ctx context.Context, tx *db.Tx, r Run) (Run, error) {
	return db.One[Run](ctx, tx, `INSERT INTO integration_runs (integration_id, environment, event_id, cause, status, created_at, token_sealed, request_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, NULLIF($8, 0)) RETURNING `+runColumns, r.IntegrationID, string(r.Environment), r.EventID, r.Cause, r.Status, r.CreatedAt, []byte{}, r.Cause.RequestID)
}

// updateRun changes a run that has not ended. It returns db.ErrNoRows if it has ended.
func updateRun(ctx context.Context, tx *db.Tx, r Run) (Run, error) {
	return db.One[Run](ctx, tx, `UPDATE integration_runs SET status = $2, message = $3, answered_by = $4, token_hash = $5, token_sealed = $6, expires_at = $7,
			started_at = $8, ended_at = $9 WHERE id = $1 AND ended_at IS NULL RETURNING `+runColumns,
		r.ID, r.Status, r.Message, r.AnsweredBy, r.TokenHash, r.TokenSealed, r.ExpiresAt, r.StartedAt, r.EndedAt)
}

// startRun records that the system accepted the message of a run. It deletes the encrypted token,
// which the system has now.
func startRun(ctx context.Context, tx *db.Tx, id int64, now time.Time) (Run, error) {
	return db.One[Run](ctx, tx, `UPDATE integration_runs SET status = CASE WHEN status = 'pending' THEN 'running' ELSE status END, started_at = $2, token_sealed = $3
		WHERE id = $1 RETURNING `+runColumns, id, now, []byte{})
}

// claimRun ends an open run. It returns db.ErrNoRows if the run has ended, so only one of several
// concurrent answers succeeds.
func claimRun(ctx context.Context, tx *db.Tx, r Run) (Run, error) {
	return db.One[Run](ctx, tx, `UPDATE integration_runs SET status = $2, message = $3, answered_by = $4, ended_at = $5, token_sealed = $7
		WHERE id = $1 AND ended_at IS NULL AND token_hash = $6 RETURNING `+runColumns, r.ID, r.Status, r.Message, r.AnsweredBy, r.EndedAt, r.TokenHash, []byte{})
}

func overdueRuns(ctx context.Context, tx *db.Tx, now time.Time, limit int64) ([]Run, error) {
	return db.All[Run](ctx, tx, `SELECT `+runColumns+` FROM integration_runs WHERE ended_at IS NULL AND status = 'running' AND expires_at <= $1 ORDER BY id LIMIT $2`, now, limit)
}

// runsOfRequest returns the runs of a request for access that have not ended. It leaves out overdue
// ones, which TidyRuns ends.
func runsOfRequest(ctx context.Context, tx *db.Tx, request int64, now time.Time) ([]Run, error) {
	return db.All[Run](ctx, tx, `SELECT `+runColumns+` FROM integration_runs
		WHERE request_id = $1 AND ended_at IS NULL AND (status <> 'running' OR expires_at > $2) ORDER BY id`, request, now)
}

func openRuns(ctx context.Context, tx *db.Tx, integration int64) ([]Run, error) {
	return db.All[Run](ctx, tx, `SELECT `+runColumns+` FROM integration_runs WHERE integration_id = $1 AND ended_at IS NULL AND token_hash <> '' ORDER BY id`, integration)
}

func forgetRuns(ctx context.Context, tx *db.Tx, before time.Time) error {
	return tx.Do(ctx, `DELETE FROM integration_runs WHERE ended_at < $1`, before)
}
