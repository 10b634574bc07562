package spool

import (
	"testing"
	"time"
)

// TestAllowance checks that a complete burst is allowed, then a number a second. After a pause of any length,
// at most one burst is allowed again.
func TestAllowance(t *testing.T) {
	a := NewAllowance(100, 10)
	now := time.Unix(1_800_000_000, 0)
	for i, c := range []struct {
		after time.Duration
		ask   int
		want  int
	}{{0, 1000, 100}, {0, 10, 0}, {time.Second, 100, 10}, {100 * time.Millisecond, 5, 1}, {time.Hour, 1000, 100}, {5 * time.Second, 40, 40}, {0, 40, 10}} {
		now = now.Add(c.after)
		taken := 0
		for range c.ask {
			if a.Take(now) {
				taken++
			}
		}
		if taken != c.want {
			t.Errorf("step %d: %d of %d taken, want %d", i, taken, c.ask, c.want)
		}
	}
}
