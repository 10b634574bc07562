package framing

import (
	"sync/atomic"
	"time"
)

// distrust is how long connections serve one request each after an application sent
// what nobody asked for. What comes late once can come later still the next time,
// when the connection serves somebody else.
const distrust = 10 * time.Minute

// Trust is what the connections to one application share.
type Trust struct {
	now    func() time.Time
	notify func()
	until  atomic.Int64 // Unix time in nanoseconds
}

// NewTrust returns the trust in an application that did nothing wrong so far.
// notify is called, by several goroutines, each time it sends bytes that belong to
// no request.
func NewTrust(now func() time.Time, notify func()) *Trust { return &Trust{now: now, notify: notify} }

func (t *Trust) lose() {
	t.until.Store(t.now().Add(distrust).UnixNano())
	t.notify()
}

// once reports that a connection must serve one request alone.
func (t *Trust) once() bool {
	until := t.until.Load()
	return until != 0 && t.now().UnixNano() < until
}
