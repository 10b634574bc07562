package spool

import (
	"testing"
	"time"
)

// TestAllowance: a complete burst is allowed, then so many a second. After a pause of any length,
// at most one burst is allowed again.
func TestAllowance(t *testing.T) {
	a := NewAllowance(100, 10)
	now := time.Unix(1_800_000_000, 0)
	take := func(n int) (taken int) {
		for range n {
			if a.Take(now) {
				taken++
			}
		}
		return taken
	}
	for i, c := range []struct {
		after time.Duration
		ask   int
		want  int
	}{{0, 1000, 100}, {0, 10, 0}, {time.Second, 100, 10}, {100 * time.Millisecond, 5, 1}, {time.Hour, 1000, 100}, {5 * time.Second, 40, 40}, {0, 40, 10}} {
		now = now.Add(c.after)
		if got := take(c.ask); got != c.want {
			t.Errorf("step %d: %d of %d taken, want %d", i, got, c.ask, c.want)
		}
	}
}
