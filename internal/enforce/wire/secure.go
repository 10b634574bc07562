// Package wire accepts TLS connections of clients, and records the address of each client.
package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/framing"
)

// handshakeTimeout is how long a TLS handshake may take.
const handshakeTimeout = 10 * time.Second

// SecureListener returns TLS connections after their handshake. It closes a connection that agreed
// on a protocol other than HTTP, because such a client wants only the handshake (RFC 8737).
type SecureListener struct {
	net.Listener
	config *tls.Config
	ready  chan net.Conn
	failed chan error    // errors that Accept returns
	ended  chan struct{} // closed when the listener stops

	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup
}

// NewSecureListener begins to accept from l. Closing the result closes l, ends handshakes
// that are under way and waits for them.
func NewSecureListener(l net.Listener, config *tls.Config) *SecureListener {
	s := &SecureListener{Listener: l, config: config, ready: make(chan net.Conn), failed: make(chan error), ended: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.all.Go(s.accept)
	return s
}

// TLSConfig returns the server's TLS configuration for a certificate and its key.
func TLSConfig(cert, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// accept takes connections until the listener is closed. Any other error, such as a lack of
// file descriptors, goes to the server, which knows how long to wait before it asks again.
func (s *SecureListener) accept() {
	defer close(s.ended)
	for {
		c, err := s.Listener.Accept()
		switch {
		case err == nil:
			s.all.Go(func() { s.handshake(c) })
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		select {
		case s.failed <- err:
		case <-s.ctx.Done():
			return
		}
	}
}

// handshake runs in a goroutine of its own, so that a slow client delays nobody.
func (s *SecureListener) handshake(c net.Conn) {
	ctx, cancel := context.WithTimeout(s.ctx, handshakeTimeout)
	defer cancel()
	secure := tls.Server(c, s.config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return
	}
	switch secure.ConnectionState().NegotiatedProtocol {
	case "", "h2", "http/1.1":
	default:
		_ = secure.Close()
		return
	}
	select {
	case s.ready <- secure:
	case <-s.ctx.Done():
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (s *SecureListener) Accept() (net.Conn, error) {
	select {
	case c := <-s.ready:
		return c, nil
	case err := <-s.failed:
		return nil, err
	case <-s.ended:
		return nil, net.ErrClosed
	}
}

// SyscallConn implements syscall.Conn, so that framing.Drain works.
func (s *SecureListener) SyscallConn() (syscall.RawConn, error) {
	raw, ok := s.Listener.(syscall.Conn)
	if !ok {
		return nil, syscall.ENOTSUP
	}
	return raw.SyscallConn()
}

// Close implements net.Listener.
func (s *SecureListener) Close() error {
	err := s.Listener.Close()
	s.stop()
	s.all.Wait()
	return err
}

// Client describes the connection of a request.
type Client struct {
	Secure bool       // it uses TLS
	Peer   netip.Addr // its remote address; invalid: unknown
	Name   string     // Peer as text
}

type clientKey struct{}

// ConnContext is a server's ConnContext. It stores what is the same for all requests of a connection.
// net/http does not recognise TLS in a framing.ServerConn.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, clientKey{}, clientAt(c.RemoteAddr().String(), framing.TLSState(c) != nil))
}

// ClientOf returns the connection of a request.
func ClientOf(r *http.Request) *Client {
	if c, ok := r.Context().Value(clientKey{}).(*Client); ok {
		return c
	}
	return clientAt(r.RemoteAddr, r.TLS != nil)
}

func clientAt(address string, secure bool) *Client {
	at, _ := netip.ParseAddrPort(address)
	peer := at.Addr().Unmap()
	return &Client{Secure: secure, Peer: peer, Name: peer.String()}
}
