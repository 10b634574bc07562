package framing

import (
	"net"
	"syscall"
)

// state is what a connection at rest has received.
type state int

const (
	silent   state = iota // nothing
	speaking              // bytes
	ended                 // its end, or an error
)

// socket is a TCP connection whose received bytes can be looked at, and whose
// reads can be kept from waiting.
type socket struct {
	net.Conn
	raw    syscall.RawConn
	probed bool // reads do not wait; only the goroutine that reads sets it

	// What peek found, for the caller that holds the lock of the connection.
	peeked [16]byte
	n      int
	state  state
	peeks  func(fd uintptr)

	// What ask sends, how much of it was sent, and why no more.
	asked  []byte
	sent   int
	failed error
	asks   func(fd uintptr) (done bool)
}

func newSocket(c net.Conn) *socket {
	s := &socket{Conn: directly(c)}
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	s.peeks = func(fd uintptr) { s.n, s.state = peekSocket(fd, s.peeked[:]) }
	s.asks = s.askOnce
	return s
}

// ask writes a request to a silent socket and waits until it has received something. st
// says what the socket had received before; unless that is silent, nothing was sent. sent
// may be less than the length of p if the socket takes no more at once: then it did not
// wait.
//
// A look, a write and a wait under one hold of the poller cost a system call less than
// one after the other: a read that comes before its answer finds nothing and waits.
func (s *socket) ask(p []byte) (sent int, st state, err error) {
	if s.raw == nil {
		return 0, ended, net.ErrClosed
	}
	s.asked, s.sent, s.failed, s.state = p, 0, nil, silent
	err = s.raw.Read(s.asks)
	s.asked = nil
	if s.failed != nil {
		err = s.failed
	}
	return s.sent, s.state, err
}

// askOnce is called by the poller before it waits, and after.
func (s *socket) askOnce(fd uintptr) (done bool) {
	if s.asked == nil {
		return true
	}
	if s.peeks(fd); s.state != silent {
		return true
	}
	s.sent, s.failed = send(fd, s.asked)
	done = s.failed != nil || s.sent < len(s.asked)
	s.asked = nil
	return done
}

// peek says what has been received and not been read.
func (s *socket) peek() state {
	if s.raw == nil || s.raw.Control(s.peeks) != nil {
		return ended
	}
	return s.state
}

// wait returns when there is something to read, or an error.
func (s *socket) wait() error {
	if s.raw == nil {
		return net.ErrClosed
	}
	var one [1]byte
	return s.raw.Read(func(fd uintptr) bool {
		_, st := peekSocket(fd, one[:])
		return st != silent
	})
}

// errNothing is a read that would have to wait. crypto/tls goes on after an error
// that is a timeout.
type errNothing struct{}

func (errNothing) Error() string   { return "framing: nothing to read" }
func (errNothing) Timeout() bool   { return true }
func (errNothing) Temporary() bool { return true }

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	if s.probed && s.peek() == silent {
		return 0, errNothing{}
	}
	return s.Conn.Read(p)
}
