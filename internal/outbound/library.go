package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Bound limits the calls of a library that speaks a protocol over HTTP. They are guarded like Do.
type Bound struct {
	// Plain permits http to the addresses of Config.AllowCIDRs. Otherwise only https is called, whatever
	// the library or the server requests.
	Plain bool
	// MaxReply limits a reply, in bytes. Reading more is an error.
	MaxReply int64
}

// Transport returns a transport for a library, for one task: its calls end with ctx.
func (c *Client) Transport(ctx context.Context, b Bound) http.RoundTripper {
	return &transport{ctx: ctx, next: c.http.Transport, bound: b}
}

// replyObserver is the key of the function that a context carries for WithReplyObserver.
type replyObserver struct{}

// WithReplyObserver returns a context with which Transport calls fn for each reply, without its body:
// a library does not pass on headers such as Retry-After. fn must be safe for concurrent use.
func WithReplyObserver(ctx context.Context, fn func(Response)) context.Context {
	return context.WithValue(ctx, replyObserver{}, fn)
}

type transport struct {
	ctx   context.Context
	next  http.RoundTripper
	bound Bound
}

// ErrRedirect is the cause of an error of Transport: the server answered with a redirect.
var ErrRedirect = errors.New("the target answered with a redirect, which is not followed")

// RoundTrip implements http.RoundTripper. The call ends with the context of the task or its own. A
// library has an http.Client of its own, which would follow redirects: RoundTrip refuses the request
// that a redirect leads to.
func (l *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Response != nil { // http.Client sets it to the redirect
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, ErrRedirect
	}
	if r.URL.Scheme != "https" && !l.bound.Plain {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("%w: the scheme is not allowed", errRefused)
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(l.ctx, cancel)
	end := func() { stop(); cancel() }
	res, err := l.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	if notify, ok := l.ctx.Value(replyObserver{}).(func(Response)); ok {
		notify(Response{Status: res.StatusCode, Header: res.Header})
	}
	res.Body = &endingBody{http.MaxBytesReader(nil, res.Body, l.bound.MaxReply), end}
	return res, nil
}

// endingBody cancels the context of a call when the body of its reply is closed.
type endingBody struct {
	io.ReadCloser
	end func()
}

// Close closes the body.
func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// DialStream connects to a server that does not speak HTTP, with the checks of CheckStream, and with
// TLS unless the server is Plain. The caller must limit what it reads. The fault is that of Do.
func (c *Client) DialStream(ctx context.Context, s StreamServer) (net.Conn, error) {
	t, err := c.streamTarget(s)
	if err != nil {
		return nil, unreachable(err)
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	conn, err := c.connect(ctx, "tcp", net.JoinHostPort(t.host, strconv.Itoa(int(t.port))), t.listedOnly, webPorts)
	if err != nil {
		return nil, unreachable(err)
	}
	if s.Plain {
		return conn, nil
	}
	session := c.secure(conn, t.host, s)
	if err := session.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, unreachable(err)
	}
	return session, nil
}

// handshakeTime limits the time to connect, including the TLS handshake.
const handshakeTime = 8 * time.Second
