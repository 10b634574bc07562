package rego

import (
	"sync/atomic"
	"time"
)

// Tally holds the counters of a control. They only grow. A tally fills one cache line and a
// control points to it, so counting costs one cache miss, whatever the number of controls.
type Tally struct {
	// Evaluations counts evaluations and answers from the cache; CacheHits counts only those
	// from the cache. Nanoseconds is the total time of all of them.
	Evaluations, CacheHits, Nanoseconds atomic.Int64
	// Decided counts the decisions in which this control decided, by effect.
	Decided [Deny + 1]atomic.Int64
}

// Evaluated counts one evaluation, or one answer from the cache if hit is true, and its time.
func (t *Tally) Evaluated(took time.Duration, hit bool) {
	t.Evaluations.Add(1)
	t.Nanoseconds.Add(int64(took))
	if hit {
		t.CacheHits.Add(1)
	}
}

// Tally returns the control's counters. The first call gets them from find and keeps them. Several
// callers may call find at once, so it must always return the same tally for a control.
func (c *Control) Tally(find func(control int64) *Tally) *Tally {
	if t := c.tally.Load(); t != nil {
		return t
	}
	t := find(c.meta.ID)
	c.tally.Store(t)
	return t
}
