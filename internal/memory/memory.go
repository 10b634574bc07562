// Package memory bounds how much memory the bodies of requests, or large answers of data sources, take
// together. Each tenant may take a part of it, so that one tenant leaves memory to the others.
package memory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrFull is the error for a request that found no memory free in time.
var ErrFull = errors.New("memory: the other requests hold it all")

// Pool is a number of bytes that requests share.
//
// A request that finds no free memory waits. Freed memory goes to the holders in turn, and within a holder
// to the request that has waited longest. While a request waits for the whole pool, no other one
// overtakes it, so a large request gets its turn among many small ones. A holder whose own part is
// full does not hold up the others.
type Pool struct {
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

// New returns a Pool of total bytes, of which one holder may take part. A request waits for at most
// wait.
func New(total, part int64, wait time.Duration) *Pool {
	return &Pool{total: total, part: min(part, total), wait: wait, holders: map[string]*holder{}}
}

// Take takes n bytes for a holder until release is called. strangers limits the holder to a quarter
// of a part, for requests without a credential. A request for more than its holder may have at all
// takes what the holder may have. Errors: ErrFull, or ctx's own.
func (p *Pool) Take(ctx context.Context, name string, n int64, strangers bool) (release func(), err error) {
	part := p.part
	if strangers {
		part /= 4
	}
	n = min(n, part)
	p.mu.Lock()
	h := p.holders[name]
	if h == nil {
		h = &holder{name: name, part: part}
		p.holders[name] = h
	}
	if len(p.ring) == 0 && p.fits(h, n) {
		p.grant(h, n)
		p.mu.Unlock()
		return func() { p.free(h, n) }, nil
	}
	req := &request{bytes: n, granted: make(chan struct{})}
	if len(h.queue) == 0 {
		p.ring = append(p.ring, h)
	}
	h.queue = append(h.queue, req)
	p.serve()
	p.mu.Unlock()
	return p.await(ctx, h, req)
}

// await waits for the memory of a queued request.
func (p *Pool) await(ctx context.Context, h *holder, req *request) (release func(), err error) {
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	select {
	case <-req.granted:
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = ErrFull
	}
	if err == nil {
		return func() { p.free(h, req.bytes) }, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-req.granted: // granted meanwhile
		p.giveBack(h, req.bytes)
	default:
		h.queue = slices.DeleteFunc(h.queue, func(q *request) bool { return q == req })
		if len(h.queue) == 0 {
			p.ring = slices.DeleteFunc(p.ring, func(o *holder) bool { return o == h })
		}
	}
	p.serve() // those behind it may fit
	p.drop(h)
	return nil, err
}

// fits reports whether n bytes are free for a holder. The caller holds mu.
func (p *Pool) fits(h *holder, n int64) bool {
	return h.taken+n <= h.part && p.taken+n <= p.total
}

func (p *Pool) grant(h *holder, n int64) {
	h.taken += n
	p.taken += n
}

func (p *Pool) giveBack(h *holder, n int64) {
	h.taken -= n
	p.taken -= n
}

func (p *Pool) free(h *holder, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveBack(h, n)
	p.serve()
	p.drop(h)
}

// serve grants what fits, one request of each holder in turn. The caller holds mu.
func (p *Pool) serve() {
	for passed := 0; passed < len(p.ring); {
		h := p.ring[0]
		next := h.queue[0]
		switch {
		case h.taken+next.bytes > h.part: // only its own requests can free some
			passed++
		case p.taken+next.bytes > p.total:
			return
		default:
			passed = 0
			p.grant(h, next.bytes)
			h.queue = h.queue[1:]
			close(next.granted)
		}
		p.ring = append(p.ring[1:], h)
		if len(h.queue) == 0 {
			p.ring = p.ring[:len(p.ring)-1]
		}
	}
}

// drop removes a holder without memory and requests. The caller holds mu.
func (p *Pool) drop(h *holder) {
	if h.taken == 0 && len(h.queue) == 0 {
		delete(p.holders, h.name)
	}
}

// Taken returns how many bytes are taken.
func (p *Pool) Taken() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
