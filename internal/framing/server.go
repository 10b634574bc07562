package framing

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"
)

// Listener hands out connections that refuse ambiguous requests. Those of HTTP/2 come as
// they are.
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

// SpeaksHTTP2 reports whether a connection is one of TLS that agreed on HTTP/2. net/http
// takes it up by its type, and HTTP/2 has a framing of its own.
func SpeaksHTTP2(c net.Conn) bool {
	state := TLSState(c)
	return state != nil && state.NegotiatedProtocol == "h2"
}

// TLSState is what a TLS connection agreed on, also below a ServerConn, in which net/http
// does not see it. It is nil for other connections. The handshake must be over.
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

// ServerConn is a client's connection that refuses ambiguous requests: the server
// that reads it answers 400 and closes it.
type ServerConn struct {
	net.Conn
	raw  atomic.Bool
	bad  bool
	seen []byte // was read off Conn before
	// poison is what is left to say of nonsense.
	poison string
	follow requests

	reads, writes deadline
}

// NewServerConn checks the requests on c. seen is what was read off c before, from
// the first byte of a request.
func NewServerConn(c net.Conn, seen []byte) *ServerConn {
	return &ServerConn{Conn: directly(c), seen: seen}
}

// Release ends the checking: the connection is a tunnel from here on.
func (c *ServerConn) Release() { c.raw.Store(true) }

// nonsense is what the server gets in place of an ambiguous request of which
// it has seen nothing yet: it answers 400. An error would have it close the
// connection without a word, and end the request that it is busy with.
const nonsense = "?\r\n\r\n"

// Read implements net.Conn.
func (c *ServerConn) Read(p []byte) (int, error) {
	if c.raw.Load() {
		return c.next(p)
	}
	if c.bad {
		return c.refuse(p)
	}
	began := !c.follow.between()
	n, err := c.next(p)
	if n > 0 {
		if good := c.follow.scan(p[:n]); good < n && !c.raw.Load() {
			c.bad = true
			if good > 0 || !began {
				c.poison = nonsense
			}
			if good == 0 {
				return c.refuse(p)
			}
			return good, nil
		}
		if c.follow.at == inRaw {
			c.Release()
		}
	}
	return n, err
}

// next reads what was read before, and then the connection.
func (c *ServerConn) next(p []byte) (int, error) {
	if len(c.seen) == 0 {
		if err := c.reads.enter(c.Conn.SetReadDeadline); err != nil {
			return 0, err
		}
		defer c.reads.leave()
		return c.Conn.Read(p)
	}
	n := copy(p, c.seen)
	if c.seen = c.seen[n:]; len(c.seen) == 0 {
		c.seen = nil
	}
	return n, nil
}

func (c *ServerConn) refuse(p []byte) (int, error) {
	if c.poison == "" {
		return 0, ErrFraming
	}
	n := copy(p, c.poison)
	c.poison = c.poison[n:]
	return n, nil
}

// Write implements net.Conn.
func (c *ServerConn) Write(p []byte) (int, error) {
	if err := c.writes.enter(c.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	defer c.writes.leave()
	return c.Conn.Write(p)
}

// SetDeadline implements net.Conn. Deadlines may come up to deadlineGrain early.
func (c *ServerConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *ServerConn) SetReadDeadline(t time.Time) error {
	return c.reads.want(t, c.Conn.SetReadDeadline)
}

// SetWriteDeadline implements net.Conn.
func (c *ServerConn) SetWriteDeadline(t time.Time) error {
	return c.writes.want(t, c.Conn.SetWriteDeadline)
}

// CloseWrite ends what is written and leaves the rest to be read. net/http does so
// before it closes a connection whose request it refused: the peer sees the answer.
func (c *ServerConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
