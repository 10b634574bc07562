package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/origin"
	"github.com/gatehouse-dev/gatehouse/internal/rest/site"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// backgroundHeader marks requests that a page makes without a person.
const backgroundHeader = "X-Background"

// visit is a request in the view of the rules for cookies and origins.
type visit struct {
	r   *Router
	req *http.Request
}

// secure reports whether the caller used TLS: on this connection, according to a trusted proxy, or
// because the deployment has an https URL and the caller used its host.
func (v visit) secure() bool {
	if v.req.TLS != nil {
		return true
	}
	if proto := v.forwardedProto(); proto != "" {
		return strings.EqualFold(proto, "https")
	}
	public, err := url.Parse(v.r.cfg.PublicURL)
	return err == nil && public.Scheme == "https" && strings.EqualFold(public.Host, v.req.Host)
}

// forwardedProto returns the scheme that the caller used according to a trusted proxy; empty
// without one.
func (v visit) forwardedProto() string {
	if proto := v.req.Header["X-Forwarded-Proto"]; len(proto) == 1 && v.proxied() {
		return proto[0]
	}
	return ""
}

// proxied reports whether the request comes from a trusted proxy.
func (v visit) proxied() bool {
	return len(v.r.cfg.TrustedProxies) > 0 && v.r.trusted(origin.Peer(v.req))
}

// site returns the verified custom domain that was called; the zero value for none.
func (v visit) site() site.Site { return v.r.cfg.Hosts.At(site.Name(v.r.calledHost(v.req))) }

// sendHSTS makes browsers use only TLS from now on, if the domain asks for it and the request used
// TLS (RFC 6797, section 7.2).
func (v visit) sendHSTS(h http.Header) {
	if v.req.TLS == nil && len(v.r.cfg.TrustedProxies) == 0 {
		return
	}
	if s := v.site(); s.HSTS > 0 && v.secure() {
		h["Strict-Transport-Security"] = []string{"max-age=" + strconv.FormatInt(s.HSTS, 10)}
	}
}

// cookieName returns the name of one of our cookies: the first without TLS, the second with it.
func (v visit) cookieName(plain, secure string) string {
	if v.secure() {
		return secure
	}
	return plain
}

// cookie returns the session cookie of the request. It is empty for none, and for several: somebody
// else may have set one of them.
func (v visit) cookie() string {
	if len(v.req.Header["Cookie"]) == 0 {
		return ""
	}
	return v.cookieNamed(v.cookieName(scope.SessionCookie, scope.SecureSessionCookie))
}

// cookieNamed returns the only cookie of a name; empty for none and for several.
func (v visit) cookieNamed(name string) string {
	shown := v.req.CookiesNamed(name)
	if len(shown) != 1 {
		return ""
	}
	return shown[0].Value
}

// setCookie returns the header that stores a session's cookie in the browser for a time; less than
// a second deletes it.
func (v visit) setCookie(value string, life time.Duration) string {
	return v.cookieFor(v.cookieName(scope.SessionCookie, scope.SecureSessionCookie), value, life, http.SameSiteStrictMode)
}

func (v visit) cookieFor(name, value string, life time.Duration, site http.SameSite) string {
	c := http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, Secure: v.secure(), SameSite: site,
	}
	if c.MaxAge <= 0 {
		c.MaxAge = -1
	}
	return c.String()
}

// sameOrigin refuses requests that a page of another origin makes a browser send. If the other
// origin is a subdomain of the same site, such requests carry the cookie, so SameSite is not
// enough. Browsers report the origin of a request in Sec-Fetch-Site, and without TLS only in
// Origin. A request that changes something or opens a socket must carry one of them.
func (v visit) sameOrigin() error {
	safe := (v.req.Method == http.MethodGet || v.req.Method == http.MethodHead) && len(v.req.Header["Upgrade"]) == 0
	ok := safe
	if site := v.req.Header["Sec-Fetch-Site"]; len(site) > 0 {
		ok = len(site) == 1 && (site[0] == "same-origin" || safe && site[0] == "none")
	} else if origin := v.req.Header["Origin"]; len(origin) > 0 {
		ok = len(origin) == 1 && v.isOwnOrigin(origin[0])
	}
	if ok {
		return nil
	}
	return crossOrigin("a session cookie is valid for pages of this origin only; API clients must send a token or a key")
}

func crossOrigin(message string) error { return fault.New(fault.Forbidden, "cross_origin", message) }

// isOwnOrigin reports whether an Origin header names the origin that was called.
func (v visit) isOwnOrigin(text string) bool {
	scheme, host, ok := origin.Parse(text)
	if !ok || scheme == "http" && v.secure() {
		return false
	}
	if strings.EqualFold(host, v.req.Host) || origin.IsOf(scheme, host, v.r.cfg.PublicURL) {
		return true
	}
	forwarded := v.req.Header["X-Forwarded-Host"]
	return len(forwarded) == 1 && v.proxied() && strings.EqualFold(host, forwarded[0])
}

// relayed reports whether the caller's address is uncertain: a proxy forwarded the request, and it
// is not trusted or does not name the caller.
func (v visit) relayed() bool {
	if !origin.Relayed(v.req.Header) {
		return false
	}
	a := origin.Peer(v.req)
	_, known := v.r.forwarded(v.req, a)
	return !known || !v.r.trusted(a)
}

// Browser is the client of a typed handler that signs people in and out.
type Browser struct {
	// Agent is the User-Agent header, Cookie the session cookie; empty for none.
	Agent, Cookie string
	// Relayed is true if the request comes through a proxy that is not trusted or does not name the
	// caller.
	Relayed bool

	visit visit
}

// SetCookie returns the header that stores a session's cookie in the browser for a time. A life of
// 0 deletes it.
func (b Browser) SetCookie(value string, life time.Duration) string {
	return b.visit.setCookie(value, life)
}

// Browser returns the client of a typed handler's request. It refuses a request that does not come
// from a page of our own origin: 403 cross_origin.
func (r *Router) Browser(ctx context.Context) (Browser, error) {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return Browser{}, errors.New("rest: no exchange in the context")
	}
	v := visit{r, x.req}
	if err := v.sameOrigin(); err != nil {
		return Browser{}, err
	}
	return Browser{Agent: x.req.UserAgent(), Cookie: v.cookie(), Relayed: v.relayed(), visit: v}, nil
}
