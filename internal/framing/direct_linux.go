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

// maxDirectIO limits the bytes of one system call, so that no call occupies its processor for long.
const maxDirectIO = 128 << 10

// direct is a TCP connection whose reads and writes do not announce their system calls to Go's
// scheduler. The calls do not block, so the scheduler need not prepare another thread. A loaded
// proxy spends up to a tenth of its time on that.
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

// transfer is a read or a write. mu guards the other fields.
type transfer struct {
	mu  sync.Mutex
	p   []byte
	n   int
	err error
	try func(fd uintptr) (done bool)
}

// withDirectIO returns c with direct reads and writes if it is a TCP connection, and otherwise c.
func withDirectIO(c net.Conn) net.Conn {
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

// run moves the bytes of p. The poller calls t.try until it is done. The errors are those of
// package net.
func (t *transfer) run(p []byte, poll func(func(uintptr) bool) error, op string) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p, t.n, t.err = p, 0, nil
	err := poll(t.try)
	t.p = nil
	if of, ok := errors.AsType[*net.OpError](err); ok {
		of.Op = op
	} else if err == nil && t.err != nil {
		err = &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, t.err)}
	}
	return t.n, err
}

func (t *transfer) tryReceive(fd uintptr) (done bool) {
	for {
		n, errno := receive(fd, t.p[:min(len(t.p), maxDirectIO)], 0)
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
		n, errno := transmit(fd, t.p[t.n:min(len(t.p), t.n+maxDirectIO)])
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

// receive is a non-blocking recvfrom(2). p must not be empty.
func receive(fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags|syscall.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// transmit is a non-blocking sendto(2).
func transmit(fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// peekSocket reads received bytes without consuming them.
func peekSocket(fd uintptr, into []byte) (n int, s state) {
	for {
		n, errno := receive(fd, into, syscall.MSG_PEEK)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN:
			return 0, noData
		case errno != 0 || n <= 0:
			return 0, peerClosed
		}
		return n, hasData
	}
}

// send writes as much as the socket accepts without blocking.
func send(fd uintptr, p []byte) (int, error) {
	for {
		n, errno := transmit(fd, p[:min(len(p), maxDirectIO)])
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
