package framing

import (
	"net"
	"syscall"
)

// state is what an idle connection has received.
type state int

const (
	noData     state = iota // nothing
	hasData                 // bytes
	peerClosed              // its end, or an error
)

// socket is a TCP connection that can peek at received bytes, and whose reads can be made
// non-blocking.
type socket struct {
	net.Conn
	raw         syscall.RawConn
	nonblocking bool // reads return errNothing instead of waiting; only the reading goroutine sets it

	// The result of peek, for the caller that holds the lock of the connection.
	peeked   [16]byte
	n        int
	state    state
	peekFunc func(fd uintptr)

	// What sendAndWait sends, how much of it was sent, and the error.
	toSend   []byte
	sent     int
	failed   error
	sendFunc func(fd uintptr) (done bool)
}

func newSocket(c net.Conn) *socket {
	s := &socket{Conn: withDirectIO(c)}
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	s.peekFunc = func(fd uintptr) { s.n, s.state = peekSocket(fd, s.peeked[:]) }
	s.sendFunc = s.pollSend
	return s
}

// sendAndWait writes a request to an idle socket and waits until it receives something. st is what
// the socket had received before; if that is not noData, nothing was sent. If the socket does not
// accept all of p at once, sent is less than len(p), and it does not wait.
//
// Peeking, writing and waiting in one call of the poller saves a system call: a read before the
// answer arrives would find nothing.
func (s *socket) sendAndWait(p []byte) (sent int, st state, err error) {
	if s.raw == nil {
		return 0, peerClosed, net.ErrClosed
	}
	s.toSend, s.sent, s.failed, s.state = p, 0, nil, noData
	err = s.raw.Read(s.sendFunc)
	s.toSend = nil
	if s.failed != nil {
		err = s.failed
	}
	return s.sent, s.state, err
}

// pollSend is called by the poller, before it waits and after.
func (s *socket) pollSend(fd uintptr) (done bool) {
	if s.toSend == nil {
		return true
	}
	if s.peekFunc(fd); s.state != noData {
		return true
	}
	s.sent, s.failed = send(fd, s.toSend)
	done = s.failed != nil || s.sent < len(s.toSend)
	s.toSend = nil
	return done
}

// peek returns what was received and not read.
func (s *socket) peek() state {
	if s.raw == nil || s.raw.Control(s.peekFunc) != nil {
		return peerClosed
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
		return st != noData
	})
}

// errNothing is the error of a non-blocking read without data. It is a timeout, because crypto/tls
// can continue after one.
type errNothing struct{}

func (errNothing) Error() string   { return "framing: nothing to read" }
func (errNothing) Timeout() bool   { return true }
func (errNothing) Temporary() bool { return true }

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	if s.nonblocking && s.peek() == noData {
		return 0, errNothing{}
	}
	return s.Conn.Read(p)
}
