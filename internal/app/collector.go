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
// room has an upper bound, but is at least as large as what is in use.
const (
	mostPercent  = 400
	leastPercent = 100
	mostRoom     = 96 << 20
)

// percentFor is the value of GOGC for a number of bytes in use.
func percentFor(live uint64) int {
	if live == 0 {
		return mostPercent
	}
	return int(min(max(mostRoom*100/live, leastPercent), mostPercent))
}

// collect adapts the collector's percentage to the bytes in use after each collection, until the
// context ends. Between two collections would be too late: with the percentage of a small heap,
// a few large requests leave hundreds of megabytes of garbage. It does nothing if GOGC is set.
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

// afterCollection calls f after each collection until the context ends. The collector finalizes an
// object that nothing refers to, which then makes the next one.
func afterCollection(ctx context.Context, f func()) {
	type mark struct{ _ [16]byte } // not so small that it shares an allocation
	runtime.SetFinalizer(&mark{}, func(*mark) {
		if ctx.Err() == nil {
			f()
			afterCollection(ctx, f)
		}
	})
}
