package app

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestClockStep: deadlines from ticks do not move with the wall clock. A time from ticks has a
// monotonic reading, and so have sums of it. So a deadline from before the wall clock was set
// forward by an hour has not expired.
func TestClockStep(t *testing.T) {
	now := ticks()
	if wall := now.Round(0); now.String() == wall.String() {
		t.Fatal("a time from ticks has no monotonic reading")
	}
	if later := now.Add(time.Minute); later.String() == later.Round(0).String() {
		t.Fatal("a time from ticks plus a minute has no monotonic reading")
	}
	read := func(deadline time.Time) error {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		errtest.Must(t, a.SetReadDeadline(deadline))
		go func() { _, _ = b.Write([]byte("x")) }()
		_, err := a.Read(make([]byte, 1))
		return err
	}
	if err := read(ticks().Add(30 * time.Second)); err != nil {
		t.Errorf("read before a deadline from ticks, after the clock was set forward: %v", err)
	}
	// What a step of an hour would do to a deadline without the monotonic reading.
	if err := read(clock().Round(0).Add(30*time.Second - time.Hour)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read after a deadline of the wall clock that the step has passed: got %v, want os.ErrDeadlineExceeded", err)
	}
}
