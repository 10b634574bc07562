package telemetry

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

const (
	entryColumns        = `id, at, status, records, response_code, response_message, error, retries, sent_at`
	transmissionColumns = entryColumns + `, report, idempotency_key, claimed_until, next_at`
)

// listTransmissions returns one page, newest first, without those that were never tried.
func listTransmissions(ctx context.Context, tx *db.Tx, skip, limit int64) ([]Entry, error) {
	return db.All[Entry](ctx, tx, `SELECT `+entryColumns+` FROM telemetry_transmissions WHERE status <> 'waiting' ORDER BY id DESC LIMIT $1 OFFSET $2`, limit, skip)
}

func selectTransmission(ctx context.Context, tx *db.Tx, id int64) (transmission, error) {
	return db.One[transmission](ctx, tx, `SELECT `+transmissionColumns+` FROM telemetry_transmissions WHERE id = $1`, id)
}

func insertTransmission(ctx context.Context, tx *db.Tx, t transmission) (transmission, error) {
	return db.One[transmission](ctx, tx, `INSERT INTO telemetry_transmissions (at, report, idempotency_key, status, next_at)
		VALUES ($1, $2, $3, $4, $5) RETURNING `+transmissionColumns, t.Date, t.Report, t.IdempotencyKey, t.Status, t.NextAt)
}

func updateTransmission(ctx context.Context, tx *db.Tx, t transmission) error {
	return tx.Do(ctx, `UPDATE telemetry_transmissions SET status = $2, records = $3, response_code = $4, response_message = $5, error = $6,
			retries = $7, sent_at = $8, claimed_until = $9, next_at = $10
		WHERE id = $1`,
		t.ID, t.Status, t.RecordsSent, t.ResponseCode, t.ResponseMessage, t.ErrorDetails, t.RetryCount, t.TransmittedAt, t.ClaimedUntil, t.NextAt)
}

// dueTransmissions returns the id of the oldest transmission to send now, if there is one.
func dueTransmissions(ctx context.Context, tx *db.Tx, now time.Time) ([]int64, error) {
	return db.All[int64](ctx, tx, `SELECT id FROM telemetry_transmissions
		WHERE next_at IS NOT NULL AND next_at <= $1 AND claimed_until <= $1 ORDER BY id LIMIT 1`, now)
}

// repairTransmissions sets the next attempts and the claims that are later than beyond to now.
func repairTransmissions(ctx context.Context, tx *db.Tx, now, beyond time.Time) error {
	return tx.Do(ctx, `UPDATE telemetry_transmissions SET next_at = CASE WHEN next_at > $2 THEN $1 ELSE next_at END,
			claimed_until = CASE WHEN claimed_until > $2 THEN $1 ELSE claimed_until END
		WHERE next_at > $2 OR claimed_until > $2`, now, beyond)
}

// nextAttempt returns when the next transmission is due; nil: none is.
func nextAttempt(ctx context.Context, tx *db.Tx) (*time.Time, error) {
	return db.One[*time.Time](ctx, tx, `SELECT MIN(next_at) FROM telemetry_transmissions WHERE next_at IS NOT NULL`)
}

// deleteTransmissions deletes the transmissions that were made before a time.
func deleteTransmissions(ctx context.Context, tx *db.Tx, before time.Time) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM telemetry_transmissions WHERE at < $1`, before)
}

// recentErrors returns the last failures since a time, at most 5, newest first.
func recentErrors(ctx context.Context, tx *db.Tx, since time.Time) ([]RecentError, error) {
	return db.All[RecentError](ctx, tx, `SELECT id, at, COALESCE(error, '') AS error FROM telemetry_transmissions
		WHERE status = 'failed' AND at >= $1 ORDER BY id DESC LIMIT 5`, since)
}

// lastTransmission returns the status of the newest transmission that was tried.
func lastTransmission(ctx context.Context, tx *db.Tx) (string, error) {
	return db.One[string](ctx, tx, `SELECT status FROM telemetry_transmissions WHERE status <> 'waiting' ORDER BY id DESC LIMIT 1`)
}
