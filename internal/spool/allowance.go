package spool

import (
	"sync/atomic"
	"time"
)

// Allowance is a rate limit for an optional part of records: a burst, and then so many a second. It
// takes no lock and is safe for concurrent use.
type Allowance struct {
	each, span int64        // time of one record, and of a burst, in nanoseconds
	next       atomic.Int64 // the time up to which the allowance is used, in Unix nanoseconds
}

// NewAllowance makes an allowance for a burst of this many records, and then rate records a second.
func NewAllowance(burst, rate int) *Allowance {
	each := int64(time.Second) / int64(rate)
	return &Allowance{each: each, span: each * int64(burst)}
}

// Take reports whether the allowance has room for one more record, and uses it.
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
