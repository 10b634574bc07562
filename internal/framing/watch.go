package framing

import (
	"io"
	"net"
	"syscall"
)

// watch is how net/http learns that a client has left while its request is served: from
// the first byte of a request to the last of its answer, a goroutine reads one byte. Nearly
// always there is none, so that read waits first and saves a system call a request. What
// was received before the wait begins is not noticed by it. Nothing is lost by that: bytes
// are read once the answer is written, and an end shows when it is.
type watch struct {
	raw    syscall.RawConn
	into   []byte
	n      int
	err    error
	waited bool
	reads  func(fd uintptr) (done bool)
}

// newWatch returns nil for connections other than TCP.
func newWatch(c net.Conn) *watch {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	w := &watch{raw: raw}
	w.reads = w.readOnce
	return w
}

// read waits, and reads into p. Its errors are those of net.Conn.
func (w *watch) read(p []byte) (int, error) {
	w.into, w.n, w.err, w.waited = p, 0, nil, false
	err := w.raw.Read(w.reads)
	w.into = nil
	if err == nil {
		err = w.err
	}
	if err == nil && w.n == 0 {
		err = io.EOF
	}
	return w.n, err
}

// readOnce is called by the poller before it waits, and after.
func (w *watch) readOnce(fd uintptr) (done bool) {
	if !w.waited {
		w.waited = true
		return false
	}
	w.n, done, w.err = receive(fd, w.into)
	return done
}
