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

// StreamServer is the address of a server that receives a stream of bytes over TLS.
type StreamServer struct {
	Host string
	Port uint16
	// Plain means that the connection is not encrypted. It is permitted only to an address of
	// AllowCIDRs. SendStream always uses TLS.
	Plain bool
	// RootCAs replaces the certificate authorities of the client; nil keeps them.
	RootCAs *x509.CertPool
	// Certificate is the client certificate, for a server that asks for one; nil: none.
	Certificate *tls.Certificate
}

// errCut means that the server closed a connection before it had read the whole stream.
var errCut = errors.New("the server closed the connection before it had read everything")

// CheckStream reports whether a server may be called, before it is saved. The error is an Invalid
// fault at pointer, like that of Check.
func (c *Client) CheckStream(ctx context.Context, pointer string, s StreamServer) error {
	t, err := c.streamTarget(s)
	if err == nil {
		err = c.checkAddresses(ctx, t, webPorts)
	}
	return refusal(pointer, err)
}

// streamTarget checks the form of a server's address by the rules for URLs.
func (c *Client) streamTarget(s StreamServer) (target, error) {
	return c.serverTarget(Server{Host: s.Host, Port: s.Port, Plain: s.Plain})
}

// SendStream sends a body over a new TLS connection, within Config.Timeout, and ends it with
// close_notify (RFC 8446 section 6.1). The error is nil if the server has read the whole body, which
// these conditions show:
//
//   - The server has closed the connection. notified reports whether it sent a close_notify.
//   - By then, its system had acknowledged every byte. A program that exits early leaves bytes
//     unacknowledged.
//   - The connection was closed, not reset. The system resets the connection of a program that
//     exits and leaves bytes unread.
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
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends a read or write when ctx ends
	defer stop()
	raw := &endConn{Conn: conn}
	if notified, err = exchange(ctx, raw, c.secure(raw, t.host, s), body, c.cfg.MaxReply); err != nil {
		return false, unreachable(err)
	}
	return notified, nil
}

// secure returns a TLS client on a connection to a server.
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
		err = errors.New("the server sent more than the limit")
	}
	if err != nil {
		return false, err
	}
	// crypto/tls returns io.EOF after a close_notify, and also if the connection ends without one.
	notified = !raw.ended
	if left, err := unacknowledged(conn); err != nil || left > 0 {
		return false, errors.Join(errCut, err)
	}
	if half, can := conn.(interface{ CloseWrite() error }); can { // some servers wait for this
		if err := half.CloseWrite(); err != nil {
			return false, err
		}
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(conn, maxReply)); err != nil {
		return false, errors.Join(errCut, err)
	}
	return notified, nil
}

// endConn records that a connection has ended.
type endConn struct {
	net.Conn
	ended bool
}

// Read implements net.Conn. It records the end of the connection.
func (c *endConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.ended = c.ended || err != nil
	return n, err
}
