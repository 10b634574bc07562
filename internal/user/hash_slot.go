package user

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Bounds on waiting for a hash: how many wait, and for how long.
const (
	maxWaiting  = 256
	longestWait = 5 * time.Second
	// strangersShare: one of this many slots goes to a stranger, if one waits.
	strangersTurn = 4
)

// hashSlots limits how many hashes run at once. People who have signed in from their location before go
// first, so that a flood of strangers does not delay them.
type hashSlots struct {
	mu               sync.Mutex
	free             int
	served           int
	known, strangers []chan struct{}
}

// busy returns the fault for a caller who would have to wait too long.
func busy() error {
	return fault.New(fault.RateLimited, "too_many_sign_ins", "too many people are signing in; try again shortly").After(time.Second)
}

// acquire waits for a slot. If it returns nil, the caller must call release.
func (t *hashSlots) acquire(ctx context.Context, known bool) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	queue := &t.strangers
	if known {
		queue = &t.known
	}
	if len(*queue) >= maxWaiting {
		t.mu.Unlock()
		return busy()
	}
	mine := make(chan struct{})
	*queue = append(*queue, mine)
	t.mu.Unlock()

	longest := time.NewTimer(longestWait)
	defer longest.Stop()
	var err error
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-longest.C:
		err = busy()
	}
	t.mu.Lock()
	if i := slices.Index(*queue, mine); i >= 0 {
		*queue = slices.Delete(*queue, i, i+1)
		t.mu.Unlock()
		return err
	}
	t.mu.Unlock()
	t.release() // the turn was given just as the wait ended
	return err
}

// release passes the slot on.
func (t *hashSlots) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue := &t.known
	if len(t.known) == 0 || len(t.strangers) > 0 && t.served%strangersTurn == strangersTurn-1 {
		queue = &t.strangers
	}
	if len(*queue) == 0 {
		t.free++
		return
	}
	t.served++
	close((*queue)[0])
	*queue = slices.Delete(*queue, 0, 1)
}

// HashSlot is the right to compute one hash at a time. Call Release at its end.
type HashSlot struct {
	h *Hasher
}

// AcquireSlot waits for the right to hash. known is true for somebody who is signed in, or has signed in
// from their location before. Fault: RateLimited if the wait would be too long.
func (h *Hasher) AcquireSlot(ctx context.Context, known bool) (HashSlot, error) {
	return HashSlot{h}, h.slots.acquire(ctx, known)
}

// Release frees the slot.
func (t HashSlot) Release() { t.h.slots.release() }

// Verify reports whether password has this hash. An empty or unreadable hash takes as long as a
// real one and never matches. stale is true if the hash has another cost and should be renewed.
func (t HashSlot) Verify(hash, password string) (ok, stale bool) { return t.h.verify(hash, password) }

// Hash is Hasher.Hash within the slot.
func (t HashSlot) Hash(password string) (string, error) { return t.h.hash(password) }
