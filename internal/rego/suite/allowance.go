package suite

import (
	"errors"
	"sync/atomic"
	"time"
)

// errAllowance is the error of a test that ran out of time or memory.
var errAllowance = errors.New("evaluation_limit")

// maxTestBytes is the number of bytes that one call of a built-in may produce in a test.
const maxTestBytes = 64 << 20

// allowance limits the time and memory of one call of a built-in. It implements topdown.Cancel.
type allowance struct {
	stopped atomic.Bool
	bytes   atomic.Int64
	timer   *time.Timer
}

// newAllowance starts an allowance with a time limit. The caller must call release.
func newAllowance(limit time.Duration) *allowance {
	a := &allowance{}
	a.bytes.Store(maxTestBytes)
	a.timer = time.AfterFunc(limit, a.Cancel)
	return a
}

func (a *allowance) release() { a.timer.Stop() }

// Cancel stops the evaluation at its next step.
func (a *allowance) Cancel() { a.stopped.Store(true) }

// Cancelled reports whether to stop: cancelled, past the deadline or out of bytes.
func (a *allowance) Cancelled() bool { return a.stopped.Load() }

// spend uses n bytes. It returns false if there are not that many left.
func (a *allowance) spend(n int64) bool {
	if a.bytes.Add(-n) < 0 {
		a.Cancel()
		return false
	}
	return true
}
