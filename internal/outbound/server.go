package outbound

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
)

// Protocol is the protocol of a server that does not speak HTTP.
type Protocol int

// The protocols of servers.
const (
	Mail      Protocol = iota // SMTP
	Directory                 // LDAP
	Database                  // PostgreSQL
)

// ports returns the ports below 1024 of a protocol.
func (p Protocol) ports() lowPorts {
	switch p {
	case Directory:
		return lowPorts{389, 636}
	case Database:
		return lowPorts{}
	}
	return lowPorts{25, 465, 587}
}

// Server is the address of a server that does not speak HTTP.
type Server struct {
	Protocol Protocol
	Host     string
	Port     uint16
	// Plain means that the connection is not encrypted. It is permitted only to an address of
	// AllowCIDRs.
	Plain bool
}

// CheckServer reports whether a server may be called, before it is saved. The error is an Invalid
// fault at pointer, like that of Check.
func (c *Client) CheckServer(ctx context.Context, pointer string, s Server) error {
	t, err := c.serverTarget(s)
	if err == nil {
		err = c.checkAddresses(ctx, t, s.Protocol.ports())
	}
	return refusal(pointer, err)
}

// Dial connects to a server, with the checks of Check. On public addresses it permits the ports of
// the protocol and those from 1024 on. The connection reads at most Config.MaxReply bytes in all and
// ends at the deadline of ctx (WithTimeout). The fault is that of Do.
func (c *Client) Dial(ctx context.Context, s Server) (net.Conn, error) {
	t, err := c.serverTarget(s)
	if err != nil {
		return nil, unreachable(err)
	}
	conn, err := c.connect(ctx, "tcp", net.JoinHostPort(t.host, strconv.Itoa(int(t.port))), t.listedOnly, s.Protocol.ports())
	if err != nil {
		return nil, unreachable(err)
	}
	if deadline, set := ctx.Deadline(); set {
		if err := conn.SetDeadline(deadline); err != nil {
			_ = conn.Close()
			return nil, unreachable(err)
		}
	}
	return &boundedConn{conn, io.LimitReader(conn, c.cfg.MaxReply)}, nil
}

// TLS returns the TLS configuration for a connection of Dial to host.
func (c *Client) TLS(host string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.cfg.RootCAs, ServerName: host}
}

// WithTimeout returns a context that limits a call outside of Do to Config.Timeout.
func (c *Client) WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// serverTarget checks the form of a server's address by the rules for URLs.
func (c *Client) serverTarget(s Server) (target, error) {
	t, err := c.form("https://" + net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port))))
	if err != nil {
		return t, err
	}
	if t.host != s.Host || t.port != s.Port {
		return t, fmt.Errorf("%w: the host is invalid", errRefused)
	}
	t.listedOnly = s.Plain
	return t, nil
}

// boundedConn is a connection that reads a limited number of bytes.
type boundedConn struct {
	net.Conn
	from io.Reader
}

// Read implements net.Conn. It returns io.EOF at the limit.
func (b *boundedConn) Read(p []byte) (int, error) { return b.from.Read(p) }
