package lockout

import (
	"testing"
	"time"
)

func TestReserve(t *testing.T) {
	now := time.Unix(1e9, 0)
	var a Attempt
	for i := range 10 {
		var locked bool
		if a, locked = a.reserve(now.Add(time.Duration(i)*time.Minute), 10); locked {
			t.Fatalf("locked at guess %d", i+1)
		}
	}
	end := now.Add(9*time.Minute + LockTime)
	if _, locked := a.reserve(end.Add(-1), 10); !locked {
		t.Error("not locked after ten")
	}
	if a, _ = a.reserve(end.Add(-1), 10); !a.LockedUntil.Equal(end) {
		t.Error("trying while locked makes the lock longer")
	}
	if a, locked := a.reserve(end, 10); locked || a.Failures != 1 {
		t.Errorf("after the lock: %+v, %v", a, locked)
	}
	a = Attempt{Failures: 9, Since: now}
	if a, _ := a.reserve(now.Add(Window), 10); a.Failures != 1 {
		t.Errorf("after the window: %+v", a)
	}
}

// TestNetworksAreSlowedNotLocked: the pause of a network grows with its failures up to a limit, and a
// flood of failures does not fill the audit.
func TestNetworksAreSlowedNotLocked(t *testing.T) {
	if NetworkDelay(0) != 0 || NetworkDelay(AddressGuesses-1) != 0 || NetworkDelay(AddressGuesses) <= 0 || NetworkDelay(1_000_000) != LongestPause {
		t.Errorf("pauses of %s, %s, %s", NetworkDelay(0), NetworkDelay(AddressGuesses), NetworkDelay(1_000_000))
	}
	written := 0
	for n := range int64(10_000) {
		if RecordsFailure(n + 1) {
			written++
		}
	}
	if written > AddressGuesses+100 || !RecordsFailure(1) {
		t.Errorf("%d of 10000 failures are written", written)
	}
}

// TestLobby: one network cannot take the seats of others.
func TestLobby(t *testing.T) {
	var l Limiter
	for range MaxInNetwork {
		if !l.Acquire("a", MaxInNetwork) {
			t.Fatal("no seat")
		}
	}
	if l.Acquire("a", MaxInNetwork) || !l.Acquire("b", MaxInNetwork) {
		t.Error("one network has the seats of another")
	}
	l.Release("a")
	if !l.Acquire("a", MaxInNetwork) {
		t.Error("a seat was not given back")
	}
}
