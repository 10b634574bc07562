package job

import (
	"context"
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// Leases elects one replica for each name.
type Leases struct {
	// System is the deployment's own store.
	System *db.DB
	// Holder names this replica; it differs from that of every other process.
	Holder string
	Now    func() time.Time
	Logger *slog.Logger
}

// Acquire takes or prolongs a lease, and reports whether this replica has it.
func (l *Leases) Acquire(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	var ours bool
	err := l.System.Write(ctx, func(tx *db.Tx) (err error) {
		ours, err = takeLease(ctx, tx, name, l.Holder, l.Now(), ttl)
		return err
	})
	return ours && err == nil, err
}

// Release gives a lease back before its time.
func (l *Leases) Release(ctx context.Context, name string) error {
	return l.System.Write(ctx, func(tx *db.Tx) error { return freeLease(ctx, tx, name, l.Holder) })
}

// Lead runs work on one replica at a time, until ctx ends. The context of work
// ends when the lease is lost or cannot be prolonged in time; another replica
// leads at most ttl after this one has died. When work returns before, it is run
// again after ttl, by whoever leads then.
func (l *Leases) Lead(ctx context.Context, name string, ttl time.Duration, work func(ctx context.Context)) {
	tick := time.NewTicker(ttl / 3)
	defer tick.Stop()
	for ctx.Err() == nil {
		ours, err := l.Acquire(ctx, name, ttl)
		if err != nil && ctx.Err() == nil {
			l.Logger.Warn("a lease cannot be taken", "name", name, "error", err)
		}
		if ours {
			l.lead(ctx, name, ttl, work)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// lead runs work while the lease lasts.
func (l *Leases) lead(ctx context.Context, name string, ttl time.Duration, work func(ctx context.Context)) {
	inner, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(inner)
	}()
	l.renewLoop(ctx, name, ttl, done)
	cancel()
	<-done
	if ctx.Err() != nil { // the end of this replica: another one need not wait
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := l.Release(free, name); err != nil {
			l.Logger.Warn("a lease cannot be released", "name", name, "error", err)
		}
	}
}

// renewLoop prolongs the lease until it is lost, or work is done and its time over.
func (l *Leases) renewLoop(ctx context.Context, name string, ttl time.Duration, done <-chan struct{}) {
	tick := time.NewTicker(ttl / 3)
	defer tick.Stop()
	lost := time.NewTimer(ttl) // by the monotonic clock
	defer lost.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-lost.C:
			l.Logger.Warn("a lease was lost", "name", name)
			return
		case <-tick.C:
		}
		began := l.Now()
		short, cancel := context.WithTimeout(ctx, ttl/3)
		ours, err := l.Acquire(short, name, ttl)
		cancel()
		switch {
		case err != nil: // until the timer says that it is too late
		case !ours:
			l.Logger.Warn("a lease went to another replica", "name", name)
			return
		default:
			lost.Reset(ttl - l.Now().Sub(began))
		}
	}
}
