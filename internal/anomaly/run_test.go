package anomaly

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// watched is a service with a decision log, and the tenants that it checked.
type watched struct {
	*Service
	t       *testing.T
	now     time.Time
	checked []scope.TenantID
	made    int
}

// watch returns a service with a clock that shows now.
func watch(t *testing.T, c *db.Cluster, now time.Time) *watched {
	t.Helper()
	s, err := spool.Open(spool.Config{Dir: t.TempDir(), Sync: spool.SyncNever})
	errtest.Must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	w := &watched{t: t, now: now}
	logger := slog.New(slog.DiscardHandler)
	clock := func() time.Time { return w.now }
	l := audit.NewDecisionLog(audit.Config{Cluster: c, Spool: s, SetAside: t.TempDir(), Now: clock, Logger: logger})
	w.Service = &Service{Stores: c, Log: l, Now: clock, Logger: logger, Tuning: func(_ context.Context, tenant scope.TenantID) (Tuning, bool, error) {
		w.checked = append(w.checked, tenant)
		return Tuning{Factor: 3}, true, nil
	}}
	return w
}

// ship records decisions of a tenant and waits until they are stored.
func (w *watched) ship(tenant scope.TenantID, decision string, n int, at time.Time) {
	w.t.Helper()
	for range n {
		w.made++
		d := audit.Decision{DecisionID: fmt.Sprint("d-", w.made), Decision: decision, Environment: scope.Production, Timestamp: at}
		if err := w.Log.Record(tenant, &d); err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, end := context.WithTimeout(context.Background(), time.Minute)
	defer end()
	done := make(chan error, 1)
	go func() { done <- w.Log.Run(ctx) }()
	for w.Log.Pending() > 0 && ctx.Err() == nil {
		if _, err := w.Log.Rollups(ctx, scope.Scope{Tenant: tenant, Env: scope.Production}, stats.Day, at, at); err != nil {
			w.t.Fatal(err)
		}
	}
	end()
	if err := <-done; err != nil || w.Log.Pending() > 0 {
		w.t.Fatalf("Run: %v; %d decisions wait, want none", err, w.Log.Pending())
	}
}

// run returns the tenants that one Run checks.
func (w *watched) run() []scope.TenantID {
	w.checked = nil
	w.Run(context.Background())
	slices.Sort(w.checked)
	return w.checked
}

// TestIdleTenantsCostNothing: after the first Run, a tenant is checked only while its
// decisions are in the window, and that the stores of the others are not read.
func TestIdleTenantsCostNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		all, err := c.Tenants(context.Background())
		if err != nil || len(all) < 2 {
			t.Fatalf("Tenants = %v, %v, want at least 2", all, err)
		}
		busy, idle := all[0], all[1]
		w := watch(t, c, time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC))
		if got := w.run(); !slices.Equal(got, all) {
			t.Fatalf("the first Run checks %v, want %v", got, all)
		}
		if got := w.run(); len(got) != 0 {
			t.Fatalf("Run without a decision checks %v, want none", got)
		}
		w.ship(busy, audit.Permit, 3, w.now)
		for range 5 {
			if got := w.run(); !slices.Equal(got, []scope.TenantID{busy}) {
				t.Fatalf("Run at %s checks %v, want %s", w.now.Format(time.TimeOnly), got, busy)
			}
			w.now = w.now.Add(time.Minute)
		}
		w.now = w.now.Add(time.Second)
		if got := w.run(); len(got) != 0 {
			t.Fatalf("Run after the window checks %v, want none", got)
		}
		w.ship(idle, audit.Deny, 1, w.now)
		if got := w.run(); !slices.Equal(got, []scope.TenantID{idle}) {
			t.Fatalf("Run after a decision of another tenant checks %v, want %s", got, idle)
		}
	})
}

// TestFoundOnceByTwoReplicas: two replicas that store decisions of one tenant both check
// it, and store what they find as one anomaly. The anomaly is also found after the last decision,
// when the window contains mostly denials.
func TestFoundOnceByTwoReplicas(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		start := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
		one, two := watch(t, c, start), watch(t, c, start)
		two.made = 1_000_000
		one.run()
		two.run()
		for h := range 6 {
			one.ship(scope.DefaultTenant, audit.Permit, 100, start.Add(time.Duration(h-8)*time.Hour))
		}
		one.ship(scope.DefaultTenant, audit.Permit, 1000, start)
		one.now = start.Add(4 * time.Minute)
		two.now = one.now
		two.ship(scope.DefaultTenant, audit.Deny, 60, two.now)
		one.ship(scope.DefaultTenant, audit.Deny, 1, one.now)
		found := func() int64 {
			page, err := one.List(ctx, scope.Scope{Tenant: scope.DefaultTenant, Env: scope.Production}, DenialSpike, start.Add(-time.Hour), 0, 10)
			errtest.Must(t, err)
			return page.Total
		}
		one.run()
		if n := found(); n != 0 {
			t.Fatalf("%d anomalies while most is permitted, want none", n)
		}
		one.now, two.now = start.Add(6*time.Minute), start.Add(6*time.Minute)
		var both sync.WaitGroup
		both.Go(func() { one.run() })
		both.Go(func() { two.run() })
		both.Wait()
		if n := found(); n != 1 {
			t.Fatalf("%d anomalies, want 1", n)
		}
	})
}
