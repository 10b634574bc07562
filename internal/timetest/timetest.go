// Package timetest gives tests a clock that they move, and waits for conditions.
package timetest

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// Clock is a clock that tests move. The zero value also runs on its own, as the wall clock does.
type Clock struct {
	mu    sync.Mutex
	at    time.Time // zero: the wall clock
	ahead time.Duration
}

// At returns a clock that only Move moves.
func At(at time.Time) *Clock { return &Clock{at: at} }

// Now returns the time of the clock, in UTC if it runs on its own.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Now().UTC().Add(c.ahead)
	}
	return c.at.Add(c.ahead)
}

// Move moves the clock forward.
func (c *Clock) Move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// Eventually calls check until it returns nil. After limit, it fails the test with the last error.
func Eventually(t testing.TB, limit time.Duration, check func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	over := time.After(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-over:
			t.Fatalf("not within %s: %v", limit, err)
		case <-tick.C:
		}
	}
}

// WaitFor waits until ok returns true. After 30 seconds, it fails the test and names what it waited for.
func WaitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Eventually(t, 30*time.Second, func() error {
		if ok() {
			return nil
		}
		return fmt.Errorf("waiting for %s", what)
	})
}
