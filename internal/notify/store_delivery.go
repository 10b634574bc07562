package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// afterFault is an SQL expression: when a new delivery about the fault $1 to the channel c is due.
// This is now ($5), or the next attempt of a failed delivery about the same fault, on its own or in
// a digest. Held deliveries do not delay it.
const afterFault = `COALESCE((SELECT MAX(d.next_at) FROM notification_deliveries d
	WHERE d.channel_id = c.id AND d.next_at > $5 AND d.status <> 'held' AND (d.fault = $1 OR d.digest_size > 0 AND EXISTS (
		SELECT 1 FROM notification_deliveries m WHERE m.digest_id = d.id AND m.fault = $1))), $5)`

// queueMessage makes a delivery for each channel that wants the message, and returns how many it
// made. If only is not empty, only these channels get it. A message without an environment goes to
// the channels of both.
func queueMessage(ctx context.Context, tx *db.Tx, m format.Message, stored []byte, only []int64, now time.Time) (int64, error) {
	among := ""
	if len(only) > 0 {
		ids := make([]string, len(only))
		for i, id := range only {
			ids[i] = strconv.FormatInt(id, 10)
		}
		among = ` AND c.id IN (` + strings.Join(ids, ", ") + `)`
	}
	return tx.Exec(ctx, `INSERT INTO notification_deliveries (channel_id, fault, alert, severity, status, message, created_at, next_at)
		SELECT c.id, CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), 'pending', CAST($4 AS TEXT), CAST($5 AS BIGINT),
			`+afterFault+`
		FROM notification_channels c
		WHERE c.enabled AND c.severity_rank <= $6 AND (CAST($7 AS TEXT) = '' OR c.environment = $7)`+among+` ORDER BY c.id`,
		m.Fault, m.Alert, m.Severity, string(stored), now, severityRank(m.Severity), m.Environment)
}

// queueResolved makes a delivery for each channel that was told of the fault and not yet of its
// end. It returns how many it made. In a disabled channel the delivery waits until the channel is
// enabled again, like those that were queued before: an incident or ticket that the channel opened
// must not stay open for ever.
func queueResolved(ctx context.Context, tx *db.Tx, m format.Message, stored []byte, now time.Time) (int64, error) {
	return tx.Exec(ctx, `INSERT INTO notification_deliveries (channel_id, fault, alert, severity, status, message, created_at, next_at)
		SELECT c.id, CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), 'pending', CAST($4 AS TEXT), CAST($5 AS BIGINT),
			`+afterFault+`
		FROM notification_channels c JOIN notification_faults f ON f.channel_id = c.id
		WHERE f.fault = $1 AND f.opened ORDER BY c.id`,
		m.Fault, m.Alert, m.Severity, string(stored), now)
}

// openFault marks a fault as open for all channels for which a delivery was just queued.
func openFault(ctx context.Context, tx *db.Tx, fault string, now time.Time) error {
	return tx.Do(ctx, `INSERT INTO notification_faults (channel_id, fault, opened, last_at)
		SELECT DISTINCT d.channel_id, CAST($1 AS TEXT), TRUE, CAST($2 AS BIGINT) FROM notification_deliveries d
			WHERE d.fault = $1 AND d.created_at = $2
		ON CONFLICT (channel_id, fault) DO UPDATE SET opened = TRUE, last_at = excluded.last_at`, fault, now)
}

// closeFault marks a fault as ended in all channels.
func closeFault(ctx context.Context, tx *db.Tx, fault string) error {
	return tx.Do(ctx, `UPDATE notification_faults SET opened = FALSE WHERE fault = $1`, fault)
}

// parcel is a delivery with what a lane needs to send it.
type parcel struct {
	ID       int64     `db:"id"`
	Fault    string    `db:"fault"`
	Alert    string    `db:"alert"`
	Attempts int       `db:"attempts"`
	Log      []Attempt `db:"log"`
	Ticket   string    `db:"ticket"`
	// Size is the number of messages in the digest; 0: it is not a digest.
	Size    int             `db:"digest_size"`
	Message json.RawMessage `db:"message"`
}

func dueParcels(ctx context.Context, tx *db.Tx, channel int64, now time.Time, n int) ([]parcel, error) {
	return db.All[parcel](ctx, tx, `SELECT d.id, d.fault, d.alert, d.attempts, d.log, d.message, d.digest_size, COALESCE(f.ticket, '') AS ticket
		FROM notification_deliveries d LEFT JOIN notification_faults f ON f.channel_id = d.channel_id AND f.fault = d.fault
		WHERE d.channel_id = $1 AND d.next_at <= $2 ORDER BY d.next_at, d.id LIMIT $3`, channel, now, n)
}

// saveAttempt stores how an attempt at a delivery ended. If the delivery is not tried again, next
// is nil and finished is set.
func saveAttempt(ctx context.Context, tx *db.Tx, p parcel, status string, a Attempt, next, finished *time.Time) error {
	return tx.Do(ctx, `UPDATE notification_deliveries SET status = $2, attempts = $3, log = $4, response_code = $5, response = $6, error = $7,
			next_at = $8, finished_at = $9
		WHERE id = $1 AND next_at IS NOT NULL`, p.ID, status, p.Attempts, p.Log, a.ResponseCode, a.Response, a.Error, next, finished)
}

