// Package upstream connects the bouncer to the protected application. It pools
// connections, and never passes on bytes that answer no request.
package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
)

// Limits on connections to the application.
const (
	dialTimeout        = 5 * time.Second
	maxAnswerHead      = 256 << 10
	maxIdleConnections = 256
	idleConnectionLife = 30 * time.Second
	// maxInterim is how many 1xx answers may come before the answer itself.
	maxInterim = 5
)

var (
	errAnswerHead = errors.New("the head of the application's answer is too large")
	errInterim    = errors.New("the application sends too many interim answers")
)

// Upstream sends requests to the protected application. Most requests have no body and use plain
// HTTP/1.1. They take the fast path: the goroutine that serves the client writes to and reads from
// a pooled connection. All others (bodies, upgrades, TLS, HTTP/2) use http.Transport.
// framing.ClientConn guards the HTTP/1.1 connections of both: no client receives bytes that belong
// to no request.
type Upstream struct {
	target    *url.URL
	address   string // host:port
	timeout   time.Duration
	now       func() time.Time
	dialer    net.Dialer
	transport *http.Transport
	trust     *framing.Trust
	fastPath  bool
	limit     chan struct{} // one value for each exchange on the fast path that is running

	mu     sync.Mutex
	idle   []*pooledConn // the most recently used one is last
	closed bool
}

// New returns an Upstream for raw, scheme://host[:port]. roots are the authorities for the
// application's certificate; nil means those of the system. unsolicited is called each time the
// application sends bytes that belong to no request.
func New(raw string, roots *x509.CertPool, timeout time.Duration, maxConns int, now func() time.Time, unsolicited func()) (*Upstream, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || (u.Path != "" && u.Path != "/") || u.RawQuery != "" {
		return nil, fmt.Errorf("the upstream %q is not scheme://host[:port]", raw)
	}
	up := &Upstream{target: u, timeout: timeout, now: now, dialer: net.Dialer{Timeout: dialTimeout}, limit: make(chan struct{}, maxConns)}
	up.trust = framing.NewTrust(now, unsolicited)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	switch u.Scheme {
	case "http":
		up.address, up.fastPath = withPort(u.Host, "80"), true
	case "https":
		up.address = withPort(u.Host, "443")
		protocols.SetHTTP2(true)
	case "h2c": // HTTP/2 with prior knowledge, for gRPC applications
		up.address = withPort(u.Host, "80")
		up.target = &url.URL{Scheme: "http", Host: u.Host}
		protocols.SetHTTP1(false)
		protocols.SetUnencryptedHTTP2(true)
	default:
		return nil, fmt.Errorf("the scheme of the upstream %q is not http, https or h2c", raw)
	}
	up.transport = &http.Transport{
		DialContext: up.dialer.DialContext, Protocols: protocols, DisableCompression: true,
		// Sessions are resumed: a connection that is closed after its answer costs less.
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: timeout,
		MaxIdleConns: maxIdleConnections, MaxIdleConnsPerHost: maxIdleConnections, MaxConnsPerHost: maxConns,
		IdleConnTimeout: idleConnectionLife, MaxResponseHeaderBytes: maxAnswerHead,
	}
	switch u.Scheme {
	case "http":
		up.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return up.dial(ctx) }
	case "https":
		up.transport.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return up.dialSecure(ctx) }
	}
	return up, nil
}

// dial opens a connection for HTTP/1.1.
func (u *Upstream) dial(ctx context.Context) (*framing.ClientConn, error) {
	c, err := u.dialer.DialContext(ctx, "tcp", u.address)
	if err != nil {
		return nil, err
	}
	return framing.NewClientConn(c, u.trust), nil
}

// dialSecure opens a TLS connection. If both sides agree on HTTP/2, it returns the plain
// tls.Conn, which tells the transport to use HTTP/2.
func (u *Upstream) dialSecure(ctx context.Context) (net.Conn, error) {
	c, err := u.dialer.DialContext(ctx, "tcp", u.address)
	if err != nil {
		return nil, err
	}
	config := u.transport.TLSClientConfig.Clone()
	if config.ServerName == "" {
		config.ServerName = u.target.Hostname()
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	secure := framing.Secure(c, config)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		return secure, nil
	}
	return framing.NewSecureConn(secure, u.trust), nil
}

func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// Reachable reports whether the application accepts a connection within two seconds.
func (u *Upstream) Reachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := u.dialer.DialContext(ctx, "tcp", u.address)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// Request is a request to the application. All its parts are checked.
type Request struct {
	Method, Host, Path, Query string
	Upgrade                   bool // a WebSocket handshake
}

// Do sends a request with the body of r and returns the application's answer. interim is
// called for each 1xx answer before it.
func (u *Upstream) Do(r *http.Request, in *Request, head *header.Outgoing, interim func(int, http.Header)) (*Answer, error) {
	if u.fitsFastPath(r, in) {
		return u.sendFast(r.Context(), in, head, interim)
	}
	return u.send(r.Context(), r, in, head, interim)
}

