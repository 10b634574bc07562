package app

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
)

func TestCollectorPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {1 << 20, 400}, {24 << 20, 400}, {48 << 20, 200}, {96 << 20, 100}, {1 << 30, 100}} {
		if got := percentFor(c.live); got != c.want {
			t.Errorf("%d MiB in use: %d percent, want %d", c.live>>20, got, c.want)
		}
	}
}

// TestAfterCollection: f is called after every collection, not only the first, until the context
// ends.
func TestAfterCollection(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	var seen atomic.Int64
	afterCollection(ctx, func() { seen.Add(1) })
	for want := int64(1); want <= 3; want++ {
		for seen.Load() < want {
			runtime.GC()
		}
	}
	end()
}
