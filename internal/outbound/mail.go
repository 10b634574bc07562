package outbound

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
)

// MailServer is the address of a mail server.
type MailServer struct {
	Host string
	Port uint16
	// Plain means that the connection is not encrypted. Only an address of AllowCIDRs
	// may be reached so.
	Plain bool
}

// CheckMail says whether a mail server may be called, for when it is saved: a bad one
// is an Invalid fault at pointer, like that of Check.
func (c *Client) CheckMail(ctx context.Context, pointer string, m MailServer) error {
	t, err := c.mailTarget(m)
	if err == nil {
		err = c.checkAddresses(ctx, t, mailPorts)
	}
	return refusal(pointer, err)
}

// DialMail connects to a mail server, with the checks of Check: on public addresses
// the ports 25, 465, 587 and those from 1024 on. It reads at most Config.MaxReply
// bytes in all, until the deadline of ctx (WithTimeout). The fault is that of Do.
func (c *Client) DialMail(ctx context.Context, m MailServer) (net.Conn, error) {
	t, err := c.mailTarget(m)
	if err != nil {
		return nil, unreachable(err)
	}
	conn, err := c.connect(ctx, "tcp", net.JoinHostPort(t.host, strconv.Itoa(int(t.port))), t.listedOnly, mailPorts)
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

// TLS is the configuration for a connection of DialMail.
func (c *Client) TLS(host string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.cfg.RootCAs, ServerName: host}
}

// WithTimeout bounds a call that is not made by Do.
func (c *Client) WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// mailTarget holds the spelling of a mail server to the rules for URLs.
func (c *Client) mailTarget(m MailServer) (target, error) {
	t, err := c.form("https://" + net.JoinHostPort(m.Host, strconv.Itoa(int(m.Port))))
	if err != nil {
		return t, err
	}
	if t.host != m.Host || t.port != m.Port {
		return t, fmt.Errorf("%w: its host", errRefused)
	}
	t.listedOnly = m.Plain
	return t, nil
}

// boundedConn reads at most so much.
type boundedConn struct {
	net.Conn
	from io.Reader
}

// Read ends with io.EOF at the limit.
func (b *boundedConn) Read(p []byte) (int, error) { return b.from.Read(p) }
