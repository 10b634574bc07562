package enforce

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/framing"
)

// secureListener hands out TLS connections after their handshake: those that
// agreed on HTTP/2 as they are, for net/http takes them up by their type, and
// those of HTTP/1 behind the same framing checks as plain ones.
type secureListener struct {
	net.Listener
	config *tls.Config
	ready  chan net.Conn
	failed chan error

	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup
}

// newSecureListener begins to accept from l. Closing the result closes l, ends handshakes
// that are under way and waits for them.
func newSecureListener(l net.Listener, config *tls.Config) *secureListener {
	s := &secureListener{Listener: l, config: config, ready: make(chan net.Conn), failed: make(chan error, 1)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.all.Go(s.accept)
	return s
}

// secureConfig is what the server speaks with a certificate and its key.
func secureConfig(cert, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}, nil
}

func (s *secureListener) accept() {
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
func (s *secureListener) handshake(c net.Conn) {
	ctx, cancel := context.WithTimeout(s.ctx, headTimeout)
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
func (s *secureListener) Accept() (net.Conn, error) {
	select {
	case c := <-s.ready:
		return c, nil
	case err := <-s.failed:
		s.failed <- err // every later call fails alike
		return nil, err
	}
}

// Close implements net.Listener.
func (s *secureListener) Close() error {
	err := s.Listener.Close()
	s.stop()
	s.all.Wait()
	return err
}

type secureKey struct{}

// markSecure is a server's ConnContext: net/http sees no TLS in a framing.ServerConn.
func markSecure(ctx context.Context, c net.Conn) context.Context {
	if s, ok := c.(*framing.ServerConn); ok {
		if _, ok := s.Conn.(*tls.Conn); ok {
			return context.WithValue(ctx, secureKey{}, true)
		}
	}
	return ctx
}

// overTLS reports whether the request of ctx came in over a marked connection.
func overTLS(ctx context.Context) bool {
	secure, _ := ctx.Value(secureKey{}).(bool)
	return secure
}
