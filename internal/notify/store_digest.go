package notify

import (
	"context"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
)

// apart is the condition for a delivery that is sent on its own: a digest, a delivery that was
// tried before, or one that waits behind such a delivery with the same fault. All others are fresh.
const apart = `(digest_size > 0 OR EXISTS (SELECT 1 FROM notification_deliveries e
	WHERE e.channel_id = notification_deliveries.channel_id AND e.fault = notification_deliveries.fault AND e.attempts > 0 AND e.next_at IS NOT NULL))`

// severitiesBelow returns an SQL list of the severities below one.
func severitiesBelow(severity string) string {
	return `('` + strings.Join(format.Severities()[:max(severityRank(severity), 1)], `', '`) + `')`
}

// holdQuiet holds the due deliveries whose severity is below except, until the quiet hours end.
func holdQuiet(ctx context.Context, tx *db.Tx, channel int64, now, until time.Time, except string) error {
	return tx.Do(ctx, `UPDATE notification_deliveries SET next_at = $3, status = 'held'
		WHERE channel_id = $1 AND next_at <= $2 AND severity IN `+severitiesBelow(except), channel, now, until)
}

// holdBurst holds the due, fresh deliveries, but not critical ones and not the one with the id but.
func holdBurst(ctx context.Context, tx *db.Tx, channel int64, now, until time.Time, but int64) error {
	return tx.Do(ctx, `UPDATE notification_deliveries SET next_at = $3, status = 'held'
		WHERE channel_id = $1 AND next_at <= $2 AND id <> $4 AND severity IN `+severitiesBelow(format.Critical)+` AND NOT `+apart, channel, now, until, but)
}

// firstFresh returns the first of the deliveries that holdBurst would hold; 0: there is none.
func firstFresh(ctx context.Context, tx *db.Tx, channel int64, now time.Time) (int64, error) {
	ids, err := db.All[int64](ctx, tx, `SELECT id FROM notification_deliveries
		WHERE channel_id = $1 AND next_at <= $2 AND severity IN `+severitiesBelow(format.Critical)+` AND NOT `+apart+` ORDER BY next_at, id LIMIT 1`, channel, now)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return ids[0], nil
}

// heldParcels returns the first n deliveries whose hold has ended.
func heldParcels(ctx context.Context, tx *db.Tx, channel int64, now time.Time, n int) ([]parcel, error) {
	return db.All[parcel](ctx, tx, `SELECT id, fault, alert, attempts, log, message FROM notification_deliveries
		WHERE channel_id = $1 AND next_at <= $2 AND status = 'held' ORDER BY id LIMIT $3`, channel, now, n)
}

// releaseHeld makes deliveries whose hold has ended pending again, to be sent on their own: all of
// them, or only those that are apart.
func releaseHeld(ctx context.Context, tx *db.Tx, channel int64, now time.Time, all bool) error {
	return tx.Do(ctx, `UPDATE notification_deliveries SET status = 'pending'
		WHERE channel_id = $1 AND next_at <= $2 AND status = 'held' AND ($3 OR `+apart+`)`, channel, now, all)
}

func releaseOne(ctx context.Context, tx *db.Tx, id int64) error {
	return tx.Do(ctx, `UPDATE notification_deliveries SET status = 'pending' WHERE id = $1`, id)
}

// endHold makes the held deliveries of a channel due now, so that arrange looks at them again.
func endHold(ctx context.Context, tx *db.Tx, channel int64, now time.Time) error {
	return tx.Do(ctx, `UPDATE notification_deliveries SET next_at = $2 WHERE channel_id = $1 AND status = 'held' AND next_at > $2`, channel, now)
}

func insertDigest(ctx context.Context, tx *db.Tx, channel int64, m format.Message, stored []byte, size int, now time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `INSERT INTO notification_deliveries (channel_id, fault, alert, severity, status, message, created_at, next_at, digest_size)
		VALUES ($1, $2, $3, $4, 'pending', $5, $6, $6, $7) RETURNING id`,
		channel, m.Fault, m.Alert, m.Severity, string(stored), now, size)
}

// noteDigested marks the held deliveries up to the id last as part of a digest.
func noteDigested(ctx context.Context, tx *db.Tx, channel, digest, last int64, now time.Time) error {
	return tx.Do(ctx, `UPDATE notification_deliveries SET status = 'digested', digest_id = $2, next_at = NULL, finished_at = $4
		WHERE channel_id = $1 AND status = 'held' AND next_at <= $4 AND id <= $3`, channel, digest, last, now)
}

// saveDigestUntil stores until when messages are held for the next digest.
func saveDigestUntil(ctx context.Context, tx *db.Tx, channel int64, until time.Time) error {
	return tx.Do(ctx, `UPDATE notification_channels SET digest_until = $2 WHERE id = $1`, channel, until)
}
