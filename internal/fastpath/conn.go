package fastpath

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
)

// room is the size of a connection's buffer, in bytes. Requests whose header and body do not fit go
// to net/http.
const room = 8 << 10

// The states of a connection. Only a resting connection may be closed by another goroutine.
const (
	resting int32 = iota
	working
	released
)

// conn is a connection that the fast path serves.
type conn struct {
	net.Conn
	l     *Listener
	state atomic.Int32
	until time.Time // the current deadline
	buf   []byte    // what was read and not answered yet; begins with a request
	head  head
	body  body
	blank *http.Request // the parts that all requests of the connection share
	req   http.Request
	out   answer
}

func newConn(l *Listener, nc net.Conn) *conn {
	blank := (&http.Request{
		Method: http.MethodPost, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: nc.RemoteAddr().String(), TLS: framing.TLSState(nc),
	}).WithContext(l.ctx)
	return &conn{Conn: nc, l: l, buf: make([]byte, 0, room), blank: blank, head: head{header: http.Header{}}, out: answer{header: http.Header{}}}
}

// serve answers requests until the connection ends or goes to net/http.
func (c *conn) serve() {
	keep := c.run()
	c.l.forget(c)
	if !keep || !c.handOver() {
		_ = c.Close() // the peer may have closed it before
	}
}

// run answers requests. It returns true if the connection goes to net/http, and false if it ends.
func (c *conn) run() bool {
	c.setDeadline(c.l.Now().Add(c.l.First))
	for {
		if len(c.buf) == 0 {
			if !c.waitForRequest() {
				return false
			}
		}
		if !c.head.parse(c.buf, c.l.Brief) || c.head.size+c.head.length > cap(c.buf) {
			return true
		}
		whole := c.head.size + c.head.length
		if whole > len(c.buf) && !c.readBody(whole) {
			return false
		}
		if !c.answer() {
			return false
		}
		c.buf = c.buf[:copy(c.buf, c.buf[whole:])]
	}
}

// waitForRequest waits for the next request. It returns false if the connection has ended.
func (c *conn) waitForRequest() bool {
	c.state.Store(resting)
	if c.l.closing() {
		return false
	}
	n, err := c.Read(c.buf[:cap(c.buf)])
	if n == 0 || !c.state.CompareAndSwap(resting, working) {
		return false
	}
	c.buf = c.buf[:n]
	now := c.l.moment.Load().at
	if left := c.until.Sub(now); left < c.l.Idle*3/4 || left > c.l.Idle+grain {
		c.setDeadline(now.Add(c.l.Idle + grain)) // only now and then: setting a deadline costs as much as parsing a header
	}
	return err == nil
}

// release closes the connection if it is resting.
func (c *conn) release() {
	if c.state.CompareAndSwap(resting, released) {
		_ = c.Close()
	}
}

// readBody reads the rest of a body, until the buffer holds whole bytes. The answer, and the rest before
// the next request, then have as much time as after a body that arrived with its header.
func (c *conn) readBody(whole int) bool {
	c.setDeadline(c.l.Now().Add(c.l.Body))
	n, err := io.ReadFull(c.Conn, c.buf[len(c.buf):whole])
	c.buf = c.buf[:len(c.buf)+n]
	c.setDeadline(c.l.Now().Add(c.l.Idle))
	return err == nil
}

// setDeadline sets the deadline of all reads and writes.
func (c *conn) setDeadline(t time.Time) {
	c.until = t
	_ = c.SetDeadline(t) // a closed connection fails at the next read
}

// answer serves the request at the beginning of the buffer. It returns false if the connection must
// end.
func (c *conn) answer() (keep bool) {
	h := &c.head
	c.body.rest = c.buf[h.size : h.size+h.length]
	c.req = *c.blank
	c.req.URL, c.req.RequestURI, c.req.Host = &h.url, h.target, h.host
	c.req.Header, c.req.Body, c.req.ContentLength = h.header, &c.body, int64(h.length)
	c.out.reset(c.l.moment.Load().date)
	if !c.handle() {
		return false
	}
	last := c.l.closing()
	_, err := c.Write(c.out.finish(last))
	return err == nil && !c.out.last
}

// handle calls the handler. It returns false if the handler panicked; then its answer is not sent.
func (c *conn) handle() (ok bool) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		ok = false
		if err, isErr := p.(error); !isErr || !errors.Is(err, http.ErrAbortHandler) {
			c.l.Panics.Count("connection")
			c.l.Log.Error("request failed", "path", c.head.url.Path, "error", fmt.Sprintf("panic: %s\n%s", fault.DescribePanic(p), debug.Stack()))
		}
	}()
	c.l.Handler.ServeHTTP(&c.out, &c.req)
	return true
}

// handOver gives the connection to net/http, with everything that was read and not answered. It
// returns false if the listener is closed. The two parsers cannot disagree about where a request
// ends, because the fast path serves only requests of one simple form.
func (c *conn) handOver() bool {
	c.setDeadline(time.Time{})
	return c.l.passOn(accepted{conn: framing.NewServerConn(c.Conn, append([]byte(nil), c.buf...))})
}

// body is the body of a request, which is in memory already.
type body struct{ rest []byte }

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if len(b.rest) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.rest = nil
	return nil
}
