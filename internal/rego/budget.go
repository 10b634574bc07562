package rego

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// ErrLimit is the error of an evaluation that ran out of time or memory. Its
// outcome is DENY with the reason ReasonLimit.
var ErrLimit = errors.New("evaluation_limit")

// ReasonLimit is the reason of a decision whose evaluation hit a limit.
const ReasonLimit = "evaluation_limit"

// budget is what one evaluation may use. It is topdown's Cancel, asked before
// every expression, and is handed to each bounded built-in. The deadline is a
// timer that sets a flag, started when the first thing runs that needs it: no
// goroutine waits, and no clock is asked.
type budget struct {
	stopped  atomic.Bool
	bytes    atomic.Int64
	deadline time.Duration
	timer    *time.Timer
	done     <-chan struct{}
	fired    chan struct{} // closed when stopped, if somebody needs a channel
	asked    uint32
}

// newBudget makes a budget. The caller must call release.
func newBudget(ctx context.Context, lim Limits) *budget {
	b := &budget{done: ctx.Done(), deadline: lim.Deadline}
	if b.deadline <= 0 {
		b.deadline = DefaultDeadline
	}
	if lim.Bytes <= 0 {
		lim.Bytes = DefaultBytes
	}
	b.bytes.Store(lim.Bytes)
	return b
}

// start starts the deadline, once.
func (b *budget) start() {
	if b.timer == nil {
		b.timer = time.AfterFunc(b.deadline, b.Cancel)
	}
}

// channel is closed when the deadline has passed.
func (b *budget) channel() <-chan struct{} {
	if b.fired == nil {
		b.fired = make(chan struct{})
		fired := b.fired
		if b.timer != nil {
			b.timer.Stop()
		}
		b.timer = time.AfterFunc(b.deadline, func() { b.Cancel(); close(fired) })
	}
	return b.fired
}

func (b *budget) release() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

// Cancel stops the evaluation at its next step.
func (b *budget) Cancel() { b.stopped.Store(true) }

// Cancelled reports whether to stop: cancelled, past the deadline, out of
// bytes, or the caller's context is done (looked at every 64th time).
func (b *budget) Cancelled() bool {
	if b.stopped.Load() {
		return true
	}
	if b.asked++; b.asked&63 == 0 && b.done != nil {
		select {
		case <-b.done:
			b.Cancel()
			return true
		default:
		}
	}
	return false
}

// spend takes n bytes; it reports whether they were left.
func (b *budget) spend(n int64) bool {
	if b.bytes.Add(-n) < 0 {
		b.Cancel()
		return false
	}
	return true
}
