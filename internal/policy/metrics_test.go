package policy

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

func TestMetrics(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newHouse(t, c)
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
		if err := m.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := h.Get(ctx, sc(""), p.ID)
		want := Performance{AvgEvaluationTimeMS: 2, TotalEvaluations: 800, CacheHitRate: 0.25}
		if err != nil || got.Metrics != want || got.Version != 1 {
			t.Errorf("metrics %+v, %v", got.Metrics, err)
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		m.Add(scope.DefaultTenant, p.ID, 2*time.Millisecond, true)
		if m.Flush(cancelled) == nil {
			t.Error("flushed without a context")
		}
		if err := m.Run(cancelled); err != nil { // flushes once more
			t.Fatal(err)
		}
		if got, err = h.Get(ctx, sc(""), p.ID); err != nil || got.Metrics.TotalEvaluations != 801 {
			t.Errorf("after the end %+v, %v", got.Metrics, err)
		}
	})
}

func BenchmarkMetricsAdd(b *testing.B) {
	m := NewMetrics(nil, time.Hour)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Add(scope.DefaultTenant, 12, time.Microsecond, true)
		}
	})
}
