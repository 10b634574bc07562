package framing

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
)

var (
	errSpent   = errors.New("framing: the connection accepts no more requests")
	errUnasked = errors.New("framing: the application sent data that no request asked for")
)

// ClientConn is an HTTP/1.1 connection to an application. A request is written on it
// only while it is provably silent, and what is read from it is the answer to that
// request: after the last byte of an answer that another may not follow, or behind
// which more bytes came, it reads io.EOF, so that net/http does not use it again. An
// ambiguous answer is ErrFraming.
//
// One goroutine may read while another writes.
type ClientConn struct {
	net.Conn // TCP, or TLS over it
	socket   *socket
	secure   bool
	trust    *Trust

	mu    sync.Mutex
	open  bool // a request was begun, and its answer is not complete
	spent bool // no further request
	raw   bool // a tunnel
	req   requests
	ans   answers
}

// NewClientConn is the connection c without TLS.
func NewClientConn(c net.Conn, trust *Trust) *ClientConn {
	s := newSocket(c)
	return &ClientConn{Conn: s.Conn, socket: s, trust: trust}
}

// Secure begins TLS on c. The caller completes the handshake, and takes
// NewSecureConn unless that agreed on HTTP/2.
func Secure(c net.Conn, config *tls.Config) *tls.Conn { return tls.Client(newSocket(c), config) }

// NewSecureConn is a connection of Secure's after its handshake.
func NewSecureConn(c *tls.Conn, trust *Trust) *ClientConn {
	s, ok := c.NetConn().(*socket)
	if !ok {
		s = &socket{Conn: c.NetConn()} // cannot be looked at: one request alone
	}
	return &ClientConn{Conn: c, socket: s, secure: true, trust: trust}
}

// Reusable reports whether a further request may be tried.
func (c *ClientConn) Reusable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.open && !c.spent && !c.raw
}

// Write implements net.Conn. An error before the first byte of a request means that
// nothing of it was sent.
func (c *ClientConn) Write(p []byte) (int, error) {
	if err := c.begin(p); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Ask writes a whole request that has no body, and returns once the answer begins. It is
// Write and the wait of Read in one, for connections without TLS, and costs less. The
// request must be all that p holds. Its errors are those of Write, and a timeout or the
// like of the wait. No other call may wait for the connection meanwhile.
func (c *ClientConn) Ask(p []byte) error {
	if c.secure {
		_, err := c.Write(p)
		return err
	}
	c.mu.Lock()
	err := c.enter(p)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	sent, st, err := c.socket.ask(p)
	if st != silent {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open = false
		return c.disturbed(st)
	}
	if err == nil && sent < len(p) {
		_, err = c.Conn.Write(p[sent:])
	}
	return err
}

func (c *ClientConn) begin(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw {
		return nil
	}
	if c.req.between() && !c.spent && !c.open {
		// A fresh TLS connection has received session tickets.
		if st := c.socket.peek(); st != silent && (c.ans.reused || !c.secure) {
			return c.disturbed(st)
		}
	}
	return c.enter(p)
}

// disturbed ends a connection that received something, or its end, at rest.
func (c *ClientConn) disturbed(st state) error {
	c.end(st == speaking && !c.secure && !isTimeout(c.socket.peeked[:c.socket.n]))
	return errUnasked
}

// enter follows bytes of a request that are about to be written. Caller holds mu.
func (c *ClientConn) enter(p []byte) error {
	if c.req.between() {
		if c.spent || c.open {
			c.spent = true
			return errSpent
		}
		c.open = true
		c.ans.begin()
	}
	if c.req.scan(p) < len(p) || c.req.at == inRaw {
		c.spent = true
		return ErrFraming
	}
	c.ans.head, c.ans.upgrade = c.req.head, c.req.upgrade
	return nil
}

// end makes the connection take no further request; unasked when that is because
// of bytes that belong to none.
func (c *ClientConn) end(unasked bool) {
	c.spent = true
	if unasked {
		c.trust.lose()
	}
}

// Read implements net.Conn.
func (c *ClientConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := c.await(); err != nil {
		return 0, err
	}
	// The status line is handed over whole, so that a connection which the application
	// gave up is one on which nothing was read.
	for n := 0; ; {
		m, err := c.Conn.Read(p[n:])
		if m == 0 {
			return n, err
		}
		kept, unfinished, taken := c.take(p[n : n+m])
		n += kept
		switch {
		case errors.Is(taken, errIdleTimeout):
			return 0, io.EOF
		case errors.Is(taken, ErrFraming):
			return 0, taken
		case taken != nil:
			return n, taken
		case !unfinished || err != nil || n == len(p):
			return n, err
		}
	}
}

// await returns once there may be something to read that was asked for.
func (c *ClientConn) await() error {
	for {
		c.mu.Lock()
		if c.open || c.raw {
			c.mu.Unlock()
			return nil
		}
		if c.spent {
			c.mu.Unlock()
			return io.EOF
		}
		c.mu.Unlock()
		// The bytes are not taken before it is known whether they were asked for.
		if err := c.socket.wait(); err != nil {
			return err
		}
		if err := c.woken(); err != nil {
			return err
		}
	}
}

// woken says whose the bytes are that a connection at rest received.
func (c *ClientConn) woken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open || c.raw {
		return nil
	}
	if c.spent {
		return io.EOF
	}
	got, st := c.peek()
	switch {
	case st == silent && !c.ans.reused:
		return nil // TLS spoke to itself
	case st == speaking:
		c.end(!isTimeout(got))
		return errUnasked
	}
	c.end(false)
	return io.EOF
}

