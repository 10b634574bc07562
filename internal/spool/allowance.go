package spool

import (
	"sync/atomic"
	"time"
)

// Allowance limits how many records may carry an optional part: a whole burst, then so many
// a second. A refusal costs one memory access. It is safe for concurrent use.
type Allowance struct {
	each, span int64        // nanoseconds a record, and for how many a burst is ahead
	next       atomic.Int64 // until when the used records are paid for, in Unix nanoseconds
}

// NewAllowance allows a burst of so many records, then rate a second.
func NewAllowance(burst, rate int) *Allowance {
	each := int64(time.Second) / int64(rate)
	return &Allowance{each: each, span: each * int64(burst)}
}

// Take reports whether the current record may carry the part.
func (a *Allowance) Take(now time.Time) bool {
	at := now.UnixNano()
	for {
		old := a.next.Load()
		next := max(old, at-a.span) + a.each
		if next > at {
			return false
		}
		if a.next.CompareAndSwap(old, next) {
			return true
		}
	}
}
