// Package room bounds how much memory the bodies of requests, or large answers of data sources, take
// together. Each tenant may take a part of it, so that one tenant leaves room for the others.
package room

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrFull is the error for a request that found no room in time.
var ErrFull = errors.New("room: the other requests leave no room")

// Room is a number of bytes that requests share.
//
// A request that finds no room waits. Freed room goes to the holders in turn, and within a holder
// to the request that has waited longest. While a request waits for room in the whole, no other one
// overtakes it, so a large request gets its turn among many small ones. A holder whose own part is
// full does not hold up the others.
type Room struct {
	total, part int64
	wait        time.Duration

	mu      sync.Mutex
	taken   int64
	holders map[string]*holder
	ring    []*holder // those with waiting requests, the next one first
}

// holder is a tenant, with what its requests hold and which of them wait.
type holder struct {
	name  string
	part  int64
	taken int64
	queue []*request
}

// request is a request that waits.
type request struct {
	bytes   int64
	granted chan struct{}
}

// New returns a Room of total bytes, of which one holder may take part. A request waits for at most
// wait.
func New(total, part int64, wait time.Duration) *Room {
	return &Room{total: total, part: min(part, total), wait: wait, holders: map[string]*holder{}}
}

// Take takes n bytes for a holder until release is called. strangers limits the holder to a quarter
// of a part, for requests without a credential. A request for more than its holder may have at all
// takes what the holder may have. Errors: ErrFull, or ctx's own.
func (r *Room) Take(ctx context.Context, name string, n int64, strangers bool) (release func(), err error) {
	part := r.part
	if strangers {
		part /= 4
	}
	n = min(n, part)
	r.mu.Lock()
	h := r.holders[name]
	if h == nil {
		h = &holder{name: name, part: part}
		r.holders[name] = h
	}
	if len(r.ring) == 0 && r.fits(h, n) {
		r.grant(h, n)
		r.mu.Unlock()
		return func() { r.free(h, n) }, nil
	}
	req := &request{bytes: n, granted: make(chan struct{})}
	if len(h.queue) == 0 {
		r.ring = append(r.ring, h)
	}
	h.queue = append(h.queue, req)
	r.serve()
	r.mu.Unlock()
	return r.await(ctx, h, req)
}

// await waits for the room of a queued request.
func (r *Room) await(ctx context.Context, h *holder, req *request) (release func(), err error) {
	timer := time.NewTimer(r.wait)
	defer timer.Stop()
	select {
	case <-req.granted:
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = ErrFull
	}
	if err == nil {
		return func() { r.free(h, req.bytes) }, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-req.granted: // granted meanwhile
		r.giveBack(h, req.bytes)
	default:
		h.queue = slices.DeleteFunc(h.queue, func(q *request) bool { return q == req })
		if len(h.queue) == 0 {
			r.ring = slices.DeleteFunc(r.ring, func(o *holder) bool { return o == h })
		}
	}
	r.serve() // those behind it may fit
	r.drop(h)
	return nil, err
}

// fits reports whether n bytes are free for a holder. The caller holds mu.
func (r *Room) fits(h *holder, n int64) bool {
	return h.taken+n <= h.part && r.taken+n <= r.total
}

func (r *Room) grant(h *holder, n int64) {
	h.taken += n
	r.taken += n
}

func (r *Room) giveBack(h *holder, n int64) {
	h.taken -= n
	r.taken -= n
}

func (r *Room) free(h *holder, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveBack(h, n)
	r.serve()
	r.drop(h)
}

// serve grants what fits, one request of each holder in turn. The caller holds mu.
func (r *Room) serve() {
	for passed := 0; passed < len(r.ring); {
		h := r.ring[0]
		next := h.queue[0]
		switch {
		case h.taken+next.bytes > h.part: // only its own requests can make room
			passed++
		case r.taken+next.bytes > r.total:
			return
		default:
			passed = 0
			r.grant(h, next.bytes)
			h.queue = h.queue[1:]
			close(next.granted)
		}
		r.ring = append(r.ring[1:], h)
		if len(h.queue) == 0 {
			r.ring = r.ring[:len(r.ring)-1]
		}
	}
}

// drop removes a holder without room and requests. The caller holds mu.
func (r *Room) drop(h *holder) {
	if h.taken == 0 && len(h.queue) == 0 {
		delete(r.holders, h.name)
	}
}

// Taken returns how many bytes are taken.
func (r *Room) Taken() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}
