package cache_test

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/cache/cachetest"
)

// TestRedisHangs: a Redis that keeps its connections but does not answer stops no caller. Counts
// continue from its last answer, Health reports it at once, and Redis is used again when it
// answers.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	server := cachetest.Start(t)
	c := cachetest.Open(t, cache.Config{URL: server.URL()})
	ctx := context.Background()
	// returns runs do, and ends the tests if it does not return within a minute.
	returns := func(what string, do func()) {
		timer := time.AfterFunc(time.Minute, func() { panic(what + " does not return while Redis hangs") })
		defer timer.Stop()
		do()
	}
	last := count(t, c, "t", "x", 7, 240*time.Hour).Count
	server.Freeze()
	returns("1000 counts", func() {
		for range 1000 {
			w := count(t, c, "t", "x", 1, 240*time.Hour)
			if w.Count != last+1 {
				t.Fatalf("count %d follows %d, want %d", w.Count, last, last+1)
			}
			last = w.Count
		}
	})
	for deadline := time.Now().Add(20 * time.Second); c.Health(ctx).Status != "degraded"; {
		if time.Now().After(deadline) {
			t.Fatal("the cache does not notice that Redis hangs")
		}
	}
	returns("Health", func() { c.Health(ctx) })
	returns("1000 counts with an open circuit", func() {
		for range 1000 {
			count(t, c, "t", "y", 1, 240*time.Hour)
		}
	})
	returns("Drop", func() {
		if c.Drop(ctx, "t") == nil {
			t.Error("Drop with a frozen Redis succeeds, want an error")
		}
	})
	returns("Open", func() {
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
