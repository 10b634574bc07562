package spool

import (
	"sync/atomic"
	"time"
)

// Allowance says which of many records may carry something that is nice to have:
// a burst whole, then so many a second. A refusal costs one look at memory. It is
// safe for concurrent use.
type Allowance struct {
	each, span int64        // nanoseconds a record, and for how many a burst is ahead
	next       atomic.Int64 // until when what was taken is paid for, in Unix nanoseconds
}

// NewAllowance allows a burst of so many records, then rate a second.
func NewAllowance(burst, rate int) *Allowance {
	each := int64(time.Second) / int64(rate)
	return &Allowance{each: each, span: each * int64(burst)}
}

// Take reports whether the record of the moment now may carry it.
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
