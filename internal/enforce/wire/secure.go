// Package wire takes TLS connections of clients, those of HTTP/1 with the strict framing
// of package framing.
package wire

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/framing"
)

// handshakeTimeout is how long a client may take to shake hands.
const handshakeTimeout = 10 * time.Second

// SecureListener hands out TLS connections after their handshake: those that
// agreed on HTTP/2 as they are, for net/http takes them up by their type, and
// those of HTTP/1 behind the same framing checks as plain ones.
type SecureListener struct {
	net.Listener
	config *tls.Config
	ready  chan net.Conn
	failed chan error

	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup
}

// NewSecureListener begins to accept from l. Closing the result closes l, ends handshakes
// that are under way and waits for them.
func NewSecureListener(l net.Listener, config *tls.Config) *SecureListener {
	s := &SecureListener{Listener: l, config: config, ready: make(chan net.Conn), failed: make(chan error, 1)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.all.Go(s.accept)
	return s
}

// TLSConfig is what the server speaks with a certificate and its key.
func TLSConfig(cert, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}, nil
}

func (s *SecureListener) accept() {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			s.failed <- err
			return
		}
		s.all.Go(func() { s.handshake(c) })
	}
}

// handshake shakes hands beside the others, so that a slow client keeps nobody waiting.
func (s *SecureListener) handshake(c net.Conn) {
	ctx, cancel := context.WithTimeout(s.ctx, handshakeTimeout)
	defer cancel()
	secure := tls.Server(c, s.config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return
	}
	var out net.Conn = secure
	if secure.ConnectionState().NegotiatedProtocol != "h2" {
		out = framing.NewServerConn(secure, nil)
	}
	select {
	case s.ready <- out:
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
		s.failed <- err // every later call fails alike
		return nil, err
	}
}

// Close implements net.Listener.
func (s *SecureListener) Close() error {
	err := s.Listener.Close()
	s.stop()
	s.all.Wait()
	return err
}

// Client is what is known of the connection that a request came in over.
type Client struct {
	Secure bool       // it is a TLS connection
	Peer   netip.Addr // its other end; not valid: unknown
	Name   string     // Peer as text
}

type clientKey struct{}

// Mark is a server's ConnContext: it keeps with the connection what is the same for
// all of its requests. net/http sees no TLS in a framing.ServerConn.
func Mark(ctx context.Context, c net.Conn) context.Context {
	secure := false
	if s, ok := c.(*framing.ServerConn); ok {
		c = s.Conn
	}
	if _, ok := c.(*tls.Conn); ok {
		secure = true
	}
	return context.WithValue(ctx, clientKey{}, clientAt(c.RemoteAddr().String(), secure))
}

// ClientOf is the connection of a request.
func ClientOf(r *http.Request) *Client {
	if c, ok := r.Context().Value(clientKey{}).(*Client); ok {
		return c
	}
	return clientAt(r.RemoteAddr, r.TLS != nil)
}

func clientAt(address string, secure bool) *Client {
	c := &Client{Secure: secure}
	if ap, err := netip.ParseAddrPort(address); err == nil {
		c.Peer = ap.Addr().Unmap()
	}
	c.Name = c.Peer.String()
	return c
}
