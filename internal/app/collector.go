package app

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
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

// collect adapts the collector's percentage to the bytes in use, until the context ends.
// It does nothing if GOGC is set.
func (p *parts) collect(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	now := mostPercent
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	return every(ctx, time.Second, func() {
		metrics.Read(live)
		if live[0].Value.Kind() != metrics.KindUint64 {
			return
		}
		// A small change is not worth stopping the world.
		if next := percentFor(live[0].Value.Uint64()); next < now*9/10 || next > now*11/10 {
			debug.SetGCPercent(next)
			now = next
		}
	})
}
