package rego

import (
	"sync/atomic"
	"time"
)

// Tally counts what a control did. The counts only grow. A tally fills one cache line and a
// control points to it, so counting takes one cache miss, whatever the number of controls.
type Tally struct {
	// Evaluations counts evaluations and answers from the cache; CacheHits are those
	// from the cache. Nanoseconds is the time of all of them.
	Evaluations, CacheHits, Nanoseconds atomic.Int64
	// Decided counts the decisions that the control made, by effect.
	Decided [Deny + 1]atomic.Int64
}

// Evaluated counts one evaluation that took this long, or one answer from the cache.
func (t *Tally) Evaluated(took time.Duration, hit bool) {
	t.Evaluations.Add(1)
	t.Nanoseconds.Add(int64(took))
	if hit {
		t.CacheHits.Add(1)
	}
}

// Tally returns the control's counters, which find returns at the first call. If several first
// calls come at once, find must return the same for all.
func (c *Control) Tally(find func(control int64) *Tally) *Tally {
	if t := c.tally.Load(); t != nil {
		return t
	}
	t := find(c.meta.ID)
	c.tally.Store(t)
	return t
}
