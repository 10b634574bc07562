package app

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// TestClockStep: deadlines are set from ticks, and must not move with the wall
// clock. A moment of ticks carries the monotonic reading, and so do sums of it: a
// deadline set from one whose wall clock is an hour behind, as after a step
// forward, is not over.
func TestClockStep(t *testing.T) {
	now := ticks()
	if wall := now.Round(0); now.String() == wall.String() {
		t.Fatal("ticks drops the monotonic reading")
	}
	if later := now.Add(time.Minute); later.String() == later.Round(0).String() {
		t.Fatal("a sum drops the monotonic reading")
	}
	read := func(deadline time.Time) error {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		if err := a.SetReadDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = b.Write([]byte("x")) }()
		_, err := a.Read(make([]byte, 1))
		return err
	}
	if err := read(ticks().Add(30 * time.Second)); err != nil {
		t.Errorf("a deadline of ticks: %v", err)
	}
	// What a step of an hour would do to a deadline without the monotonic reading.
	if err := read(clock().Round(0).Add(30*time.Second - time.Hour)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline of the wall clock survives a step: %v", err)
	}
}
