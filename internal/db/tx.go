package db

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// attempts limits how often a transaction runs if it conflicts with other transactions.
const attempts = 6

// DB is the store of one tenant, or the system store. It is safe for concurrent
// use and stays valid as long as the cluster and the tenant do.
type DB struct {
	cluster *Cluster
	tenant  scope.TenantID
	at      *location // set by At; nil: wherever the tenant is placed
}

// Tx is one transaction. Only the function that receives it may use it, in its own goroutine.
type Tx struct {
	db       *DB
	at       backend
	txn      txn
	err      error // the first SQL error: it ends the transaction
	write    bool
	after    []func()
	notified map[string]bool
}

// TenantID returns the tenant of this store; empty for the system store.
func (d *DB) TenantID() scope.TenantID { return d.tenant }

// Read runs fn on one consistent, read-only snapshot.
func (d *DB) Read(ctx context.Context, fn func(tx *Tx) error) error {
	return d.run(ctx, false, fn)
}

// Write runs fn in a transaction, and commits it if fn returns nil. After a conflict with another
// transaction, fn runs again, so its variables outside must not keep values of an earlier run. When
// Write returns nil, the change is durable.
func (d *DB) Write(ctx context.Context, fn func(tx *Tx) error) error {
	return d.run(ctx, true, fn)
}

// WriteBatches runs step, each time in a transaction of its own, until it changes fewer than batch
// rows. It returns the number of rows that all steps changed.
func (d *DB) WriteBatches(ctx context.Context, batch int64, step func(tx *Tx) (int64, error)) (total int64, err error) {
	for {
		var n int64
		err = d.Write(ctx, func(tx *Tx) (err error) { n, err = step(tx); return err })
		if total += n; err != nil || n < batch {
			return total, err
		}
	}
}

// ReadStore runs fn like DB.Read, and returns the value that fn returns.
func ReadStore[T any](ctx context.Context, d *DB, fn func(tx *Tx) (T, error)) (T, error) {
	var v T
	err := d.Read(ctx, func(tx *Tx) (err error) { v, err = fn(tx); return err })
	return v, err
}

// Revision returns the value of a counter that Bump increments; 0 before the first Bump.
func (d *DB) Revision(ctx context.Context, name string) (int64, error) {
	return ReadStore(ctx, d, func(tx *Tx) (int64, error) { return tx.Revision(ctx, name) })
}

func (d *DB) run(ctx context.Context, write bool, fn func(tx *Tx) error) error {
	once := func() error { return d.once(ctx, write, fn) }
	err := retryConflicts(ctx, once)
	if write && fault.Is(err, fault.StorageFull) && d.cluster.freeDisk() {
		err = retryConflicts(ctx, once)
	}
	if write && errors.Is(err, errMoving) {
		err = d.retryWhileMoving(ctx, err, once)
	}
	return err
}

// retryConflicts runs f, and repeats it while its error is retryable, up to attempts runs.
func retryConflicts(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == attempts || !retryable(err) {
			return err
		}
		if !pause.For(ctx, time.Duration(1<<try)*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func (d *DB) once(ctx context.Context, write bool, fn func(tx *Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at := location{d.cluster.home, part{}}
	switch {
	case d.at != nil:
		at = *d.at
	case d.tenant != "":
		var err error
		if _, at, err = d.cluster.find(ctx, d.tenant); err != nil {
			return err
		}
	}
	t, err := at.begin(ctx, at.part, write)
	if err != nil {
		err = translate(ctx, err)
		return d.markMoved(ctx, at, err, err)
	}
	tx := &Tx{db: d, at: at, txn: t, write: write}
	finished := false
	defer func() {
		if !finished { // fn failed or panicked
			t.rollback()
		}
	}()
	if err := fn(tx); err != nil {
		if errors.Is(tx.err, errMoving) { // fn may have replaced the error
			return tx.err
		}
		return d.markMoved(ctx, at, tx.err, err)
	}
	if tx.err != nil {
		return d.markMoved(ctx, at, tx.err, tx.err)
	}
	finished = true
	if err := t.commit(ctx); err != nil {
		return translate(ctx, err)
	}
	for name := range tx.notified {
		d.cluster.watch.notify(d.tenant, name)
	}
	for _, f := range tx.after {
		f()
	}
	return nil
}

// Do runs a statement. It is Exec for callers that do not need the number of rows.
func (tx *Tx) Do(ctx context.Context, sql string, args ...any) error {
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

// Exec runs a statement and returns the number of rows that it changed.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	vals, err := tx.args(ctx, args)
	if err != nil {
		return 0, err
	}
	n, err := tx.txn.exec(ctx, sql, vals)
	return n, tx.failed(ctx, err)
}

// Revision returns the value of a counter that Bump increments; 0 before the first Bump.
func (tx *Tx) Revision(ctx context.Context, name string) (int64, error) {
	return OneOrZero[int64](ctx, tx, `SELECT value FROM revisions WHERE name = $1`, name)
}

// Bump increments the counter name and returns its new value. After the commit, it notifies every
// Watch on every replica.
func (tx *Tx) Bump(ctx context.Context, name string) (int64, error) {
	value, err := One[int64](ctx, tx, `INSERT INTO revisions (name, value) VALUES ($1, 1)
		ON CONFLICT (name) DO UPDATE SET value = revisions.value + 1 RETURNING value`, name)
	if err != nil {
		return 0, err
	}
	return value, tx.Notify(ctx, name)
}

// Notify notifies every Watch like Bump, but without a counter. So concurrent transactions do not
// wait for each other.
func (tx *Tx) Notify(ctx context.Context, name string) error {
	if tx.notified[name] {
		return nil
	}
	if tx.notified == nil {
		tx.notified = map[string]bool{}
	}
	tx.notified[name] = true
	return tx.failed(ctx, tx.txn.announce(ctx, announcement(tx.db.tenant, name)))
}

// AfterCommit registers f to run after the commit, in the goroutine that called Write. It does not
// run after a rollback.
func (tx *Tx) AfterCommit(f func()) { tx.after = append(tx.after, f) }

// Lock acquires the lock with this name and holds it until the end of the transaction. It waits
// while another transaction of the tenant, on any replica, holds it.
func (tx *Tx) Lock(ctx context.Context, name string) error {
	if tx.err != nil {
		return tx.err
	}
	return tx.failed(ctx, tx.txn.lock(ctx, name))
}

// Now returns the store's clock.
func (tx *Tx) Now() time.Time { return tx.db.cluster.now() }

// args converts arguments for the driver. It returns the error of a transaction that has failed.
func (tx *Tx) args(ctx context.Context, args []any) ([]any, error) {
	if tx.err != nil {
		return nil, tx.err
	}
	if err := ctx.Err(); err != nil {
		return nil, tx.failed(ctx, err)
	}
	vals := make([]any, len(args))
	for i, a := range args {
		v, err := value(a)
		if err != nil {
			return nil, tx.failed(ctx, err)
		}
		vals[i] = v
	}
	return vals, nil
}

// failed records the first SQL error, translated.
func (tx *Tx) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	err = translate(ctx, err)
	if tx.err == nil {
		tx.err = err
	}
	return err
}
