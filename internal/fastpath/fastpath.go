// Package fastpath serves short requests on kept connections, one after another, without the work that
// net/http does for each request. It is for operations that answer at once from memory, where HTTP
// itself is half of the cost of a request. It accepts only complete, unambiguous requests of the
// simplest form (RFC 9112). At the first request that has any other form, the connection goes to
// net/http with that request, and stays there.
package fastpath

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
)

// Config says what is served, and with which deadlines.
type Config struct {
	// Handler answers the requests. It must not keep the request or anything that belongs to it,
	// except strings. The context of a request ends with Wait, not when the client disconnects.
	Handler http.Handler
	// Brief reports whether a POST to a path, without its query, is answered at once. All other
	// requests go to net/http.
	Brief func(path string) bool
	// First is how long a new connection may be silent. Body is how long a body may take after its
	// header. Idle is how long a kept connection may rest, and how long the client may take to read
	// an answer.
	First, Body, Idle time.Duration
	// Now returns the current time.
	Now func() time.Time
	Log *slog.Logger
	// Panics counts the panics of handlers.
	Panics *fault.Panics
}

// Listener is a net.Listener for an http.Server. It accepts the connections that the fast path does not
// serve itself.
type Listener struct {
	Config
	inner   net.Listener
	handed  chan accepted
	ending  chan struct{} // closed by Close
	end     sync.Once
	ctx     context.Context // the context of all requests
	cancel  context.CancelFunc
	running sync.WaitGroup
	moment  atomic.Pointer[cachedTime]

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// accepted is a result of Accept.
type accepted struct {
	conn net.Conn
	err  error
}

// grain is how far the time of the fast path may lag behind the clock. Reading the clock for each
// request would cost as much as reading its header.
const grain = time.Second

// cachedTime is the time that the fast path uses.
type cachedTime struct {
	at   time.Time
	date string // the value of the header Date
}

// Listen starts to serve the connections of l.
func Listen(l net.Listener, c Config) *Listener {
	out := &Listener{Config: c, inner: l, handed: make(chan accepted), ending: make(chan struct{}), conns: map[*conn]struct{}{}}
	out.ctx, out.cancel = context.WithCancel(context.Background())
	out.updateTime()
	out.running.Go(out.tick)
	out.running.Go(out.accept)
	return out
}

// Accept implements net.Listener. It returns the next connection for net/http.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.handed:
		return a.conn, a.err
	case <-l.ending:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Close implements net.Listener. It accepts no more connections and closes resting ones. The others
// end after their current answer.
func (l *Listener) Close() error {
	var err error
	l.end.Do(func() {
		close(l.ending)
		err = l.inner.Close()
		l.each((*conn).release)
	})
	return err
}

// Wait closes the listener and waits until the connections of the fast path have ended. After grace it
// closes those that remain. It returns the error of Close if it is the first to call it.
func (l *Listener) Wait(grace time.Duration) error {
	err := l.Close()
	cut := time.AfterFunc(grace, func() {
		l.cancel()
		l.each(func(c *conn) { _ = c.Close() })
	})
	defer cut.Stop()
	l.running.Wait()
	l.cancel()
	return err
}

func (l *Listener) each(do func(*conn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		do(c)
	}
}

// accept accepts connections until the listener is closed. Errors go to net/http, which waits
// before it calls Accept again.
func (l *Listener) accept() {
	for {
		nc, err := l.inner.Accept()
		if err != nil {
			if !l.passOn(accepted{err: err}) {
				return
			}
			continue
		}
		if framing.SpeaksHTTP2(nc) {
			if !l.passOn(accepted{conn: nc}) {
				_ = nc.Close()
				return
			}
			continue
		}
		c := newConn(l, nc)
		l.mu.Lock()
		l.conns[c] = struct{}{}
		l.mu.Unlock()
		l.running.Go(c.serve)
	}
}

// passOn gives a connection or an error to net/http. It returns false if the listener is closed.
func (l *Listener) passOn(a accepted) bool {
	select {
	case l.handed <- a:
		return true
	case <-l.ending:
		return false
	}
}

func (l *Listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

func (l *Listener) closing() bool {
	select {
	case <-l.ending:
		return true
	default:
		return false
	}
}

func (l *Listener) tick() {
	t := time.NewTicker(grain)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			l.updateTime()
		case <-l.ending:
			return
		}
	}
}

func (l *Listener) updateTime() {
	now := l.Now()
	l.moment.Store(&cachedTime{at: now, date: now.UTC().Format(http.TimeFormat)})
}
