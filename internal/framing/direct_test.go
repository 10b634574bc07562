package framing

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// eachConn runs a test on a connection of package net and on one with direct calls, which must
// behave alike.
func eachConn(t *testing.T, test func(t *testing.T, c net.Conn, peer *net.TCPConn)) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{"net": func(c net.Conn) net.Conn { return c }, "direct": withDirectIO} {
		t.Run(name, func(t *testing.T) {
			c, peer := tcpPair(t)
			test(t, wrap(c), peer)
		})
	}
}

// tcpPair returns both ends of a connection over TCP.
func tcpPair(t *testing.T) (c, peer *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	errtest.Must(t, err)
	defer func() { _ = l.Close() }()
	c, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	errtest.Must(t, err)
	if peer, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), peer.Close() })
	return c, peer
}

// wantOp reports an error that is not one of package net, of that operation and cause.
func wantOp(t *testing.T, err error, op string, cause error) {
	t.Helper()
	if of, ok := errors.AsType[*net.OpError](err); !ok || of.Op != op || !errors.Is(err, cause) {
		t.Errorf("the error is %#v (%v), want one of %s because of %v", err, err, op, cause)
	}
}

// Everything that one end sends reaches the other, also if the kernel accepts it in parts.
func TestDirectTransfers(t *testing.T) {
	eachConn(t, func(t *testing.T, c net.Conn, peer *net.TCPConn) {
		sent := make([]byte, 5<<20) // more than the kernel takes at once
		_, _ = rand.Read(sent)
		go func() {
			if n, err := c.Write(sent); n != len(sent) || err != nil {
				t.Errorf("Write = %d, %v, want %d", n, err, len(sent))
			}
		}()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("the peer reads other bytes: %v", err)
		}
		go func() { _, _ = peer.Write(sent); _ = peer.CloseWrite() }()
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d other bytes are read: %v", len(got), err)
		}
		if n, err := c.Read(nil); n != 0 || err != nil {
			t.Errorf("Read(nil) = %d, %v, want 0 and no error", n, err)
		}
		if n, err := c.Read(got); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("Read after the end = %d, %v, want 0 and EOF", n, err)
		}
	})
}

// Concurrent writes must not mix.
func TestConcurrentDirectWrites(t *testing.T) {
	eachConn(t, func(t *testing.T, c net.Conn, peer *net.TCPConn) {
		const writers, size = 8, 300 << 10
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				if _, err := c.Write(bytes.Repeat([]byte{byte('a' + i)}, size)); err != nil {
					t.Error(err)
				}
			})
		}
		part := make([]byte, size)
		for range writers {
			errtest.Must(t, errtest.Of(io.ReadFull(peer, part)))
			if bytes.Count(part, part[:1]) != size {
				t.Fatal("two writes are mixed")
			}
		}
		all.Wait()
	})
}

// Both kinds of connections fail with the same errors.
func TestDirectFailures(t *testing.T) {
	buf := make([]byte, 1<<20)
	t.Run("deadline passed", func(t *testing.T) {
		eachConn(t, func(t *testing.T, c net.Conn, _ *net.TCPConn) {
			_ = c.SetDeadline(time.Now().Add(-time.Second))
			_, err := c.Read(buf)
			wantOp(t, err, "read", os.ErrDeadlineExceeded)
			_, err = c.Write(buf)
			wantOp(t, err, "write", os.ErrDeadlineExceeded)
		})
	})
	t.Run("deadline while it waits", func(t *testing.T) {
		eachConn(t, func(t *testing.T, c net.Conn, _ *net.TCPConn) {
			_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
			_, err := c.Read(buf)
			wantOp(t, err, "read", os.ErrDeadlineExceeded)
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				t.Errorf("the error is %v, want a timeout", err)
			}
			for err = nil; err == nil; {
				_, err = c.Write(buf) // the peer reads nothing
			}
			wantOp(t, err, "write", os.ErrDeadlineExceeded)
		})
	})
	t.Run("closed while it waits", func(t *testing.T) {
		eachConn(t, func(t *testing.T, c net.Conn, _ *net.TCPConn) {
			failed := make(chan error, 1)
			go func() { _, err := c.Read(make([]byte, 1)); failed <- err }()
			_ = c.Close()
			wantOp(t, <-failed, "read", net.ErrClosed)
			_, err := c.Write(buf)
			wantOp(t, err, "write", net.ErrClosed)
		})
	})
	t.Run("reset by the peer", func(t *testing.T) {
		eachConn(t, func(t *testing.T, c net.Conn, peer *net.TCPConn) {
			_ = peer.SetLinger(0)
			_ = peer.Close()
			_, err := c.Read(buf)
			wantOp(t, err, "read", syscall.ECONNRESET)
			_, err = c.Write(buf)
			wantOp(t, err, "write", syscall.EPIPE)
		})
	})
}

// Callers find these interfaces by the type of a connection.
func TestDirectInterfaces(t *testing.T) {
	c, peer := tcpPair(t)
	d := withDirectIO(c)
	if _, ok := d.(interface{ SetLinger(sec int) error }); !ok {
		t.Error("the connection has no SetLinger")
	}
	half, ok := d.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		t.Fatal("the connection has no CloseWrite, or it fails")
	}
	if n, err := peer.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the peer reads %d bytes, %v, want EOF", n, err)
	}
	one, _ := net.Pipe()
	if withDirectIO(one) != one {
		t.Error("withDirectIO wraps a pipe, want TCP connections alone")
	}
}
