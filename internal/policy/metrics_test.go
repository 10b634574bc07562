package policy

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestMetrics: concurrent evaluations are counted once each, also if a flush fails. Those of unknown
// controls and tenants are dropped.
func TestMetrics(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		p := h.create(t, Draft{})
		m := NewMetrics(c, time.Hour)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 100 {
					m.Add(scope.DefaultTenant, p.ID, 2*time.Millisecond, (i+j)%4 == 0)
					if j == 50 {
						if err := m.Flush(ctx); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		m.Add(scope.DefaultTenant, 4711, time.Second, false) // no such control
		m.Add("nobody", p.ID, time.Second, false)            // no such tenant
		errtest.Must(t, m.Flush(ctx))
		got, err := h.Get(ctx, sc(""), p.ID)
		want := Performance{AvgEvaluationTimeMS: 2, TotalEvaluations: 800, CacheHitRate: 0.25}
		if err != nil || got.Metrics != want || got.Version != 1 {
			t.Errorf("metrics = %+v, %v, want %+v", got.Metrics, err, want)
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		m.Add(scope.DefaultTenant, p.ID, 2*time.Millisecond, true)
		if m.Flush(cancelled) == nil {
			t.Error("Flush with a cancelled context succeeds, want an error")
		}
		if err := m.Run(cancelled); err != nil { // flushes once more
			t.Fatal(err)
		}
		if got, err = h.Get(ctx, sc(""), p.ID); err != nil || got.Metrics.TotalEvaluations != 801 {
			t.Errorf("metrics after Run = %+v, %v, want 801 evaluations", got.Metrics, err)
		}
		own := m.Tally(scope.DefaultTenant, p.ID)
		for range 2 { // counted in the same tally as local evaluations, once each time
			own.Evaluated(2*time.Millisecond, false)
			m.Add(scope.DefaultTenant, p.ID, 2*time.Millisecond, false)
			errtest.Must(t, m.Flush(ctx))
		}
		if got, err = h.Get(ctx, sc(""), p.ID); err != nil || got.Metrics.TotalEvaluations != 805 || own.Evaluations.Load() != 4 {
			t.Errorf("metrics with a tally of the evaluator = %+v, %v, want 805 evaluations", got.Metrics, err)
		}
	})
}

// TestReportedIDsAreNotKept: a bouncer may report any id, so a tally for a report is dropped once it
// is stored. A tally that Tally returned is kept.
func TestReportedIDsAreNotKept(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		newFixture(t, c)
		m := NewMetrics(c, time.Hour)
		own := m.Tally(scope.DefaultTenant, 1)
		for id := range int64(1000) {
			m.Add(scope.DefaultTenant, id, time.Millisecond, false)
		}
		errtest.Must(t, m.Flush(context.Background()))
		var held []int64
		m.Each(func(_ scope.TenantID, id int64, _ *rego.Tally) { held = append(held, id) })
		if len(m.tallies) != 1 || !slices.Equal(held, []int64{1}) || m.Tally(scope.DefaultTenant, 1) != own || own.Evaluations.Load() != 1 {
			t.Errorf("%d tallies remain, of the controls %v, want only 1", len(m.tallies), held)
		}
	})
}
