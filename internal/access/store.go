package access

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	columns = `id, environment, subject_id, resource_id, resource_name, resource_type, action, reason, asked_seconds, break_glass, status, requested_by_kind, requested_by_id, requested_by,
	created_at, lapses_at, decided_by, decided_at, decision_reason, starts_at, expires_at, ended_by, ended_at`
	// What is over is expired, also before that is recorded.
	filtered = ` FROM access_requests WHERE ($1 = '' OR environment = $1)
		AND ($2 = '' OR (CASE WHEN (status = 'approved' AND expires_at <= $3) OR (status = 'pending' AND lapses_at <= $3) THEN 'expired' ELSE status END) = $2)
		AND ($4 = '' OR (requested_by_kind = $4 AND requested_by_id = $5) OR ($4 IN ('user', 'agent') AND subject_id = $5))`
	// Whether a request waits for a decision at the time $1.
	waits = ` status = 'pending' AND (lapses_at IS NULL OR lapses_at > $1) `
)

func count(ctx context.Context, tx *db.Tx, f Filter, now time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*)`+filtered, string(f.Env), f.Status, now, f.kind, f.id)
}

func list(ctx context.Context, tx *db.Tx, f Filter, now time.Time) ([]Request, error) {
	return db.All[Request](ctx, tx, `SELECT `+columns+filtered+` ORDER BY id DESC LIMIT $6 OFFSET $7`, string(f.Env), f.Status, now, f.kind, f.id, f.Limit, f.Skip)
}

func get(ctx context.Context, tx *db.Tx, id int64) (Request, error) {
	return db.One[Request](ctx, tx, `SELECT `+columns+` FROM access_requests WHERE id = $1`, id)
}

func insert(ctx context.Context, tx *db.Tx, r Request) (Request, error) {
	return db.One[Request](ctx, tx, `INSERT INTO access_requests (environment, subject_id, resource_id, resource_name, resource_type, action, reason, status,
			requested_by_kind, requested_by_id, requested_by, created_at, asked_seconds, break_glass, lapses_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) RETURNING `+columns,
		string(r.Environment), r.SubjectID, r.ResourceID, r.ResourceName, r.ResourceType, r.Action, r.Reason, r.Status, r.CallerKind, r.CallerID, r.RequestedBy, r.CreatedAt, r.Duration, r.BreakGlass, r.LapsesAt)
}

func update(ctx context.Context, tx *db.Tx, r Request) (Request, error) {
	return db.One[Request](ctx, tx, `UPDATE access_requests SET status = $2, decided_by = $3, decided_at = $4, decision_reason = $5, starts_at = $6,
			expires_at = $7, ended_by = $8, ended_at = $9 WHERE id = $1 RETURNING `+columns,
		r.ID, r.Status, r.DecidedBy, r.DecidedAt, r.DecisionReason, r.StartsAt, r.ExpiresAt, r.EndedBy, r.EndedAt)
}

// open has numbers of pending requests.
type open struct {
	All       int64 `db:"all_open"`
	OfSubject int64 `db:"of_subject"`
	OfCaller  int64 `db:"of_caller"`
}

// countOpen counts the pending requests when r is filed: all, those for its subject, and those of
// its caller.
func countOpen(ctx context.Context, tx *db.Tx, r Request) (open, error) {
	return db.One[open](ctx, tx, `SELECT COUNT(*) AS all_open, COUNT(CASE WHEN subject_id = $2 THEN 1 END) AS of_subject,
		COUNT(CASE WHEN requested_by_kind = $3 AND requested_by_id = $4 THEN 1 END) AS of_caller FROM access_requests WHERE`+waits,
		r.CreatedAt, r.SubjectID, r.CallerKind, r.CallerID)
}

// countGrants counts the grants that are valid at a time.
func countGrants(ctx context.Context, tx *db.Tx, now time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM access_requests WHERE status = 'approved' AND expires_at > $1`, now)
}

// countSame counts the pending requests for the same access when r is filed.
func countSame(ctx context.Context, tx *db.Tx, r Request) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM access_requests WHERE`+waits+`AND subject_id = $2 AND resource_id = $3 AND action = $4`,
		r.CreatedAt, r.SubjectID, r.ResourceID, r.Action)
}

// grantsIn returns the grants of an environment that have not ended, by subject.
func grantsIn(ctx context.Context, tx *db.Tx, env scope.Env, now time.Time) ([]Request, error) {
	return db.All[Request](ctx, tx, `SELECT `+columns+` FROM access_requests WHERE status = 'approved' AND environment = $1 AND expires_at > $2
		ORDER BY subject_id, id`, string(env), now)
}

// selectExpired returns requests that were not decided in time and are not yet recorded as expired.
func selectExpired(ctx context.Context, tx *db.Tx, now time.Time) ([]Request, error) {
	return db.All[Request](ctx, tx, `SELECT `+columns+` FROM access_requests WHERE status = 'pending' AND lapses_at <= $1 ORDER BY id LIMIT $2`, now, atOnce)
}

// selectEnded returns grants that have ended and are not yet recorded as expired.
func selectEnded(ctx context.Context, tx *db.Tx, now time.Time) ([]Request, error) {
	return db.All[Request](ctx, tx, `SELECT `+columns+` FROM access_requests WHERE status = 'approved' AND expires_at <= $1 ORDER BY id LIMIT $2`, now, atOnce)
}

// selectOpen returns pending requests, and grants whose end is not recorded.
func selectOpen(ctx context.Context, tx *db.Tx) ([]Request, error) {
	return db.All[Request](ctx, tx, `SELECT `+columns+` FROM access_requests WHERE status IN ('pending', 'approved') ORDER BY id`)
}

// deleteOf deletes the requests of a removed person.
func deleteOf(ctx context.Context, tx *db.Tx, id string) error {
	return tx.Do(ctx, `DELETE FROM access_requests WHERE subject_id = $1 OR (requested_by_kind = 'user' AND requested_by_id = $1)`, id)
}

func forget(ctx context.Context, tx *db.Tx, before time.Time) error {
	return tx.Do(ctx, `DELETE FROM access_requests WHERE status IN ('denied', 'revoked', 'expired', 'withdrawn') AND created_at < $1`, before)
}

func insertChange(ctx context.Context, tx *db.Tx, env scope.Env, revision, oldest int64) error {
	if err := tx.Do(ctx, `INSERT INTO access_changes (environment, revision) VALUES ($1, $2)`, string(env), revision); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM access_changes WHERE environment = $1 AND revision <= $2`, string(env), oldest)
}

// ChangesSince counts the revisions of an environment after since that changed grants.
func ChangesSince(ctx context.Context, tx *db.Tx, env scope.Env, since int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM access_changes WHERE environment = $1 AND revision > $2`, string(env), since)
}
