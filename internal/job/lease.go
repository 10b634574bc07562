package job

import (
	"context"
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// Leases elects one replica for each name of a lease.
type Leases struct {
	// System is the system store.
	System *db.DB
	// Holder identifies this replica. It must be unique.
	Holder string
	Now    func() time.Time
	Logger *slog.Logger
}

// Acquire acquires or renews a lease. It returns true if this replica owns it.
func (l *Leases) Acquire(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	var ours bool
	err := l.System.Write(ctx, func(tx *db.Tx) (err error) {
		ours, err = takeLease(ctx, tx, name, l.Holder, l.Now(), ttl)
		return err
	})
	return ours && err == nil, err
}

// Release releases a lease before it expires.
func (l *Leases) Release(ctx context.Context, name string) error {
	return l.System.Write(ctx, func(tx *db.Tx) error { return freeLease(ctx, tx, name, l.Holder) })
}

// Lead runs work on one replica at a time, until ctx ends. The context of work ends when the lease
// is lost or cannot be renewed in time. If this replica dies, another one leads after at most 4/3 of ttl.
// If work returns, Lead runs it again after at most ttl/3.
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

// lead runs work until it returns or the lease ends.
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
	if ctx.Err() != nil { // this replica is stopping, so another one may start at once
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := l.Release(free, name); err != nil {
			l.Logger.Warn("a lease cannot be released", "name", name, "error", err)
		}
	}
}

// renewLoop renews the lease until it is lost or work has returned.
func (l *Leases) renewLoop(ctx context.Context, name string, ttl time.Duration, done <-chan struct{}) {
	tick := time.NewTicker(ttl / 3)
	defer tick.Stop()
	lost := time.NewTimer(ttl) // uses the monotonic clock
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
		case err != nil: // try again until the timer fires
		case !ours:
			l.Logger.Warn("a lease went to another replica", "name", name)
			return
		default:
			lost.Reset(ttl - l.Now().Sub(began))
		}
	}
}
