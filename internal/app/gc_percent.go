package app

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The collector runs when the heap has grown by GOGC percent of what is in use. A high
// percentage costs little memory on a small heap and much on a large one. So the extra
// headroom has an upper bound, but is at least as large as what is in use.
const (
	mostPercent  = 400
	leastPercent = 100
	mostHeadroom = 96 << 20
)

// percentFor returns the value of GOGC for a heap with this many live bytes.
func percentFor(live uint64) int {
	if live == 0 {
		return mostPercent
	}
	return int(min(max(mostHeadroom*100/live, leastPercent), mostPercent))
}

// collect adjusts GOGC to the live bytes after each garbage collection, until the context ends.
// Doing so less often would be too late: with the GOGC of a small heap, a few large requests leave
// hundreds of megabytes of garbage. It does nothing if GOGC is set.
func (p *parts) collect(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	collected := make(chan struct{}, 1)
	afterCollection(ctx, func() {
		select {
		case collected <- struct{}{}:
		default:
		}
	})
	now := mostPercent
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-collected:
		}
		metrics.Read(live)
		if live[0].Value.Kind() != metrics.KindUint64 {
			continue
		}
		// A small change is not worth stopping the world.
		if next := percentFor(live[0].Value.Uint64()); next < now*9/10 || next > now*11/10 {
			debug.SetGCPercent(next)
			now = next
		}
	}
}

// afterCollection calls f after each garbage collection, until the context ends. It relies on a
// finalizer of an unreachable object, which creates the next such object.
func afterCollection(ctx context.Context, f func()) {
	type mark struct{ _ [16]byte } // tiny objects share an allocation, and their finalizers may never run
	runtime.SetFinalizer(&mark{}, func(*mark) {
		if ctx.Err() == nil {
			f()
			afterCollection(ctx, f)
		}
	})
}
