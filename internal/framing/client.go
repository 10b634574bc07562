package framing

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
)

var (
	errRetired     = errors.New("framing: the connection accepts no more requests")
	errUnsolicited = errors.New("framing: the application sent data that belongs to no request")
)

// ClientConn is an HTTP/1.1 connection to an application. It sends a request only if the
// application has sent nothing since the last answer, and reads only the answer to that request.
// If no request may follow an answer, or if more bytes follow it, the next read returns io.EOF, so
// that net/http does not reuse the connection. An ambiguous answer is ErrFraming.
//
// One goroutine may read while another writes.
type ClientConn struct {
	net.Conn // TCP, or TLS over it
	socket   *socket
	secure   bool
	trust    *Trust

	mu      sync.Mutex
	open    bool // a request was begun, and its answer is not complete
	retired bool // no further request
	raw     bool // a tunnel
	req     requests
	ans     answers
}

// NewClientConn returns a connection over c, which has no TLS.
func NewClientConn(c net.Conn, trust *Trust) *ClientConn {
	s := newSocket(c)
	return &ClientConn{Conn: s.Conn, socket: s, trust: trust}
}

// Secure returns a TLS client over c. The caller completes the handshake and then calls
// NewSecureConn, unless both sides agreed on HTTP/2.
func Secure(c net.Conn, config *tls.Config) *tls.Conn { return tls.Client(newSocket(c), config) }

// NewSecureConn returns a connection over a TLS client of Secure, after its handshake.
func NewSecureConn(c *tls.Conn, trust *Trust) *ClientConn {
	s, ok := c.NetConn().(*socket)
	if !ok {
		s = &socket{Conn: c.NetConn()} // cannot peek: the connection is never known to be idle
	}
	return &ClientConn{Conn: c, socket: s, secure: true, trust: trust}
}

// Reusable reports whether the connection may carry another request.
func (c *ClientConn) Reusable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.open && !c.retired && !c.raw
}

// Write implements net.Conn. If it fails before the first byte of a request, nothing of the request
// was sent.
func (c *ClientConn) Write(p []byte) (int, error) {
	if err := c.beginRequest(p); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// SendRequest writes a whole request without a body, and returns when the answer begins. Without
// TLS, it costs less than Write followed by Read. p must hold exactly the request. The errors are
// those of Write and of waiting, such as a timeout. No other call may wait for the connection at
// the same time.
func (c *ClientConn) SendRequest(p []byte) error {
	if c.secure {
		_, err := c.Write(p)
		return err
	}
	c.mu.Lock()
	err := c.trackRequest(p)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	sent, st, err := c.socket.sendAndWait(p)
	if st != noData {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open = false
		return c.failIdle(st)
	}
	if err == nil && sent < len(p) {
		_, err = c.Conn.Write(p[sent:])
	}
	return err
}

func (c *ClientConn) beginRequest(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw {
		return nil
	}
	if c.req.atBoundary() && !c.retired && !c.open {
		// A new TLS connection may have received session tickets.
		if st := c.socket.peek(); st != noData && (c.ans.reused || !c.secure) {
			return c.failIdle(st)
		}
	}
	return c.trackRequest(p)
}

// failIdle retires a connection on which the application sent bytes, or which it closed, while no
// request was open.
func (c *ClientConn) failIdle(st state) error {
	c.retire(st == hasData && !c.secure && !isTimeout(c.socket.peeked[:c.socket.n]))
	return errUnsolicited
}

// trackRequest tracks the bytes of a request before they are written. The caller holds mu.
func (c *ClientConn) trackRequest(p []byte) error {
	if c.req.atBoundary() {
		if c.retired || c.open {
			c.retired = true
			return errRetired
		}
		c.open = true
		c.ans.begin()
	}
	if c.req.scan(p) < len(p) || c.req.at == inRaw {
		c.retired = true
		return ErrFraming
	}
	c.ans.head, c.ans.upgrade = c.req.head, c.req.upgrade
	return nil
}

// retire ensures that the connection carries no further request. unsolicited means that the reason
// is bytes that belong to no request.
func (c *ClientConn) retire(unsolicited bool) {
	c.retired = true
	if unsolicited {
		c.trust.revoke()
	}
}

// Read implements net.Conn.
func (c *ClientConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := c.waitForAnswer(); err != nil {
		return 0, err
	}
	// The status line is returned whole, so that net/http has read nothing if it turns out
	// that the application closed the idle connection (408).
	for n := 0; ; {
		m, err := c.Conn.Read(p[n:])
		if m == 0 {
			return n, err
		}
		kept, unfinished, trackErr := c.trackAnswer(p[n : n+m])
		n += kept
		switch {
		case errors.Is(trackErr, errIdleTimeout):
			return 0, io.EOF
		case errors.Is(trackErr, ErrFraming):
			return 0, trackErr
		case trackErr != nil:
			return n, trackErr
		case !unfinished || err != nil || n == len(p):
			return n, err
		}
	}
}

// waitForAnswer returns when a request is open, so that the caller may read. If the connection
// receives anything while no request is open, it returns an error.
func (c *ClientConn) waitForAnswer() error {
	for {
		c.mu.Lock()
		if c.open || c.raw {
			c.mu.Unlock()
			return nil
		}
		if c.retired {
			c.mu.Unlock()
			return io.EOF
		}
		c.mu.Unlock()
		// Do not consume the bytes before it is known whether they belong to an answer.
		if err := c.socket.wait(); err != nil {
			return err
		}
		if err := c.checkIdle(); err != nil {
			return err
		}
	}
}

// checkIdle checks what an idle connection has received. It returns nil if the caller may read or
// should wait again.
func (c *ClientConn) checkIdle() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open || c.raw {
		return nil
	}
	if c.retired {
		return io.EOF
	}
	got, st := c.peek()
	switch {
	case st == noData && !c.ans.reused:
		return nil // a message of TLS itself
	case st == hasData:
		c.retire(!isTimeout(got))
		return errUnsolicited
	}
	c.retire(false)
	return io.EOF
}

