package framing

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"
)

// Listener accepts connections that refuse ambiguous requests. Connections with HTTP/2 are not
// changed.
type Listener struct{ net.Listener }

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if SpeaksHTTP2(c) {
		return c, nil
	}
	return NewServerConn(c, nil), nil
}

// SpeaksHTTP2 reports whether a TLS connection agreed on HTTP/2. net/http recognises such a
// connection by its type, and HTTP/2 has its own framing.
func SpeaksHTTP2(c net.Conn) bool {
	state := TLSState(c)
	return state != nil && state.NegotiatedProtocol == "h2"
}

// TLSState returns the state of a TLS connection, also below a ServerConn, where net/http does not
// find it. It returns nil for other connections. The handshake must be complete.
func TLSState(c net.Conn) *tls.ConnectionState {
	if strict, ok := c.(*ServerConn); ok {
		c = strict.Conn
	}
	secure, ok := c.(*tls.Conn)
	if !ok {
		return nil
	}
	state := secure.ConnectionState()
	return &state
}

// ServerConn is a connection of a client that refuses ambiguous requests: the server that reads it
// answers 400 and closes it.
type ServerConn struct {
	net.Conn
	raw      atomic.Bool
	bad      bool
	buffered []byte // was read off Conn before
	// unsentMalformed is the part of malformed that the server has not read yet.
	unsentMalformed string
	requests        requests

	reads, writes deadline
}

// NewServerConn returns a connection that checks the requests on c. buffered holds the bytes that
// were already read from c, from the first byte of a request; it may be empty.
func NewServerConn(c net.Conn, buffered []byte) *ServerConn {
	return &ServerConn{Conn: withDirectIO(c), buffered: buffered}
}

// Release ends the checks, because the connection becomes a tunnel.
func (c *ServerConn) Release() { c.raw.Store(true) }

// malformed is what the server reads in place of an ambiguous request, so that it answers 400. On
// a read error it would close the connection without an answer, and cancel the request that it is
// serving.
const malformed = "?\r\n\r\n"

// Read implements net.Conn.
func (c *ServerConn) Read(p []byte) (int, error) {
	if c.raw.Load() {
		return c.next(p)
	}
	if c.bad {
		return c.refuse(p)
	}
	inRequest := !c.requests.atBoundary()
	n, err := c.next(p)
	if n > 0 {
		if sound := c.requests.scan(p[:n]); sound < n && !c.raw.Load() {
			c.bad = true
			if sound > 0 || !inRequest {
				c.unsentMalformed = malformed
			}
			if sound == 0 {
				return c.refuse(p)
			}
			return sound, nil
		}
		if c.requests.at == inRaw {
			c.Release()
		}
	}
	return n, err
}

// next reads the buffered bytes, and then the connection.
func (c *ServerConn) next(p []byte) (int, error) {
	if len(c.buffered) == 0 {
		if err := c.reads.beginWait(c.Conn.SetReadDeadline); err != nil {
			return 0, err
		}
		defer c.reads.endWait()
		return c.Conn.Read(p)
	}
	n := copy(p, c.buffered)
	if c.buffered = c.buffered[n:]; len(c.buffered) == 0 {
		c.buffered = nil
	}
	return n, nil
}

func (c *ServerConn) refuse(p []byte) (int, error) {
	if c.unsentMalformed == "" {
		return 0, ErrFraming
	}
	n := copy(p, c.unsentMalformed)
	c.unsentMalformed = c.unsentMalformed[n:]
	return n, nil
}

// Write implements net.Conn.
func (c *ServerConn) Write(p []byte) (int, error) {
	if err := c.writes.beginWait(c.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	defer c.writes.endWait()
	return c.Conn.Write(p)
}

// SetDeadline implements net.Conn. A call may time out up to deadlineGrain early.
func (c *ServerConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *ServerConn) SetReadDeadline(t time.Time) error {
	return c.reads.schedule(t, c.Conn.SetReadDeadline)
}

// SetWriteDeadline implements net.Conn.
func (c *ServerConn) SetWriteDeadline(t time.Time) error {
	return c.writes.schedule(t, c.Conn.SetWriteDeadline)
}

// CloseWrite closes only the direction to the client. net/http does so before it closes a
// connection whose request it refused, so that the client can read the answer.
func (c *ServerConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
