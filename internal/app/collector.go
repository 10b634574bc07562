package app

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The collector runs when the heap has grown by GOGC percent over what is in use.
// A high figure costs little where little is in use, and much where much is: so
// the room beside what is in use is bounded, but never smaller than that itself.
const (
	mostPercent  = 400
	leastPercent = 100
	mostRoom     = 96 << 20
)

// percentFor is the GOGC for so many bytes in use.
func percentFor(live uint64) int {
	if live == 0 {
		return mostPercent
	}
	return int(min(max(mostRoom*100/live, leastPercent), mostPercent))
}

// collect keeps the collector's percentage fit for what is in use, until the
// context ends. GOGC, where set, is left alone.
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
		// Small changes are not worth stopping everything for.
		if next := percentFor(live[0].Value.Uint64()); next < now*9/10 || next > now*11/10 {
			debug.SetGCPercent(next)
			now = next
		}
	})
}
