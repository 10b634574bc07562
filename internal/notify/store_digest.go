package notify

import (
	"context"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
)

// apart is true of a delivery that goes by itself: a digest, one that was tried, and one
// that waits behind one of the same fault that was tried. All others are fresh.
const apart = `(digest_size > 0 OR EXISTS (SELECT 1 FROM notification_deliveries e
	WHERE e.channel_id = notification_deliveries.channel_id AND e.fault = notification_deliveries.fault AND e.attempts > 0 AND e.next_at IS NOT NULL))`

// below is a list of SQL with the severities below one.
func below(severity string) string {
	return `('` + strings.Join(format.Severities()[:max(rank(severity), 1)], `', '`) + `')`
}

// holdQuiet puts off what is due, below a severity, until quiet hours end.
func holdQuiet(ctx context.Context, tx *db.Tx, channel int64, now, until time.Time, except string) error {
	_, err := tx.Exec(ctx, `UPDATE notification_deliveries SET next_at = $3, status = 'held'
		WHERE channel_id = $1 AND next_at <= $2 AND severity IN `+below(except), channel, now, until)
	return err
}

// holdBurst holds what is due and fresh, but one delivery and what is critical.
func holdBurst(ctx context.Context, tx *db.Tx, channel int64, now, until time.Time, but int64) error {
	_, err := tx.Exec(ctx, `UPDATE notification_deliveries SET next_at = $3, status = 'held'
		WHERE channel_id = $1 AND next_at <= $2 AND id <> $4 AND severity IN `+below(format.Critical)+` AND NOT `+apart, channel, now, until, but)
	return err
}

// firstFresh is the delivery that goes first of those that holdBurst would hold; 0: there
// is none.
func firstFresh(ctx context.Context, tx *db.Tx, channel int64, now time.Time) (int64, error) {
	ids, err := db.All[int64](ctx, tx, `SELECT id FROM notification_deliveries
		WHERE channel_id = $1 AND next_at <= $2 AND severity IN `+below(format.Critical)+` AND NOT `+apart+` ORDER BY next_at, id LIMIT 1`, channel, now)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return ids[0], nil
}

// heldParcels are the first n that were held until a time.
func heldParcels(ctx context.Context, tx *db.Tx, channel int64, now time.Time, n int) ([]parcel, error) {
	return db.All[parcel](ctx, tx, `SELECT id, fault, alert, attempts, log, message FROM notification_deliveries
		WHERE channel_id = $1 AND next_at <= $2 AND status = 'held' ORDER BY id LIMIT $3`, channel, now, n)
}

// releaseHeld has those that were held until a time sent by themselves: all, or those that
// go apart.
func releaseHeld(ctx context.Context, tx *db.Tx, channel int64, now time.Time, all bool) error {
	_, err := tx.Exec(ctx, `UPDATE notification_deliveries SET status = 'pending'
		WHERE channel_id = $1 AND next_at <= $2 AND status = 'held' AND ($3 OR `+apart+`)`, channel, now, all)
	return err
}

func releaseOne(ctx context.Context, tx *db.Tx, id int64) error {
	_, err := tx.Exec(ctx, `UPDATE notification_deliveries SET status = 'pending' WHERE id = $1`, id)
	return err
}

// endHold has what a channel holds looked at anew, at once.
func endHold(ctx context.Context, tx *db.Tx, channel int64, now time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE notification_deliveries SET next_at = $2 WHERE channel_id = $1 AND status = 'held' AND next_at > $2`, channel, now)
	return err
}

func insertDigest(ctx context.Context, tx *db.Tx, channel int64, m format.Message, stored []byte, size int, now time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `INSERT INTO notification_deliveries (channel_id, fault, alert, severity, status, message, created_at, next_at, digest_size)
		VALUES ($1, $2, $3, $4, 'pending', $5, $6, $6, $7) RETURNING id`,
		channel, m.Fault, m.Alert, m.Severity, string(stored), now, size)
}

// noteDigested notes that held deliveries, up to one, are in a digest.
func noteDigested(ctx context.Context, tx *db.Tx, channel, digest, last int64, now time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE notification_deliveries SET status = 'digested', digest_id = $2, next_at = NULL, finished_at = $4
		WHERE channel_id = $1 AND status = 'held' AND next_at <= $4 AND id <= $3`, channel, digest, last, now)
	return err
}

// saveDigestUntil notes until when messages are held for the next digest.
func saveDigestUntil(ctx context.Context, tx *db.Tx, channel int64, until time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE notification_channels SET digest_until = $2 WHERE id = $1`, channel, until)
	return err
}
