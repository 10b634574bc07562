package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
)

// queueEvent makes a delivery for each subscription that wants the event, and returns how many it
// made. A delivery is due no earlier than the waiting ones about the same object.
func queueEvent(ctx context.Context, tx *db.Tx, o event.Occurrence, object string, now time.Time) (int64, error) {
	return tx.Exec(ctx, `INSERT INTO webhook_deliveries (webhook_id, event_id, event_type, object, state, redelivery, created_at, next_at, expires_at)
		SELECT w.id, CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), 'pending', FALSE, CAST($4 AS BIGINT),
			COALESCE((SELECT MAX(d.next_at) FROM webhook_deliveries d
				WHERE d.webhook_id = w.id AND d.object = $3 AND d.state = 'pending' AND d.next_at > $4), $4), CAST($5 AS BIGINT)
		FROM webhooks w
		WHERE (w.enabled OR w.until_seq >= $6) AND w.since_seq < $6 AND (w.environment = '' OR CAST($7 AS TEXT) = '' OR w.environment = $7) AND w.events LIKE $8 ORDER BY w.id`,
		o.ID, o.Type, object, now, now.Add(patience), o.Seq, o.Env, `%"`+o.Type+`"%`)
}

func insertPayload(ctx context.Context, tx *db.Tx, p payload) error {
	return tx.Do(ctx, `INSERT INTO webhook_events (event_id, event_type, at, data) VALUES ($1, $2, $3, $4) ON CONFLICT (event_id) DO NOTHING`,
		p.EventID, p.EventType, p.Timestamp, p.Data)
}

// parcel is a delivery with its event, as a lane sends it.
type parcel struct {
	ID         int64           `db:"id"`
	EventID    string          `db:"event_id"`
	EventType  string          `db:"event_type"`
	Object     string          `db:"object"`
	Attempts   int             `db:"attempts"`
	Log        []Attempt       `db:"log"`
	ExpiresAt  time.Time       `db:"expires_at"`
	OccurredAt time.Time       `db:"at"`
	Data       json.RawMessage `db:"data"`
}

func dueParcels(ctx context.Context, tx *db.Tx, webhook int64, now time.Time, n int) ([]parcel, error) {
	return db.All[parcel](ctx, tx, `SELECT d.id, d.event_id, d.event_type, d.object, d.attempts, d.log, d.expires_at, e.at, e.data
		FROM webhook_deliveries d JOIN webhook_events e ON e.event_id = d.event_id
		WHERE d.webhook_id = $1 AND d.state = 'pending' AND d.next_at <= $2 ORDER BY d.next_at, d.id LIMIT $3`, webhook, now, n)
}

// updateDelivery stores how an attempt at one delivery ended. finished is nil while the delivery
// waits.
func updateDelivery(ctx context.Context, tx *db.Tx, p parcel, state string, last Attempt, finished *time.Time) error {
	return tx.Do(ctx, `UPDATE webhook_deliveries SET state = $2, attempts = $3, log = $4, response_status = $5, error = $6, finished_at = $7
		WHERE id = $1 AND state = 'pending'`, p.ID, state, p.Attempts, p.Log, last.ResponseStatus, last.Error, finished)
}

// postpone delays the waiting deliveries about an object, so that they do not overtake the failed
// one.
func postpone(ctx context.Context, tx *db.Tx, webhook int64, object string, until time.Time) error {
	return tx.Do(ctx, `UPDATE webhook_deliveries SET next_at = $3 WHERE webhook_id = $1 AND object = $2 AND state = 'pending' AND next_at < $3`,
		webhook, object, until)
}

// makeAllDue makes all waiting deliveries due, because the receiver is back.
func makeAllDue(ctx context.Context, tx *db.Tx, webhook int64, now time.Time) error {
	return tx.Do(ctx, `UPDATE webhook_deliveries SET next_at = $2 WHERE webhook_id = $1 AND state = 'pending' AND next_at > $2`, webhook, now)
}

// expireDeliveries gives up at most n deliveries that have expired, and returns how many.
func expireDeliveries(ctx context.Context, tx *db.Tx, webhook int64, now time.Time, n int) (int64, error) {
	return tx.Exec(ctx, `UPDATE webhook_deliveries SET state = 'dead', finished_at = $2, error = 'the receiver could not be reached for three days'
		WHERE id IN (SELECT id FROM webhook_deliveries WHERE webhook_id = $1 AND state = 'pending' AND expires_at <= $2 LIMIT $3)`, webhook, now, n)
}

// isWaiting reports whether an event waits to be sent to a subscription.
func isWaiting(ctx context.Context, tx *db.Tx, webhook int64, event string) (bool, error) {
	n, err := db.One[int64](ctx, tx, `SELECT COUNT(*) FROM webhook_deliveries WHERE event_id = $2 AND webhook_id = $1 AND state = 'pending'`, webhook, event)
	return n > 0, err
}

const deliveryColumns = `d.id, d.webhook_id, d.event_id, d.event_type, d.state, d.redelivery, d.attempts, d.log, d.response_status, d.error, d.created_at,
	CASE WHEN d.state <> 'pending' THEN NULL WHEN w.paused_until > d.next_at THEN w.paused_until ELSE d.next_at END AS next_at, d.finished_at, e.at, e.data`