// peek looks at what was received and not been read. Of TLS it takes the bytes:
// they could not be looked at otherwise, and there must be none.
func (c *ClientConn) peek() ([]byte, state) {
	if !c.secure {
		st := c.socket.peek()
		return c.socket.peeked[:c.socket.n], st
	}
	var buf [16]byte
	c.socket.probed = true
	n, err := c.Conn.Read(buf[:])
	c.socket.probed = false
	switch {
	case n > 0:
		return buf[:n], speaking
	case errors.Is(err, errNothing{}):
		return nil, silent
	}
	return nil, ended
}

// take follows bytes that were read. kept is how many of them belong to the answer;
// unfinished says that its status line is; io.EOF ends the connection behind them.
func (c *ClientConn) take(p []byte) (kept int, unfinished bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw {
		return len(p), false, nil
	}
	kept, done, err := c.ans.scan(p)
	if err != nil {
		c.spent = true
		return 0, false, err
	}
	if c.ans.at == inRaw {
		c.raw = true
		return kept, false, nil
	}
	if !done {
		return kept, c.ans.at == inStart && len(c.ans.lines.part) > 0, nil
	}
	c.open, c.ans.reused = false, true
	if !c.ans.again() || !c.req.between() || c.trust.once() {
		c.end(false)
		return kept, false, io.EOF
	}
	// What the socket holds is looked at before the next request is written; what TLS
	// holds can only be read now.
	rest, st := p[kept:], speaking
	switch {
	case len(rest) > 0:
	case c.secure:
		rest, st = c.peek()
	default:
		st = silent
	}
	if st != silent {
		c.end(st == speaking && !isTimeout(rest))
		return kept, false, io.EOF
	}
	return kept, false, nil
}

// Close implements net.Conn. A connection whose last answer is complete is reset:
// the application has nothing to say on it any more, and its address is free for
// another at once.
func (c *ClientConn) Close() error {
	c.mu.Lock()
	reset := c.spent && !c.open && c.req.between()
	c.mu.Unlock()
	if tcp, ok := c.socket.Conn.(interface{ SetLinger(sec int) error }); ok && reset {
		_ = tcp.SetLinger(0) // it ends in either case
	}
	return c.Conn.Close()
}
