package app

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestCollectorPercent: the less memory is in use, the more may be allocated before a collection.
func TestCollectorPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {1 << 20, 400}, {24 << 20, 400}, {48 << 20, 200}, {96 << 20, 100}, {1 << 30, 100}} {
		if got := percentFor(c.live); got != c.want {
			t.Errorf("percentFor(%d MiB) is %d, want %d", c.live>>20, got, c.want)
		}
	}
}

// TestAfterCollection: f is called after every collection, not only the first.
func TestAfterCollection(t *testing.T) {
	var seen atomic.Int64
	afterCollection(t.Context(), func() { seen.Add(1) })
	for want := int64(1); want <= 3; want++ {
		for seen.Load() < want {
			runtime.GC()
		}
	}
}