// fitsFastPath reports whether a request can take the fast path.
func (u *Upstream) fitsFastPath(r *http.Request, in *Request) bool {
	return u.fastPath && !in.Upgrade && r.ContentLength == 0 && r.Body == http.NoBody &&
		(in.Method == http.MethodGet || in.Method == http.MethodHead || in.Method == http.MethodOptions)
}

// pooledConn is one connection of the fast path.
type pooledConn struct {
	conn     *framing.ClientConn
	br       *bufio.Reader
	out      []byte
	headLeft int64 // how many bytes of the head may still be read; negative: no limit
	used     bool
	lastUsed time.Time
	// until is the deadline that is set on conn; zero: unknown.
	until time.Time
	// answering is true after the first byte of the current answer. failed is the error of the
	// connection, which http.ReadResponse hides.
	answering bool
	failed    error
}

// Read reads from the connection, at most headLeft bytes. br reads from it.
func (c *pooledConn) Read(p []byte) (int, error) {
	if c.headLeft == 0 {
		c.failed = errAnswerHead
		return 0, errAnswerHead
	}
	if c.headLeft > 0 && int64(len(p)) > c.headLeft {
		p = p[:c.headLeft]
	}
	n, err := c.conn.Read(p)
	if n > 0 {
		c.answering = true
	}
	if c.headLeft > 0 {
		c.headLeft -= int64(n)
	}
	if err != nil {
		c.failed = err
	}
	return n, err
}

// extendDeadline gives an exchange that begins now at most d. It keeps the deadline of the
// previous exchange if that is less than d/64 earlier, because setting one costs two timers.
func (c *pooledConn) extendDeadline(now time.Time, d time.Duration) error {
	until := now.Add(d)
	if late := until.Sub(c.until); late >= 0 && late < d/64 {
		return nil
	}
	c.until = until
	return c.conn.SetDeadline(until)
}

// acquire returns an idle connection or a new one, and the time. fresh asks for a new one.
func (u *Upstream) acquire(ctx context.Context, fresh bool) (l *pooledConn, now time.Time, err error) {
	if !fresh {
		now = u.now()
		u.mu.Lock()
		for len(u.idle) > 0 {
			l := u.idle[len(u.idle)-1]
			u.idle = u.idle[:len(u.idle)-1]
			if now.Sub(l.lastUsed) < idleConnectionLife {
				u.mu.Unlock()
				return l, now, nil
			}
			_ = l.conn.Close()
		}
		u.mu.Unlock()
	}
	c, err := u.dial(ctx)
	if err != nil {
		return nil, now, err
	}
	l = &pooledConn{conn: c, out: make([]byte, 0, 2048)}
	l.br = bufio.NewReaderSize(l, 4096)
	return l, u.now(), nil
}

// release returns a connection to the pool if it can carry another request, and closes it
// otherwise. The next request checks again that the application has sent nothing in between.
func (u *Upstream) release(l *pooledConn) {
	if l.br.Buffered() > 0 || !l.conn.Reusable() {
		_ = l.conn.Close()
		return
	}
	l.used, l.lastUsed = true, u.now()
	if cap(l.out) > 64<<10 {
		l.out = make([]byte, 0, 2048)
	}
	u.mu.Lock()
	if u.closed || len(u.idle) >= maxIdleConnections {
		u.mu.Unlock()
		_ = l.conn.Close()
		return
	}
	u.idle = append(u.idle, l)
	u.mu.Unlock()
}

// Sweep closes connections that were idle for too long. Call it regularly.
func (u *Upstream) Sweep() {
	now := u.now()
	u.mu.Lock()
	defer u.mu.Unlock()
	keep := u.idle[:0]
	for _, l := range u.idle {
		if now.Sub(l.lastUsed) < idleConnectionLife {
			keep = append(keep, l)
		} else {
			_ = l.conn.Close()
		}
	}
	clear(u.idle[len(keep):])
	u.idle = keep
}

// Close closes all idle connections.
func (u *Upstream) Close() {
	u.mu.Lock()
	u.closed = true
	for _, l := range u.idle {
		_ = l.conn.Close()
	}
	u.idle = nil
	u.mu.Unlock()
	u.transport.CloseIdleConnections()
}

// Answer is the application's answer. The caller must call Finish: with clean set if it has read
// the body to the end.
type Answer struct {
	*http.Response
	Finish func(clean bool)
	// Extend sets how long the next read of the body may take.
	Extend func(time.Duration) error
}

// ErrSaturated means that no connection to the application became free in time.
var ErrSaturated = errors.New("too many requests to the application are in progress")

