// Package outbound makes all outbound calls of gatehouse. If a tenant names the target, the client
// is guarded against server-side request forgery (SSRF): it checks the form of the URL when it is
// saved (Check), the addresses when the name is resolved, and the address of the socket when it
// connects. So neither an odd spelling nor a name whose address changes reaches an internal network.
// It does not follow redirects, limits replies and does not decompress them, and uses no proxy of
// the environment. All failures to reach a target look alike, so that they reveal nothing about the
// network.
//
// Trusted is for a target that the operator names: the control plane of a bouncer.
package outbound

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Config says which targets may be called, and sets limits.
type Config struct {
	// AllowCIDRs are networks that may be called on any port although they are not public, such as an
	// intranet.
	AllowCIDRs []netip.Prefix
	// AllowHTTP permits http:// as well as https://.
	AllowHTTP bool
	// PlainToAllowed permits http://, but only to the addresses of AllowCIDRs.
	PlainToAllowed bool
	// Timeout limits one Do, including the reply (10 s).
	Timeout time.Duration
	// MaxReply limits the body of a reply, in bytes (64 KiB).
	MaxReply int64
	// RootCAs replaces the system's certificate authorities.
	RootCAs *x509.CertPool
	// Resolve replaces the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Request describes one outbound HTTP request.
type Request struct {
	Method string // empty means GET
	URL    string
	Header http.Header
	Body   []byte
	// Large, if set, is called before more than the first SmallReply bytes of a reply are read, while
	// the target waits. If it returns an error, the call ends and Do returns that error.
	Large func(ctx context.Context) error
}

// SmallReply is how much of a reply is read before Request.Large is called, in bytes.
const SmallReply = 256 << 10

// Response is the answer of a target.
type Response struct {
	Status int
	Header http.Header
	// Body holds at most Config.MaxReply bytes. Truncated is set if the target sent more.
	Body      []byte
	Truncated bool
}

// OK reports whether the status is 2xx.
func (r Response) OK() bool { return r.Status >= 200 && r.Status < 300 }

// RetryAfter returns the pause that the target asks for, in seconds or until a date (RFC 9110 section
// 10.2.3), at most longest; 0: it asks for none.
func (r Response) RetryAfter(now time.Time, longest time.Duration) time.Duration {
	value := r.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(min(max(seconds, 0), int(longest/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), longest)
	}
	return 0
}

// Refused reports whether the target rejects the credential: 401 or 403.
func (r Response) Refused() bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
}

// StatusText returns the text of the status; empty without an answer.
func (r Response) StatusText() string { return http.StatusText(r.Status) }

// Client makes outbound calls. It is safe for concurrent use and reuses connections.
type Client struct {
	cfg     Config
	guarded bool
	http    *http.Client
}

// New returns a guarded client.
func New(cfg Config) *Client { return newClient(cfg, true) }

// Trusted returns a client without the guard, for a target that the operator configured. It does not
// follow redirects either. It ignores AllowCIDRs, AllowHTTP and Resolve, and uses the proxy of the
// environment.
func Trusted(cfg Config) *Client { return newClient(cfg, false) }

func newClient(cfg Config, guarded bool) *Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.MaxReply <= 0 {
		cfg.MaxReply = 64 << 10
	}
	if cfg.Resolve == nil {
		cfg.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	c := &Client{cfg: cfg, guarded: guarded}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.RootCAs},
		TLSHandshakeTimeout:    5 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        60 * time.Second,
		DisableCompression:     guarded, // MaxReply must limit the decompressed size
		ForceAttemptHTTP2:      true,
	}
	if guarded {
		transport.DialContext = c.dial
	} else {
		transport.Proxy = http.ProxyFromEnvironment
	}
	c.http = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if guarded {
		c.http.Transport = &gate{client: c, next: transport}
	}
	return c
}

// gate checks the form of each URL before its name is resolved.
type gate struct {
	client *Client
	next   *http.Transport
}

// listedOnly marks the context of a request that may be sent only to an address of AllowCIDRs.
type listedOnly struct{}

// RoundTrip implements http.RoundTripper. It refuses a URL with a refused form.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	t, err := g.client.form(r.URL.String())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must close it, also on errors
		}
		return nil, err
	}
	if t.listedOnly { // the dialer receives the values of the request's context
		r = r.WithContext(context.WithValue(r.Context(), listedOnly{}, true))
	}
	return g.next.RoundTrip(r)
}