// peek returns the first bytes that were received and not read. With TLS it consumes them, because
// TLS cannot peek. That does no harm: there must be none.
func (c *ClientConn) peek() ([]byte, state) {
	if !c.secure {
		st := c.socket.peek()
		return c.socket.peeked[:c.socket.n], st
	}
	var buf [16]byte
	c.socket.nonblocking = true
	n, err := c.Conn.Read(buf[:])
	c.socket.nonblocking = false
	switch {
	case n > 0:
		return buf[:n], hasData
	case errors.Is(err, errNothing{}):
		return nil, noData
	}
	return nil, peerClosed
}

// trackAnswer tracks received bytes. kept is how many of them belong to the answer. unfinished
// means that the status line is incomplete. io.EOF means that the connection ends after them.
func (c *ClientConn) trackAnswer(p []byte) (kept int, unfinished bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw {
		return len(p), false, nil
	}
	kept, done, err := c.ans.scan(p)
	if err != nil {
		c.retired = true
		return 0, false, err
	}
	if c.ans.at == inRaw {
		c.raw = true
		return kept, false, nil
	}
	if !done {
		return kept, c.ans.at == inStart && len(c.ans.lines.partial) > 0, nil
	}
	c.open, c.ans.reused = false, true
	if !c.ans.allowsNext() || !c.req.atBoundary() || c.trust.singleUse() {
		c.retire(false)
		return kept, false, io.EOF
	}
	// Without TLS, the socket is checked before the next request is written. With TLS,
	// bytes that are already decrypted can only be found now.
	rest, st := p[kept:], hasData
	switch {
	case len(rest) > 0:
	case c.secure:
		rest, st = c.peek()
	default:
		st = noData
	}
	if st != noData {
		c.retire(st == hasData && !isTimeout(rest))
		return kept, false, io.EOF
	}
	return kept, false, nil
}

// Close implements net.Conn. It resets a connection whose last answer is complete: nothing more is
// expected on it, and a reset frees its local address at once.
func (c *ClientConn) Close() error {
	c.mu.Lock()
	reset := c.retired && !c.open && c.req.atBoundary()
	c.mu.Unlock()
	if tcp, ok := c.socket.Conn.(interface{ SetLinger(sec int) error }); ok && reset {
		_ = tcp.SetLinger(0) // if this fails, the connection is closed without a reset
	}
	return c.Conn.Close()
}