// sendFast sends a request on the fast path. If the application has closed an idle connection, it
// tries once more on a new one. That is safe for these methods (RFC 9110 section 9.2.1).
func (u *Upstream) sendFast(ctx context.Context, in *Request, head *header.Outgoing, interim func(int, http.Header)) (*Answer, error) {
	select {
	case u.limit <- struct{}{}:
	default:
		wait := time.NewTimer(u.timeout)
		defer wait.Stop()
		select {
		case u.limit <- struct{}{}:
		case <-wait.C:
			return nil, ErrSaturated
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var l *pooledConn
	var resp *http.Response
	var stop func() bool
	for fresh := false; ; fresh = true {
		var now time.Time
		var err error
		if l, now, err = u.acquire(ctx, fresh); err != nil {
			<-u.limit
			return nil, err
		}
		again := l.used && !fresh
		conn := l.conn
		stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		if resp, err = u.exchange(ctx, l, now, in, head, interim); err == nil { //nolint:bodyclose // Finish closes the connection
			break
		}
		stop()
		_ = l.conn.Close()
		if late, ok := errors.AsType[net.Error](err); again && !l.answering && ctx.Err() == nil && (!ok || !late.Timeout()) {
			continue
		}
		<-u.limit
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	keep := !resp.Close
	extend := func(d time.Duration) error {
		l.until = time.Time{}
		if err := l.conn.SetReadDeadline(u.now().Add(d)); err != nil {
			return err
		}
		return ctx.Err()
	}
	return &Answer{Response: resp, Extend: extend, Finish: func(clean bool) {
		if stop() && clean && keep {
			u.release(l)
		} else {
			_ = l.conn.Close()
		}
		<-u.limit
	}}, nil
}

// exchange writes the request and reads the head of the answer. now is the current time.
func (u *Upstream) exchange(ctx context.Context, l *pooledConn, now time.Time, in *Request, head *header.Outgoing, interim func(int, http.Header)) (*http.Response, error) {
	l.answering, l.failed = false, nil
	if err := l.extendDeadline(now, u.timeout); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err // the client left before, and the new deadline has replaced the one that would end the exchange
	}
	l.out = appendRequest(l.out[:0], in, head, u.target.Host)
	if err := l.conn.SendRequest(l.out); err != nil {
		return nil, err
	}
	for range maxInterim {
		l.headLeft = maxAnswerHead
		resp, err := http.ReadResponse(l.br, methodOnly(in.Method))
		if err != nil {
			if l.failed != nil && !errors.Is(l.failed, io.EOF) {
				err = l.failed
			}
			return nil, err
		}
		if resp.StatusCode >= 200 {
			l.headLeft = -1
			return resp, nil
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, errors.New("the application switched protocols although the request did not ask for it")
		}
		interim(resp.StatusCode, resp.Header)
	}
	return nil, errInterim
}

var getOnly, headOnly, optionsOnly = &http.Request{Method: "GET"}, &http.Request{Method: "HEAD"}, &http.Request{Method: "OPTIONS"}

// methodOnly returns a request with the only field that http.ReadResponse reads.
func methodOnly(m string) *http.Request {
	switch m {
	case http.MethodHead:
		return headOnly
	case http.MethodOptions:
		return optionsOnly
	}
	return getOnly
}

// appendRequest appends the head of a request. All its values were checked: the client's
// when they were parsed, and the bouncer's when they were made.
func appendRequest(dst []byte, in *Request, head *header.Outgoing, host string) []byte {
	dst = append(dst, in.Method...)
	dst = append(dst, ' ')
	dst = append(dst, in.Path...)
	if in.Query != "" {
		dst = append(dst, '?')
		dst = append(dst, in.Query...)
	}
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	if in.Host != "" {
		host = in.Host
	}
	dst = append(dst, host...)
	dst = append(dst, '\r', '\n')
	head.Each(func(name, value string) {
		dst = append(dst, name...)
		dst = append(dst, ':', ' ')
		dst = append(dst, value...)
		dst = append(dst, '\r', '\n')
	})
	return append(dst, '\r', '\n')
}

// send sends a request with http.Transport.
func (u *Upstream) send(ctx context.Context, r *http.Request, in *Request, head *header.Outgoing, interim func(int, http.Header)) (*Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	interims := 0
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
		if interims++; interims > maxInterim {
			return errInterim
		}
		interim(status, http.Header(h))
		return nil
	}})
	out := &http.Request{
		Method: in.Method, URL: &url.URL{Scheme: u.target.Scheme, Host: u.target.Host, Opaque: in.Path, RawQuery: in.Query},
		Header: head.Map(), Host: in.Host, ContentLength: r.ContentLength, Body: r.Body,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if r.ContentLength == 0 {
		out.Body = nil
	}
	if in.Upgrade {
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", "websocket")
	}
	resp, err := u.transport.RoundTrip(out.WithContext(ctx)) //nolint:bodyclose // Finish closes it
	if err != nil {
		cancel()
		return nil, err
	}
	// The transport reads under the context: a timer that cancels it is the read deadline.
	idle := time.AfterFunc(u.timeout, cancel)
	return &Answer{
		Response: resp,
		Extend:   func(d time.Duration) error { idle.Reset(d); return ctx.Err() },
		Finish: func(bool) {
			idle.Stop()
			_ = resp.Body.Close()
			cancel()
		},
	}, nil
}

// Drain reads the rest of a body, so that its connection can be used again. It returns false if
// more than 64 KiB were left or an error occurred.
func Drain(body io.Reader) bool {
	n, err := io.CopyN(io.Discard, body, 64<<10)
	return errors.Is(err, io.EOF) && n < 64<<10
}
