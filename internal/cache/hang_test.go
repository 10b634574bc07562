package cache_test

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/cache/cachetest"
)

// TestRedisHangs: a Redis that keeps its connections but does not answer delays no caller. Counts
// continue from its last answer, Health reports it at once, and Redis is used again when it
// answers.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	server := cachetest.Start(t)
	c := cachetest.Open(t, cache.Config{URL: server.URL()})
	ctx := context.Background()
	// within runs do, and fails the test if it takes longer than limit.
	within := func(what string, limit time.Duration, do func()) {
		t.Helper()
		began := time.Now()
		do()
		if took := time.Since(began); took > limit {
			t.Errorf("%s took %s while Redis hangs, want at most %s", what, took, limit)
		}
	}
	last := count(t, c, "t", "x", 7, 240*time.Hour).Count
	server.Freeze()
	within("1000 counts", 20*time.Second, func() {
		for range 1000 {
			within("a count", time.Second, func() {
				w := count(t, c, "t", "x", 1, 240*time.Hour)
				if w.Count != last+1 {
					t.Fatalf("count %d follows %d, want %d", w.Count, last, last+1)
				}
				last = w.Count
			})
		}
	})
	for deadline := time.Now().Add(20 * time.Second); c.Health(ctx).Status != "degraded"; {
		if time.Now().After(deadline) {
			t.Fatal("the cache does not notice that Redis hangs")
		}
	}
	within("Health", 200*time.Millisecond, func() { c.Health(ctx) })
	within("1000 counts with an open circuit", 2*time.Second, func() {
		for range 1000 {
			count(t, c, "t", "y", 1, 240*time.Hour)
		}
	})
	within("Drop", 5*time.Second, func() {
		if c.Drop(ctx, "t") == nil {
			t.Error("Drop with a frozen Redis succeeds, want an error")
		}
	})
	within("Open", 10*time.Second, func() {
		other := cachetest.Open(t, cache.Config{URL: server.URL()})
		if other.Health(ctx).Status != "degraded" {
			t.Error("a cache that starts beside a frozen Redis is not degraded")
		}
		count(t, other, "t", "z", 1, time.Hour)
	})
	server.Thaw()
	for deadline := time.Now().Add(20 * time.Second); c.Health(ctx).Status != "up"; {
		if time.Now().After(deadline) {
			t.Fatal("the cache does not use Redis again")
		}
	}
}
