package framing

import (
	"sync"
	"time"
)

// deadlineGrain is how much a call may time out before its deadline.
const deadlineGrain = 250 * time.Millisecond

// deadline is the deadline of one direction of a connection. It is set on the connection only when
// a call begins to wait. net/http changes deadlines eight times for each request, mostly while
// nothing waits, and each change costs work on the runtime's timers.
type deadline struct {
	mu        sync.Mutex
	set       time.Time // on the connection
	known     bool      // whether set is
	wanted    time.Time
	requested bool // whether wanted was requested for
	waiting   int  // calls that wait
}

// schedule sets the deadline of waiting and later calls. setOn sets it on the connection.
func (d *deadline) schedule(t time.Time, setOn func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted, d.requested = t, true
	if d.waiting == 0 {
		return nil
	}
	return d.apply(setOn)
}

// beginWait begins a call that waits; endWait ends it.
func (d *deadline) beginWait(setOn func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.apply(setOn); err != nil {
		return err
	}
	d.waiting++
	return nil
}

func (d *deadline) endWait() {
	d.mu.Lock()
	d.waiting--
	d.mu.Unlock()
}

// apply sets the scheduled deadline on the connection, unless the present one is close enough. The
// caller holds mu.
func (d *deadline) apply(setOn func(time.Time) error) error {
	if !d.requested || d.known && closeEnough(d.set, d.wanted) {
		return nil
	}
	if err := setOn(d.wanted); err != nil {
		return err
	}
	d.set, d.known = d.wanted, true
	return nil
}

// closeEnough reports whether the deadline that is set can stay: it is the wanted one, or less than
// deadlineGrain earlier.
func closeEnough(set, wanted time.Time) bool {
	if set.IsZero() || wanted.IsZero() {
		return set.IsZero() && wanted.IsZero()
	}
	early := wanted.Sub(set)
	return early >= 0 && early < deadlineGrain
}
