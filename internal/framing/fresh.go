package framing

import (
	"context"
	"net"
	"sync"
	"time"
)

// freshTimeout is how long a stop waits for first requests. Some clients connect and ask
// nothing.
const freshTimeout = time.Second

// FreshConns are a server's connections of which no request was read. net/http closes
// them without an answer if it reads their request after Shutdown began.
type FreshConns struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// Note is for an http.Server's ConnState; fresh says that the state is http.StateNew.
func (f *FreshConns) Note(c net.Conn, fresh bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !fresh {
		delete(f.open, c)
		return
	}
	if f.open == nil {
		f.open = map[net.Conn]struct{}{}
	}
	f.open[c] = struct{}{}
}

// Drain makes the listener deaf (the function Drain) and waits for the connections that
// are on their way, until there has been no fresh one for DrainTime. It returns after a
// second at most, when ctx ends, and at once where the system cannot drain a listener.
func (f *FreshConns) Drain(ctx context.Context, l net.Listener) {
	if !Drain(l) {
		return
	}
	const step = DrainTime / 5
	ticks := time.NewTicker(step)
	defer ticks.Stop()
	quiet := time.Duration(0)
	for waited := time.Duration(0); quiet < DrainTime && waited < freshTimeout; waited += step {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if quiet += step; f.any() {
			quiet = 0
		}
	}
}

func (f *FreshConns) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open) > 0
}
