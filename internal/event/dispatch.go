package event

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Sink receives events: webhook deliveries and notifications are sinks.
type Sink interface {
	// Name is the name of the sink's cursor. It must never change.
	Name() string
	// Take is called for every event of every tenant, in the tenant's order. tx is a transaction
	// of the tenant's store. If Take returns an error, tx is rolled back, and Take gets the same
	// events again later. It must not call other services, because the transaction is open
	// meanwhile.
	Take(ctx context.Context, tx *db.Tx, tenant scope.TenantID, o Occurrence) error
}

// Dispatcher delivers events to sinks. All fields must be set before Run.
type Dispatcher struct {
	Cluster *db.Cluster
	Sinks   []Sink
	Now     func() time.Time
	Logger  *slog.Logger
	// Sweep is how often all tenants are checked for events whose notification was lost. With
	// very many tenants, it is less often (db.SweepInterval). 0 means a minute.
	Sweep time.Duration
	// Keep is how long events are stored at least, even if every sink has received them. 0 means a
	// week.
	Keep time.Duration
}

const batch = 200

// Hold waits until no replica delivers events to a sink, and keeps it so until tx ends. What a sink
// wrote before is visible to the next statement of tx.
func Hold(ctx context.Context, tx *db.Tx, s Sink) error { return tx.Lock(ctx, "event."+s.Name()) }

// Run delivers events until ctx ends. Several replicas may run it at once.
func (d *Dispatcher) Run(ctx context.Context) error {
	dirty := newDirty()
	stop := d.Cluster.Watch(func(tenant scope.TenantID, name string) {
		switch {
		case name == Topic && tenant != "":
			dirty.add(tenant)
		case name == "": // notifications may be lost
			dirty.sweep()
		}
	})
	defer stop()
	every := d.Sweep
	if every <= 0 {
		every = time.Minute
	}
	timer := time.NewTimer(every)
	defer timer.Stop()
	dirty.sweep()
	for {
		tenants, all := dirty.drain()
		if all {
			ids, err := d.Cluster.Tenants(ctx)
			if err != nil && ctx.Err() == nil {
				d.Logger.Error("the event dispatcher could not list the tenants", "error", err)
			}
			tenants = ids
			timer.Reset(db.SweepInterval(len(ids), every))
		}
		for _, t := range tenants {
			behind, err := d.DispatchTenant(ctx, t)
			if err != nil && ctx.Err() == nil {
				d.Logger.Error("events were not delivered", "tenant", t, "error", err)
			}
			if ctx.Err() != nil {
				return nil
			}
			if behind { // continue after the other tenants
				dirty.add(t)
			}
		}
		select {
		case <-dirty.wake:
		case <-timer.C:
			dirty.sweep()
		case <-ctx.Done():
			return nil
		}
	}
}

// DispatchTenant delivers one batch of a tenant's events to each sink that has not received them yet, and
// reports whether there are more. It delivers only one batch, so that a tenant with many events
// does not delay the others. If a sink fails, the other sinks still get their batch. The error
// joins all failures.
func (d *Dispatcher) DispatchTenant(ctx context.Context, tenant scope.TenantID) (behind bool, err error) {
	store, err := d.Cluster.Tenant(ctx, tenant)
	if err != nil {
		return false, err
	}
	var errs []error
	upTo := int64(-1)
	for _, s := range d.Sinks {
		seq, more, err := d.deliver(ctx, store, tenant, s)
		if upTo < 0 || seq < upTo {
			upTo = seq
		}
		behind = behind || more && err == nil
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil || behind || upTo <= 0 {
		return behind, err
	}
	keep := d.Keep
	if keep <= 0 {
		keep = 7 * 24 * time.Hour
	}
	return false, d.remove(ctx, store, d.Now().Add(-keep), upTo)
}

// deliver delivers the next batch to one sink. It returns the sink's cursor, and whether there may
// be more events.
func (d *Dispatcher) deliver(ctx context.Context, store *db.DB, tenant scope.TenantID, s Sink) (seq int64, more bool, err error) {
	// Check without the lock first: usually there is nothing to deliver.
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		if seq, err = cursorOf(ctx, tx, s.Name()); err != nil {
			return err
		}
		rows, err := eventsAfter(ctx, tx, seq, 1)
		more = len(rows) > 0
		return err
	})
	if err != nil || !more {
		return seq, false, err
	}
	err = store.Write(ctx, func(tx *db.Tx) error {
		if err := Hold(ctx, tx, s); err != nil {
			return err
		}
		at, err := cursorOf(ctx, tx, s.Name())
		if err != nil {
			return err
		}
		rows, err := eventsAfter(ctx, tx, at, batch)
		if err != nil || len(rows) == 0 {
			seq = at
			return err
		}
		for _, r := range rows {
			if err := s.Take(ctx, tx, tenant, r.occurrence(tenant)); err != nil {
				return err
			}
		}
		seq = rows[len(rows)-1].Seq
		return saveCursor(ctx, tx, s.Name(), seq)
	})
	return seq, true, err
}

// remove deletes events from before a time that all sinks have received, in small transactions.
func (d *Dispatcher) remove(ctx context.Context, store *db.DB, before time.Time, upTo int64) error {
	var old bool
	err := store.Read(ctx, func(tx *db.Tx) error {
		rows, err := eventsAfter(ctx, tx, 0, 1)
		old = len(rows) > 0 && rows[0].At.Before(before) && rows[0].Seq <= upTo
		return err
	})
	if err != nil || !old {
		return err
	}
	_, err = store.WriteBatches(ctx, batch, func(tx *db.Tx) (int64, error) { return deleteOld(ctx, tx, before, upTo, batch) })
	return err
}

// dirtyTenants is the set of tenants that may have new events.
type dirtyTenants struct {
	wake chan struct{}
	mu   sync.Mutex
	set  map[scope.TenantID]bool
	all  bool
}

func newDirty() *dirtyTenants {
	return &dirtyTenants{wake: make(chan struct{}, 1), set: map[scope.TenantID]bool{}}
}

func (d *dirtyTenants) add(t scope.TenantID) {
	d.mu.Lock()
	d.set[t] = true
	d.mu.Unlock()
	d.signal()
}

func (d *dirtyTenants) sweep() {
	d.mu.Lock()
	d.all = true
	d.mu.Unlock()
	d.signal()
}

func (d *dirtyTenants) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *dirtyTenants) drain() ([]scope.TenantID, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []scope.TenantID
	for t := range d.set {
		out = append(out, t)
	}
	clear(d.set)
	all := d.all
	d.all = false
	return out, all
}
