package framing

import (
	"sync/atomic"
	"time"
)

// distrustTime is how long each connection serves only one request after an application sent bytes
// that belong to no request. Such bytes may be late the next time, and arrive when the connection
// serves another client.
const distrustTime = 10 * time.Minute

// Trust is shared by the connections to one application. It ends for distrustTime when the
// application sends bytes that belong to no request.
type Trust struct {
	now    func() time.Time
	notify func()
	until  atomic.Int64 // Unix time in nanoseconds
}

// NewTrust returns trust in an application. notify is called each time the application sends bytes
// that belong to no request, possibly by several goroutines at once.
func NewTrust(now func() time.Time, notify func()) *Trust { return &Trust{now: now, notify: notify} }

// revoke ends the trust for distrustTime.
func (t *Trust) revoke() {
	t.until.Store(t.now().Add(distrustTime).UnixNano())
	t.notify()
}

// singleUse reports whether each connection may serve only one request now.
func (t *Trust) singleUse() bool {
	until := t.until.Load()
	return until != 0 && t.now().UnixNano() < until
}
