package wire

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// exhausted is a listener that fails before each connection.
type exhausted struct {
	conns chan net.Conn
	fail  bool
}

func (s *exhausted) Accept() (net.Conn, error) {
	if s.fail = !s.fail; s.fail {
		return nil, syscall.EMFILE
	}
	c, ok := <-s.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (s *exhausted) Close() error   { close(s.conns); return nil }
func (s *exhausted) Addr() net.Addr { return &net.TCPAddr{} }

// TestSecureListenerContinuesAfterErrors checks that a listener continues after an error, such as a
// lack of file descriptors, and that a closed one returns an error each time.
func TestSecureListenerContinuesAfterErrors(t *testing.T) {
	inner := &exhausted{conns: make(chan net.Conn)}
	l := NewSecureListener(inner, &tls.Config{MinVersion: tls.VersionTLS12})
	for range 3 {
		if _, err := l.Accept(); !errors.Is(err, syscall.EMFILE) {
			t.Fatalf("Accept: %v, want EMFILE", err)
		}
		client, server := net.Pipe()
		select {
		case inner.conns <- server:
		case <-time.After(30 * time.Second):
			t.Fatal("the listener does not accept after an error")
		}
		_ = client.Close() // the handshake fails, which is no failure of the listener
	}
	if _, err := l.Accept(); !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("Accept: %v, want EMFILE", err)
	}
	errtest.Must(t, l.Close())
	for range 2 {
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v, want ErrClosed", err)
		}
	}
}
