package framing

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// countedDeadlines counts the deadlines that are set on a connection.
type countedDeadlines struct {
	net.Conn
	reads, writes atomic.Int64
	set           chan struct{} // if not nil, receives after each read deadline
}

func (c *countedDeadlines) SetReadDeadline(t time.Time) error {
	c.reads.Add(1)
	defer func() {
		if c.set != nil {
			c.set <- struct{}{}
		}
	}()
	return c.Conn.SetReadDeadline(t)
}

func (c *countedDeadlines) SetWriteDeadline(t time.Time) error {
	c.writes.Add(1)
	return c.Conn.SetWriteDeadline(t)
}

// countedPair returns a connection over TCP. The server's end counts its deadlines.
func countedPair(t *testing.T) (client net.Conn, server *countedDeadlines) {
	t.Helper()
	client, accepted := tcpPair(t)
	return client, &countedDeadlines{Conn: accepted}
}

// A deadline is set when a call begins to wait, and only if the present one is not close enough.
func TestDeadlineIsSetWhenSomethingWaits(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	for name, c := range map[string]struct {
		wanted []time.Time // before each of the calls that wait
		want   int
	}{
		"the same again":         {[]time.Time{at(time.Hour), at(time.Hour)}, 1},
		"a little later":         {[]time.Time{at(time.Hour), at(time.Hour + deadlineGrain - 1)}, 1},
		"later":                  {[]time.Time{at(time.Hour), at(time.Hour + deadlineGrain)}, 2},
		"earlier":                {[]time.Time{at(time.Hour), at(time.Hour - 1)}, 2},
		"removed":                {[]time.Time{at(time.Hour), {}, {}}, 2},
		"removed, and set again": {[]time.Time{at(time.Hour), {}, at(time.Hour)}, 3},
		"removed at first":       {[]time.Time{{}}, 1}, // an earlier owner of the connection may have set one
		"little by little":       {[]time.Time{at(time.Hour), at(time.Hour + deadlineGrain/2), at(time.Hour + deadlineGrain)}, 2},
	} {
		var d deadline
		var set []time.Time
		on := func(t time.Time) error { set = append(set, t); return nil }
		for _, w := range c.wanted {
			for _, t2 := range []time.Time{at(time.Minute), {}, w} { // the last one counts
				errtest.Must(t, d.schedule(t2, on))
			}
			before := len(set)
			errtest.Must(t, d.beginWait(on))
			d.endWait()
			if len(set) > before && !set[len(set)-1].Equal(w) {
				t.Errorf("%s: the deadline is %v, want %v", name, set[len(set)-1], w)
			}
		}
		if len(set) != c.want {
			t.Errorf("%s: %d deadlines were set, want %d", name, len(set), c.want)
		}
	}
}

// A new deadline ends calls that are already waiting. net/http ends its reads in this way.
func TestDeadlineEndsWaitingCalls(t *testing.T) {
	client, inner := countedPair(t)
	inner.set = make(chan struct{}, 10)
	c := NewServerConn(inner, nil)
	errtest.Must(t, c.SetReadDeadline(time.Time{}))
	failed := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		failed <- err
	}()
	<-inner.set // by Read, which waits from then on
	errtest.Must(t, c.SetReadDeadline(time.Unix(1, 0)))
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the read ended with %v, want ErrDeadlineExceeded", err)
	}
	errtest.Must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	errtest.Must(t, errtest.Of(io.WriteString(client, "GET / HTTP/1.1\r\n")))
	if n, err := c.Read(make([]byte, 100)); n == 0 || err != nil {
		t.Errorf("a read after a later deadline: %d bytes, %v, want some", n, err)
	}
	errtest.Must(t, c.SetWriteDeadline(time.Unix(1, 0)))
	if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write after its deadline: %v, want ErrDeadlineExceeded", err)
	}
}

// A deadline that was set before the connection was handed over is removed.
func TestEarlierDeadlineIsRemoved(t *testing.T) {
	client, inner := countedPair(t)
	errtest.Must(t, inner.SetReadDeadline(time.Unix(1, 0)))
	c := NewServerConn(inner, nil)
	errtest.Must(t, c.SetReadDeadline(time.Time{}))
	errtest.Must(t, errtest.Of(io.WriteString(client, "GET / HTTP/1.1\r\n")))
	if n, err := c.Read(make([]byte, 100)); n == 0 || err != nil {
		t.Errorf("a read without a deadline: %d bytes, %v, want some", n, err)
	}
}

// net/http sets eight deadlines for each request, and waits under three of them.
func TestDeadlinesOfOneRequest(t *testing.T) {
	client, inner := countedPair(t)
	handed := make(chan net.Conn, 1)
	handed <- NewServerConn(inner, nil)
	srv := &http.Server{
		IdleTimeout: time.Minute, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
			_, _ = io.WriteString(w, "ok")
		}),
	}
	l := &oneConn{conns: handed, closed: make(chan struct{}), addr: inner.LocalAddr()}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	defer func() { _ = srv.Close(); <-served }()
	const rounds = 20
	buf := make([]byte, 4096)
	for range rounds {
		errtest.Must(t, errtest.Of(io.WriteString(client, get)))
		if n, err := client.Read(buf); n == 0 || err != nil {
			t.Fatal(err)
		}
	}
	if n := inner.reads.Load(); n > 3*rounds+4 {
		t.Errorf("%d read deadlines are set for %d requests, want at most 3 each", n, rounds)
	}
	if n := inner.writes.Load(); n > rounds+4 { // on a slow machine each is later than the one before
		t.Errorf("%d write deadlines are set for %d requests, want at most one each", n, rounds)
	}
}

// oneConn is a listener that accepts what is in conns.
type oneConn struct {
	conns  chan net.Conn
	closed chan struct{}
	addr   net.Addr
	over   atomic.Bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	if !l.over.Swap(true) {
		close(l.closed)
	}
	return nil
}

func (l *oneConn) Addr() net.Addr { return l.addr }
