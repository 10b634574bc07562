package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strconv"
)

// StreamServer is the address of a server that takes a stream of bytes over TLS.
type StreamServer struct {
	Host string
	Port uint16
	// Plain means that the connection is not encrypted. Only an address of AllowCIDRs may be
	// reached so, and SendStream never does.
	Plain bool
	// RootCAs replaces the certificate authorities of the client; nil: it does not.
	RootCAs *x509.CertPool
	// Certificate is what the client proves itself with, if the server asks; nil: nothing.
	Certificate *tls.Certificate
}

// errCut means that the server ended a stream before it had read all of it.
var errCut = errors.New("the server ended the connection before it had read everything")

// CheckStream says whether a server may be called, for when it is saved: a bad one is an
// Invalid fault at pointer, like that of Check.
func (c *Client) CheckStream(ctx context.Context, pointer string, s StreamServer) error {
	t, err := c.streamTarget(s)
	if err == nil {
		err = c.checkAddresses(ctx, t, webPorts)
	}
	return refusal(pointer, err)
}

// streamTarget holds the spelling of a server to the rules for URLs.
func (c *Client) streamTarget(s StreamServer) (target, error) {
	return c.serverTarget(Server{Host: s.Host, Port: s.Port, Plain: s.Plain})
}

// SendStream sends a body over a TLS connection of its own, within Config.Timeout, and ends the
// connection with close_notify. The error is nil if the server read all of it:
//
//   - It ended the connection in its turn. notified says whether it did so with a close_notify.
//   - Its system had acknowledged every byte by then. A program that ends in the middle leaves
//     bytes that are not acknowledged.
//   - The connection was closed, not reset. A system resets the connection of a program that
//     ends and leaves bytes unread.
//
// The fault is that of Do.
func (c *Client) SendStream(ctx context.Context, s StreamServer, body []byte) (notified bool, err error) {
	t, err := c.streamTarget(s)
	if err != nil {
		return false, unreachable(err)
	}
	ctx, cancel := c.WithTimeout(ctx)
	defer cancel()
	conn, err := c.connect(ctx, "tcp", net.JoinHostPort(t.host, strconv.Itoa(int(t.port))), false, webPorts)
	if err != nil {
		return false, unreachable(err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends a wait that is not needed any more
	defer stop()
	raw := &endConn{Conn: conn}
	if notified, err = exchange(ctx, raw, c.secure(raw, t.host, s), body, c.cfg.MaxReply); err != nil {
		return false, unreachable(err)
	}
	return notified, nil
}

// secure is the TLS session of a connection to a server.
func (c *Client) secure(conn net.Conn, host string, s StreamServer) *tls.Conn {
	cfg := c.TLS(host)
	if s.RootCAs != nil {
		cfg.RootCAs = s.RootCAs
	}
	if s.Certificate != nil {
		cfg.Certificates = []tls.Certificate{*s.Certificate}
	}
	return tls.Client(conn, cfg)
}

// exchange sends a body and waits until the server has read it.
func exchange(ctx context.Context, raw *endConn, session *tls.Conn, body []byte, maxReply int64) (notified bool, err error) {
	conn := raw.Conn
	if err := session.HandshakeContext(ctx); err != nil {
		return false, err
	}
	if _, err := session.Write(body); err != nil {
		return false, err
	}
	if err := session.CloseWrite(); err != nil {
		return false, err
	}
	n, err := io.Copy(io.Discard, io.LimitReader(session, maxReply))
	if err == nil && n == maxReply {
		err = errors.New("the server sends without an end")
	}
	if err != nil {
		return false, err
	}
	// crypto/tls gives io.EOF for a close_notify, and also if the connection ends without.
	notified = !raw.ended
	if left, err := unacknowledged(conn); err != nil || left > 0 {
		return false, errors.Join(errCut, err)
	}
	if half, can := conn.(interface{ CloseWrite() error }); can { // a server may wait for this
		if err := half.CloseWrite(); err != nil {
			return false, err
		}
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(conn, maxReply)); err != nil {
		return false, errors.Join(errCut, err)
	}
	return notified, nil
}

// endConn notes the end of a connection.
type endConn struct {
	net.Conn
	ended bool
}

// Read notes that the connection ended.
func (c *endConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.ended = c.ended || err != nil
	return n, err
}