// postpone delays the waiting deliveries about the same fault, or about the faults in a digest, so
// that they do not overtake the failed one.
func postpone(ctx context.Context, tx *db.Tx, channel int64, p parcel, until time.Time) error {
	return tx.Do(ctx, `UPDATE notification_deliveries SET next_at = $3 WHERE channel_id = $1 AND next_at < $3
		AND (fault = $2 OR fault IN (SELECT m.fault FROM notification_deliveries m WHERE m.digest_id = $4))`, channel, p.Fault, until, p.ID)
}

// postponeAll delays all waiting deliveries of a channel, because its receiver asks for a pause.
func postponeAll(ctx context.Context, tx *db.Tx, channel int64, until time.Time) error {
	return tx.Do(ctx, `UPDATE notification_deliveries SET next_at = $2 WHERE channel_id = $1 AND next_at < $2`, channel, until)
}

// saveTicket stores the ticket that is open for a fault; "": there is none.
func saveTicket(ctx context.Context, tx *db.Tx, channel int64, fault, ticket string, now time.Time) error {
	if ticket == "" {
		return tx.Do(ctx, `UPDATE notification_faults SET ticket = '' WHERE channel_id = $1 AND fault = $2 AND ticket <> ''`, channel, fault)
	}
	return tx.Do(ctx, `INSERT INTO notification_faults (channel_id, fault, opened, last_at, ticket) VALUES ($1, $2, TRUE, $4, $3)
		ON CONFLICT (channel_id, fault) DO UPDATE SET ticket = excluded.ticket, last_at = excluded.last_at`, channel, fault, ticket, now)
}

// insertTested stores the delivery of a test message. It is not tried again.
func insertTested(ctx context.Context, tx *db.Tx, channel int64, m format.Message, stored []byte, status string, a Attempt) (int64, error) {
	return db.One[int64](ctx, tx, `INSERT INTO notification_deliveries (channel_id, fault, alert, severity, status, message, attempts, log, response_code,
			response, error, created_at, finished_at)
		VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $8, $9, $10, $11, $11) RETURNING id`,
		channel, m.Fault, m.Alert, m.Severity, status, string(stored), []Attempt{a}, a.ResponseCode, a.Response, a.Error, a.At)
}

const deliveryColumns = `d.id, d.channel_id, c.name AS channel_name, c.environment, d.alert, d.severity, d.status, d.message, d.attempts, d.log, d.response_code,
	d.response, d.error, d.created_at, d.next_at, d.finished_at, d.digest_id, d.digest_size`

const deliveryTables = ` FROM notification_deliveries d JOIN notification_channels c ON c.id = d.channel_id WHERE `

// where returns the SQL condition of a filter and its arguments.
func (f DeliveryFilter) where(env scope.Env) (string, []any) {
	var b strings.Builder
	args := []any{string(env)}
	b.WriteString(`($1 = '' OR c.environment = $1)`)
	add := func(text string, arg any) {
		args = append(args, arg)
		fmt.Fprintf(&b, text, len(args))
	}
	if f.Channel != 0 {
		add(` AND d.channel_id = $%d`, f.Channel)
	}
	if f.Status != "" {
		add(` AND d.status = $%d`, f.Status)
	}
	if f.Digest != 0 {
		add(` AND d.digest_id = $%d`, f.Digest)
	}
	if f.Alert != "" {
		add(` AND d.alert = $%d`, f.Alert)
	}
	if !f.Start.IsZero() {
		add(` AND d.created_at >= $%d`, f.Start)
	}
	if !f.End.IsZero() {
		add(` AND d.created_at <= $%d`, f.End)
	}
	return b.String(), args
}

func countDeliveries(ctx context.Context, tx *db.Tx, env scope.Env, f DeliveryFilter) (int64, error) {
	where, args := f.where(env)
	return db.One[int64](ctx, tx, `SELECT COUNT(*)`+deliveryTables+where, args...)
}

// listDeliveries returns up to n deliveries, newest first, with ids below before if that is not 0.
func listDeliveries(ctx context.Context, tx *db.Tx, env scope.Env, f DeliveryFilter, before int64, n int) ([]Delivery, error) {
	where, args := f.where(env)
	if before > 0 {
		args = append(args, before)
		where += fmt.Sprintf(` AND d.id < $%d`, len(args))
	}
	args = append(args, n)
	return db.All[Delivery](ctx, tx, `SELECT `+deliveryColumns+deliveryTables+where+fmt.Sprintf(` ORDER BY d.id DESC LIMIT $%d`, len(args)), args...)
}

func getDelivery(ctx context.Context, tx *db.Tx, id int64) (Delivery, error) {
	return db.One[Delivery](ctx, tx, `SELECT `+deliveryColumns+deliveryTables+`d.id = $1`, id)
}

// retryDelivery makes a delivery due now, with all its attempts.
func retryDelivery(ctx context.Context, tx *db.Tx, id int64, now time.Time) error {
	return tx.Do(ctx, `UPDATE notification_deliveries SET status = 'pending', attempts = 0, next_at = $2, finished_at = NULL WHERE id = $1`, id, now)
}

// forgetDeliveries removes up to n deliveries that ended before a time, and all faults without a
// message since the time quiet. It returns how many deliveries it removed.
func forgetDeliveries(ctx context.Context, tx *db.Tx, before, quiet time.Time, n int) (int64, error) {
	gone, err := tx.Exec(ctx, `DELETE FROM notification_deliveries WHERE id IN (SELECT id FROM notification_deliveries
		WHERE finished_at < $1 ORDER BY finished_at LIMIT $2)`, before, n)
	if err != nil {
		return 0, err
	}
	err = tx.Do(ctx, `DELETE FROM notification_faults WHERE last_at < $1`, quiet)
	return gone, err
}
