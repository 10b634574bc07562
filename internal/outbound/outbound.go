// Package outbound is the only way for gatehouse to call out. Where a tenant
// names the target, the target is guarded: its form when it is saved (Check),
// its addresses when it is resolved, and the address of the socket itself when
// it connects, so that neither an odd spelling nor a name that changes its answer
// reaches an inner network. Redirects are not followed, replies are bounded and
// not decompressed, and no proxy of the environment is used. All failures to
// reach a target read the same, so that they tell nothing about the network.
//
// Trusted is for the one target that the operator names: a bouncer's own control
// plane.
package outbound

import (
	"bytes"
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

// Config says what may be called, and how.
type Config struct {
	// AllowCIDRs are ranges that may be called although they are not public, on
	// any port: an intranet, or a test.
	AllowCIDRs []netip.Prefix
	// AllowHTTP permits http:// beside https://.
	AllowHTTP bool
	// PlainToAllowed permits http:// to the addresses of AllowCIDRs alone.
	PlainToAllowed bool
	// Timeout bounds one Do, reply included (10 s).
	Timeout time.Duration
	// MaxReply is how much of a reply's body is read, in bytes (64 KiB).
	MaxReply int64
	// RootCAs replaces the system's certificate authorities.
	RootCAs *x509.CertPool
	// Resolve replaces the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Request is one call.
type Request struct {
	Method string // empty means GET
	URL    string
	Header http.Header
	Body   []byte
	// Large, if set, is called before more than its first SmallReply bytes of a reply are read. The
	// other side waits meanwhile. Its error ends the call, and Do returns it.
	Large func(ctx context.Context) error
}

// SmallReply is how much of a reply is read without Request.Large, in bytes.
const SmallReply = 256 << 10

// Response is what came back.
type Response struct {
	Status int
	Header http.Header
	// Body holds at most Config.MaxReply bytes; Truncated is set when more came.
	Body      []byte
	Truncated bool
}

// OK reports whether the target took the call: a 2xx.
func (r Response) OK() bool { return r.Status >= 200 && r.Status < 300 }

// RetryAfter is the pause that the target asks for, in seconds or until a date (RFC 9110),
// at most longest; 0: none.
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

// Refused reports whether the target does not take the credential: 401 or 403.
func (r Response) Refused() bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
}

// StatusText is the text of the status; empty without an answer.
func (r Response) StatusText() string { return http.StatusText(r.Status) }

// Client calls out. It is safe for concurrent use and keeps connections.
type Client struct {
	cfg     Config
	guarded bool
	http    *http.Client
}

// New makes a guarded client.
func New(cfg Config) *Client { return newClient(cfg, true) }

// Trusted makes a client without the guard, for a target that the operator
// configured. It still follows no redirects. AllowCIDRs, AllowHTTP and Resolve
// say nothing to it.
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
		DisableCompression:     guarded, // an inflated reply would count for nothing
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

// gate checks the form of every URL before anything is resolved.
type gate struct {
	client *Client
	next   *http.Transport
}

// listedOnly marks the context of a request that only an address of AllowCIDRs may get.
type listedOnly struct{}

// RoundTrip refuses targets whose form is refused.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	t, err := g.client.form(r.URL.String())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a transport closes it, also when it fails
		}
		return nil, err
	}
	if t.listedOnly { // the dialer of a connection gets the values of its request's context
		r = r.WithContext(context.WithValue(r.Context(), listedOnly{}, true))
	}
	return g.next.RoundTrip(r)
}

// CloseIdleConnections is what http.Client looks for.
func (g *gate) CloseIdleConnections() { g.next.CloseIdleConnections() }

// HTTP is the client behind Do, guarded alike, for long polls and streams: only
// the request's context bounds them.
func (c *Client) HTTP() *http.Client { return c.http }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do sends a request and reads its reply, within Config.Timeout. An answer with
// any status, 3xx included, is a Response; whatever else goes wrong is one and
// the same fault (BadGateway, target_unreachable), with the cause for the log.
func (c *Client) Do(ctx context.Context, req Request) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	if _, err := c.form(req.URL); err != nil && c.guarded {
		return Response{}, unreachable(err) // NewRequest would mend some of it
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

// Signature is what signs an outgoing body: `sha256=` and the lower hex of its
// HMAC-SHA256 (specification, webhooks).
func Signature(secret, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// SignatureValid compares a signature in constant time.
func SignatureValid(secret, body []byte, signature string) bool {
	return len(secret) > 0 && hmac.Equal([]byte(Signature(secret, body)), []byte(signature))
}

func unreachable(err error) error {
	return fault.New(fault.BadGateway, "target_unreachable", "the target could not be reached").Because(err)
}

// Bounded is HTTP with replies of at most limit bytes each: reading on is an error.
func (c *Client) Bounded(limit int64) *http.Client {
	return &http.Client{Transport: &bounded{c.http.Transport, limit}, CheckRedirect: c.http.CheckRedirect}
}

type bounded struct {
	next  http.RoundTripper
	limit int64
}

// RoundTrip gives the reply with its body bounded.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, b.limit)
	}
	return res, err
}

// Origin is scheme and host of a URL: what may be written into the audit, and what a
// stored credential is bound to. The path is often a secret itself. It is empty for an
// empty URL, and for what is not a URL.
func Origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + strings.ToLower(u.Host)
}

// SameOrigin reports whether two URLs have the same scheme and host. What is not a URL has
// the origin of no other.
func SameOrigin(a, b string) bool { return Origin(a) != "" && Origin(a) == Origin(b) }
