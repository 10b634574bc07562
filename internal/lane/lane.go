// Package lane serves the short requests of kept connections, one after the
// other and without what net/http prepares for each: it is for operations that
// answer at once, from memory, where HTTP itself is half of what a request
// costs. It takes requests of the plainest form only, whole and unambiguous
// (RFC 9112); with the first one that is anything else, the connection goes to
// net/http as it came, and stays there.
package lane

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

// Config says what is served, and under which deadlines.
type Config struct {
	// Handler answers the requests. It may keep neither the request nor what
	// hangs on it, but for strings; the request's context ends with Wait, not
	// when its caller goes away.
	Handler http.Handler
	// Brief reports whether a POST to a path, without its query, is answered at
	// once. All others are net/http's.
	Brief func(path string) bool
	// First bounds how long a new connection may say nothing, Body how long a
	// body may take once its header is there, Idle how long a kept connection
	// may rest, and an answer may wait to be taken.
	First, Body, Idle time.Duration
	// Now is the clock.
	Now func() time.Time
	Log *slog.Logger
	// Panics counts the panics of handlers.
	Panics *fault.Panics
}

// Listener is a net.Listener whose connections are those that the lane does not
// serve itself: give it to an http.Server.
type Listener struct {
	Config
	inner   net.Listener
	handed  chan accepted
	ending  chan struct{} // closed by Close
	end     sync.Once
	ctx     context.Context // that of the requests
	cancel  context.CancelFunc
	running sync.WaitGroup
	moment  atomic.Pointer[moment]

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// accepted is what Accept answers.
type accepted struct {
	conn net.Conn
	err  error
}

// grain is how far the time that the lane knows may lag behind: to look at the
// clock for each request would cost as much as reading its header.
const grain = time.Second

// moment is the time as the lane knows it.
type moment struct {
	at   time.Time
	date string // as the header Date has it
}

// Listen begins to serve the connections of l.
func Listen(l net.Listener, c Config) *Listener {
	out := &Listener{Config: c, inner: l, handed: make(chan accepted), ending: make(chan struct{}), conns: map[*conn]struct{}{}}
	out.ctx, out.cancel = context.WithCancel(context.Background())
	out.updateTime()
	out.running.Go(out.tick)
	out.running.Go(out.accept)
	return out
}

// Accept implements net.Listener: it answers the next connection for net/http.
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

// Close implements net.Listener: no further connection is taken, those that
// rest are closed, and the others end with the answer that they wait for.
func (l *Listener) Close() error {
	var err error
	l.end.Do(func() {
		close(l.ending)
		err = l.inner.Close()
		l.each((*conn).release)
	})
	return err
}

// Wait closes the listener and waits until what is served here has ended; what
// takes longer than grace is cut off. It answers the error of Close, if it is
// the first to call it.
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

// accept takes connections until the listener is closed. An error goes to
// net/http, which knows how long to wait before it asks again.
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

// passOn gives a connection or an error to net/http; false: nobody takes it any more.
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
	l.moment.Store(&moment{at: now, date: now.UTC().Format(http.TimeFormat)})
}
