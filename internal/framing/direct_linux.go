//go:build linux && !race

package framing

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// directMost is how many bytes one call of the kernel takes, so that no call keeps its
// processor for long.
const directMost = 128 << 10

// direct is a TCP connection whose reads and writes do not tell Go's scheduler about their
// system calls. The calls never wait, so the scheduler has no reason to give the processor
// to another thread meanwhile. A loaded proxy spends up to a tenth of its time on that.
type direct struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out transfer
	counted *counted // nil: no Limit counts it
}

// Close implements net.Conn.
func (d *direct) Close() error {
	if d.counted != nil {
		return d.counted.Close()
	}
	return d.TCPConn.Close()
}

// transfer is a read or a write. Only the caller that holds mu uses the rest.
type transfer struct {
	mu  sync.Mutex
	p   []byte
	n   int
	err error
	try func(fd uintptr) (done bool)
}

// directly is c with direct reads and writes if c is a TCP connection.
func directly(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	of, isCounted := c.(*counted)
	if isCounted {
		tcp, ok = of.TCPConn, true
	}
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	d := &direct{TCPConn: tcp, raw: raw, counted: of}
	d.in.try, d.out.try = d.in.tryReceive, d.out.trySend
	return d
}

// Read implements net.Conn.
func (d *direct) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := d.in.run(p, d.raw.Read, "read")
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (d *direct) Write(p []byte) (int, error) { return d.out.run(p, d.raw.Write, "write") }

// run moves bytes of p under the poller, which calls t.try until it is done. Errors have
// the form of package net's.
func (t *transfer) run(p []byte, poll func(func(uintptr) bool) error, op string) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p, t.n, t.err = p, 0, nil
	err := poll(t.try)
	t.p = nil
	var of *net.OpError
	switch {
	case errors.As(err, &of):
		of.Op = op
	case err == nil && t.err != nil:
		err = &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, t.err)}
	}
	return t.n, err
}

func (t *transfer) tryReceive(fd uintptr) (done bool) {
	for {
		n, errno := receive(fd, t.p[:min(len(t.p), directMost)], 0)
		switch errno {
		case 0:
			t.n = n
			return true
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			t.err = errno
			return true
		}
	}
}

func (t *transfer) trySend(fd uintptr) (done bool) {
	for t.n < len(t.p) {
		n, errno := transmit(fd, t.p[t.n:min(len(t.p), t.n+directMost)])
		switch errno {
		case 0:
			t.n += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			t.err = errno
			return true
		}
	}
	return true
}

// receive is recvfrom(2) that does not wait. p is not empty.
func receive(fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags|syscall.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// transmit is sendto(2) that does not wait.
func transmit(fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// peekSocket reads what the socket has received without taking it.
func peekSocket(fd uintptr, into []byte) (n int, s state) {
	for {
		n, errno := receive(fd, into, syscall.MSG_PEEK)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN:
			return 0, silent
		case errno != 0 || n <= 0:
			return 0, ended
		}
		return n, speaking
	}
}

// send writes what the socket takes at once.
func send(fd uintptr, p []byte) (int, error) {
	for {
		n, errno := transmit(fd, p[:min(len(p), directMost)])
		switch errno {
		case 0:
			return n, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, nil
		default:
			return 0, os.NewSyscallError("write", errno)
		}
	}
}
