package framing

import (
	"context"
	"net"
	"sync"
	"time"
)

// freshTimeout limits how long a stop waits for first requests, because some clients connect and
// send nothing.
const freshTimeout = time.Second

// FreshConns are the connections of a server on which no request has been read yet. After Shutdown,
// net/http closes them without an answer, even if a request arrives.
type FreshConns struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// Note records a change of state; call it from the ConnState of an http.Server. fresh means that
// the state is http.StateNew.
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

// Drain stops new handshakes (see the function Drain) and waits until there has been no fresh
// connection for DrainTime. It waits for at most a second and ends with ctx. It returns at once if
// the system cannot drain a listener.
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
		if quiet += step; f.hasAny() {
			quiet = 0
		}
	}
}

func (f *FreshConns) hasAny() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open) > 0
}
