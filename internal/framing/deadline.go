package framing

import (
	"sync"
	"time"
)

// deadlineGrain is how much earlier than asked for a deadline may come.
const deadlineGrain = 250 * time.Millisecond

// deadline is the deadline of one direction of a connection. It is set on the
// connection only when a call begins to wait under it. net/http changes the two of a
// connection eight times a request, mostly while nothing waits, and each change costs
// the runtime's timers.
type deadline struct {
	mu     sync.Mutex
	set    time.Time // on the connection
	known  bool      // whether set is
	wanted time.Time
	asked  bool // whether wanted was asked for
	under  int  // calls that wait
}

// want has calls that wait, and those that follow, end at t.
func (d *deadline) want(t time.Time, on func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted, d.asked = t, true
	if d.under == 0 {
		return nil
	}
	return d.apply(on)
}

// enter begins a call that waits; leave ends it.
func (d *deadline) enter(on func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.apply(on); err != nil {
		return err
	}
	d.under++
	return nil
}

func (d *deadline) leave() {
	d.mu.Lock()
	d.under--
	d.mu.Unlock()
}

// apply sets the deadline that is wanted, unless the one that is set is as good.
// Caller holds mu.
func (d *deadline) apply(on func(time.Time) error) error {
	if !d.asked || d.known && same(d.set, d.wanted) {
		return nil
	}
	if err := on(d.wanted); err != nil {
		return err
	}
	d.set, d.known = d.wanted, true
	return nil
}

// same reports whether a deadline that is set does for the one that is wanted: it
// is the same, or comes a little earlier.
func same(set, wanted time.Time) bool {
	if set.IsZero() || wanted.IsZero() {
		return set.IsZero() && wanted.IsZero()
	}
	early := wanted.Sub(set)
	return early >= 0 && early < deadlineGrain
}
