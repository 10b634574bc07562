package rest

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// entry is a row of the table idempotency.
type entry struct {
	Key        string            `db:"key"`
	Actor      string            `db:"actor"`
	Request    string            `db:"request"`
	RequestID  string            `db:"request_id"`
	Status     int               `db:"status"`
	Headers    map[string]string `db:"headers"`
	Body       []byte            `db:"body"`
	CreatedAt  time.Time         `db:"created_at"`
	LeaseUntil time.Time         `db:"lease_until"`
}

// claim takes the key for k's request if it is free: there is no row, it is older than a day, or it
// belongs to the request stale, whose process died. It returns the resulting row, and whether that
// is k's own.
func claim(ctx context.Context, tx *db.Tx, k entry, expired time.Time, stale string) (entry, bool, error) {
	if _, err := tx.Exec(ctx, `DELETE FROM idempotency WHERE key = $1 AND (created_at < $2 OR status = 0 AND request_id = $3)`, k.Key, expired, stale); err != nil {
		return entry{}, false, err
	}
	n, err := tx.Exec(ctx, `INSERT INTO idempotency (key, request, request_id, status, headers, body, created_at, lease_until, actor)
		VALUES ($1, $2, $3, 0, $4, $5, $6, $7, $8) ON CONFLICT (key) DO NOTHING`,
		k.Key, k.Request, k.RequestID, k.Headers, k.Body, k.CreatedAt, k.LeaseUntil, k.Actor)
	if err != nil {
		return entry{}, false, err
	}
	if n == 1 {
		return k, true, nil
	}
	row, err := lookup(ctx, tx, k.Key)
	return row, false, err
}

// lookup reads a row; db.ErrNoRows if there is none.
func lookup(ctx context.Context, tx *db.Tx, key string) (entry, error) {
	return db.One[entry](ctx, tx, `SELECT key, request, request_id, status, headers, body, created_at, lease_until, actor FROM idempotency WHERE key = $1`, key)
}

// renew extends the lease of a running request.
func renew(ctx context.Context, tx *db.Tx, key, requestID string, until time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE idempotency SET lease_until = $3 WHERE key = $1 AND request_id = $2 AND status = 0`, key, requestID, until)
	return err
}

// complete stores the answer of the request that holds the key.
func complete(ctx context.Context, tx *db.Tx, k entry) error {
	_, err := tx.Exec(ctx, `UPDATE idempotency SET status = $3, headers = $4, body = $5 WHERE key = $1 AND request_id = $2`,
		k.Key, k.RequestID, k.Status, k.Headers, k.Body)
	return err
}

// release frees a key: its request created nothing.
func release(ctx context.Context, tx *db.Tx, key, requestID string) error {
	_, err := tx.Exec(ctx, `DELETE FROM idempotency WHERE key = $1 AND request_id = $2 AND status = 0`, key, requestID)
	return err
}

// ForgetAnswers deletes the stored answers to an actor that is removed, because a later actor with
// the same id is another one. It is one of user.Service.ForgetHooks.
func ForgetAnswers(ctx context.Context, tx *db.Tx, who scope.Actor) error {
	_, err := tx.Exec(ctx, `DELETE FROM idempotency WHERE actor = $1`, actorOf(who))
	return err
}

// actorOf returns the name of an actor in the table.
func actorOf(who scope.Actor) string { return string(who.Kind) + ":" + who.ID }

// purge deletes rows from before a time, a batch at a time.
func purge(ctx context.Context, d *db.DB, before time.Time) error {
	_, err := d.WriteBatches(ctx, 1000, func(tx *db.Tx) (int64, error) {
		return tx.Exec(ctx, `DELETE FROM idempotency WHERE key IN (SELECT key FROM idempotency WHERE created_at < $1 LIMIT 1000)`, before)
	})
	return err
}

// find reads a row; ok is false if there is none.
func find(ctx context.Context, d *db.DB, key string) (row entry, ok bool, err error) {
	row, err = db.ReadStore(ctx, d, func(tx *db.Tx) (entry, error) { return lookup(ctx, tx, key) })
	if errors.Is(err, db.ErrNoRows) {
		return entry{}, false, nil
	}
	return row, err == nil, err
}