// where returns the SQL condition of a filter and its arguments.
func (f DeliveryFilter) where(webhook int64) (string, []any) {
	var b strings.Builder
	args := []any{webhook}
	b.WriteString(`d.webhook_id = $1`)
	add := func(text string, arg any) {
		args = append(args, arg)
		fmt.Fprintf(&b, text, len(args))
	}
	if f.Status != "" {
		add(` AND d.state = $%d`, f.Status)
	}
	if f.EventType != "" {
		add(` AND d.event_type = $%d`, f.EventType)
	}
	if !f.Start.IsZero() {
		add(` AND d.created_at >= $%d`, f.Start)
	}
	if !f.End.IsZero() {
		add(` AND d.created_at <= $%d`, f.End)
	}
	return b.String(), args
}

func countDeliveries(ctx context.Context, tx *db.Tx, webhook int64, f DeliveryFilter) (int64, error) {
	where, args := f.where(webhook)
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM webhook_deliveries d WHERE `+where, args...)
}

// listDeliveries returns up to n deliveries, newest first, with ids below before if that is not 0.
func listDeliveries(ctx context.Context, tx *db.Tx, webhook int64, f DeliveryFilter, before int64, n int) ([]Delivery, error) {
	where, args := f.where(webhook)
	if before > 0 {
		args = append(args, before)
		where += fmt.Sprintf(` AND d.id < $%d`, len(args))
	}
	args = append(args, n)
	return db.All[Delivery](ctx, tx, `SELECT `+deliveryColumns+` FROM webhook_deliveries d JOIN webhook_events e ON e.event_id = d.event_id JOIN webhooks w ON w.id = d.webhook_id
		WHERE `+where+fmt.Sprintf(` ORDER BY d.id DESC LIMIT $%d`, len(args)), args...)
}

func getDelivery(ctx context.Context, tx *db.Tx, webhook, id int64) (Delivery, error) {
	return db.One[Delivery](ctx, tx, `SELECT `+deliveryColumns+` FROM webhook_deliveries d JOIN webhook_events e ON e.event_id = d.event_id JOIN webhooks w ON w.id = d.webhook_id
		WHERE d.webhook_id = $1 AND d.id = $2`, webhook, id)
}

// insertTested stores the delivery of a test event. It is not tried again.
func insertTested(ctx context.Context, tx *db.Tx, webhook int64, p payload, a Attempt, state string) (int64, error) {
	return db.One[int64](ctx, tx, `INSERT INTO webhook_deliveries (webhook_id, event_id, event_type, object, state, redelivery, attempts, log, response_status,
			error, created_at, next_at, expires_at, finished_at)
		VALUES ($1, $2, $3, 'test', $4, FALSE, 1, $5, $6, $7, $8, $8, $8, $8) RETURNING id`,
		webhook, p.EventID, p.EventType, state, []Attempt{a}, a.ResponseStatus, a.Error, a.At)
}

// requeue makes a new delivery of the event of an old one, and returns its id.
func requeue(ctx context.Context, tx *db.Tx, webhook, id int64, now time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `INSERT INTO webhook_deliveries (webhook_id, event_id, event_type, object, state, redelivery, created_at, next_at, expires_at)
		SELECT webhook_id, event_id, event_type, object, 'pending', TRUE, CAST($3 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT)
		FROM webhook_deliveries WHERE webhook_id = $1 AND id = $2 RETURNING id`, webhook, id, now, now.Add(patience))
}

// requeueMany makes new deliveries of the events of at most n deliveries that a filter selects,
// each event once, in their order. It leaves out events that wait to be sent and, if the filter
// selects dead deliveries, events that were delivered. It returns how many it made.
func requeueMany(ctx context.Context, tx *db.Tx, webhook int64, f DeliveryFilter, now time.Time, n int) (int64, error) {
	where, args := f.where(webhook)
	waits := `'pending'`
	if f.Status == Dead {
		waits = `'pending', 'delivered'`
	}
	args = append(args, now, now.Add(patience), n)
	k := len(args)
	return tx.Exec(ctx, fmt.Sprintf(`INSERT INTO webhook_deliveries (webhook_id, event_id, event_type, object, state, redelivery, created_at, next_at, expires_at)
		SELECT CAST($1 AS BIGINT), event_id, event_type, object, 'pending', TRUE, CAST($%d AS BIGINT), CAST($%d AS BIGINT), CAST($%d AS BIGINT)
		FROM (SELECT d.event_id, MIN(d.event_type) AS event_type, MIN(d.object) AS object, MIN(d.id) AS first FROM webhook_deliveries d
			WHERE `+where+` AND d.object <> 'test' AND NOT EXISTS (SELECT 1 FROM webhook_deliveries o
				WHERE o.event_id = d.event_id AND o.webhook_id = d.webhook_id AND o.state IN (`+waits+`))
			GROUP BY d.event_id ORDER BY MIN(d.id) LIMIT $%d) AS chosen
		ORDER BY first`, k-2, k-2, k-1, k), args...)
}

// forgetDeliveries removes up to n deliveries that ended before a time, and up to n payloads
// without deliveries. It returns the larger number.
func forgetDeliveries(ctx context.Context, tx *db.Tx, before time.Time, n int) (int64, error) {
	gone, err := tx.Exec(ctx, `DELETE FROM webhook_deliveries WHERE id IN (SELECT id FROM webhook_deliveries
		WHERE state <> 'pending' AND finished_at < $1 ORDER BY finished_at LIMIT $2)`, before, n)
	if err != nil {
		return 0, err
	}
	alone, err := tx.Exec(ctx, `DELETE FROM webhook_events WHERE event_id IN (SELECT e.event_id FROM webhook_events e
		WHERE e.at < $1 AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.event_id = e.event_id) ORDER BY e.at LIMIT $2)`, before, n)
	return max(gone, alone), err
}
