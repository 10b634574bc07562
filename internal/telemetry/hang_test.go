package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// TestHangingServerHoldsNoSlot: while the license server of a tenant hangs, the only slot runs the job
// of another tenant.
func TestHangingServerHoldsNoSlot(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	b.configure()
	var ended, other atomic.Bool
	b.server.mu.Lock() // no answer comes
	kinds := append(b.Jobs(), job.Kind{Name: "other", Work: func(context.Context, job.Task) error {
		other.Store(true)
		return nil
	}})
	work := kinds[0].Work
	kinds[0].Work = func(ctx context.Context, t job.Task) error {
		defer ended.Store(true)
		return work(ctx, t)
	}
	r := &job.Runner{Cluster: b.Stores, Kinds: kinds, Now: b.clock.now, Logger: slog.New(slog.DiscardHandler), Poll: 20 * time.Millisecond, Concurrency: 1}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		b.server.mu.Unlock()
		cancel()
		errtest.Must(t, <-done)
	}()
	timetest.WaitFor(t, "a call of the license server", b.server.called.Load)
	errtest.Must(t, b.Stores.Write(ctx, dbtest.Second, func(tx *db.Tx) error {
		return errtest.Of(job.Insert(ctx, tx, job.Job{Kind: "other", RunAt: b.clock.now()}))
	}))
	timetest.WaitFor(t, "the job of the other tenant", other.Load)
	if ended.Load() {
		t.Error("the other tenant's job waited for the end of the call")
	}
}
