package rego

import (
	"context"
	"errors"
	"time"
)

// ErrLimit is the error of an evaluation that ran out of time, steps or memory. Its outcome is
// DENY with the reason ReasonLimit.
var ErrLimit = errors.New("evaluation_limit")

// ReasonLimit is the reason of a decision whose evaluation hit a limit.
const ReasonLimit = "evaluation_limit"

// timeBudget limits how long one evaluation may take. A timer closes a channel at the deadline.
// The timer starts when something first needs the channel: no goroutine waits, and nothing reads
// a clock.
type timeBudget struct {
	deadline time.Duration
	done     <-chan struct{} // the caller's context
	timer    *time.Timer
	fired    chan struct{} // closed when the deadline has passed
}

// newTimeBudget creates a budget. The caller must call release.
func newTimeBudget(ctx context.Context, lim Limits) *timeBudget {
	b := &timeBudget{done: ctx.Done(), deadline: lim.Deadline}
	if b.deadline <= 0 {
		b.deadline = DefaultDeadline
	}
	return b
}

// channel returns a channel that closes when the deadline has passed. The first call starts the
// timer.
func (b *timeBudget) channel() <-chan struct{} {
	if b.fired == nil {
		fired := make(chan struct{})
		b.fired = fired
		b.timer = time.AfterFunc(b.deadline, func() { close(fired) })
	}
	return b.fired
}

func (b *timeBudget) release() {
	if b.timer != nil {
		b.timer.Stop()
	}
}