// CloseIdleConnections is called by http.Client.
func (g *gate) CloseIdleConnections() { g.next.CloseIdleConnections() }

// HTTP returns the client behind Do, with the same guard, for long polls and streams. Only the
// context of each request limits their time.
func (c *Client) HTTP() *http.Client { return c.http }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do sends a request and reads the reply within Config.Timeout. An answer with any status, including
// 3xx, is a Response. All other outcomes are the same fault (BadGateway, target_unreachable), whose
// cause goes to the log.
func (c *Client) Do(ctx context.Context, req Request) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	method := cmp.Or(req.Method, http.MethodGet)
	if _, err := c.form(req.URL); err != nil && c.guarded {
		return Response{}, unreachable(err) // NewRequest would correct some of these URLs
	}
	r, err := http.NewRequestWithContext(ctx, method, req.URL, bytes.NewReader(req.Body))
	if err != nil {
		return Response{}, unreachable(err)
	}
	for name, values := range req.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	res, err := c.http.Do(r)
	if err != nil {
		return Response{}, unreachable(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, min(SmallReply, c.cfg.MaxReply)+1))
	if err != nil {
		return Response{}, unreachable(err)
	}
	if len(body) > SmallReply {
		if req.Large != nil {
			if err := req.Large(ctx); err != nil {
				return Response{}, err
			}
		}
		rest, err := io.ReadAll(io.LimitReader(res.Body, c.cfg.MaxReply+1-int64(len(body))))
		if err != nil {
			return Response{}, unreachable(err)
		}
		body = append(body, rest...)
	}
	out := Response{Status: res.StatusCode, Header: res.Header, Body: body}
	if int64(len(body)) > c.cfg.MaxReply {
		out.Body, out.Truncated = body[:c.cfg.MaxReply], true
	}
	return out, nil
}

// Signature returns the signature of a webhook body: `sha256=` and its HMAC-SHA256 (RFC 2104) in
// lower hex.
func Signature(secret, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// SignatureValid compares a signature in constant time. It returns false for an empty secret.
func SignatureValid(secret, body []byte, signature string) bool {
	return len(secret) > 0 && hmac.Equal([]byte(Signature(secret, body)), []byte(signature))
}

func unreachable(err error) error {
	return fault.New(fault.BadGateway, "target_unreachable", "the target could not be reached").Because(err)
}

// Bounded returns HTTP with replies limited to limit bytes each. Reading more is an error.
func (c *Client) Bounded(limit int64) *http.Client { return c.BoundedWith(limit, nil) }

// BoundedWith is Bounded. It also calls large when a reply has SmallReply bytes or more, before it reads
// on, while the target waits. If large returns an error, reading returns it.
func (c *Client) BoundedWith(limit int64, large func(context.Context) error) *http.Client {
	return &http.Client{Transport: &bounded{c.http.Transport, limit, large}, CheckRedirect: c.http.CheckRedirect}
}

type bounded struct {
	next  http.RoundTripper
	limit int64
	large func(context.Context) error
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, b.limit)
		if b.large != nil {
			res.Body = &announcedBody{ReadCloser: res.Body, large: func() error { return b.large(r.Context()) }, small: SmallReply}
		}
	}
	return res, err
}

// announcedBody calls large once, before it returns more than the first small bytes.
type announcedBody struct {
	io.ReadCloser
	large func() error
	small int
}

// Read reads the body.
func (b *announcedBody) Read(p []byte) (int, error) {
	if b.large == nil {
		return b.ReadCloser.Read(p)
	}
	if b.small == 0 {
		if err := b.large(); err != nil {
			return 0, err
		}
		b.large = nil
		return b.ReadCloser.Read(p)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.small)])
	b.small -= n
	return n, err
}

// Origin returns the scheme and host of a URL, to write into the audit log or to bind a stored
// credential to. The path is left out, because it may be a secret. It returns "" for text that is
// not a URL with a host.
func Origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + strings.ToLower(u.Host)
}

// SameOrigin reports whether two URLs have the same scheme and host. It returns false for text that
// is not a URL.
func SameOrigin(a, b string) bool { return Origin(a) != "" && Origin(a) == Origin(b) }
