package rest

import (
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Arrival is a browser that a link or another site's redirect brought to a Raw operation.
// Where it comes from does not matter, unlike for Browser: the operation must not trust it
// for its session cookie, but for what the request itself proves.
type Arrival struct {
	// Agent is the User-Agent header, Cookie the session cookie; empty for none.
	Agent, Cookie string
	// SignOn is the cookie that keeps a sign-in at an identity provider together.
	SignOn string
	// Origin is the origin that was called, if its host belongs to a tenant; else empty.
	Origin string

	visit visit
}

// ArrivalOf gives the client of a Raw operation's request.
func ArrivalOf(w http.ResponseWriter, req *http.Request) (Arrival, error) {
	x, ok := w.(*exchange)
	if !ok {
		return Arrival{}, errNoExchange
	}
	v := visit{x.r, req}
	a := Arrival{
		Agent: req.UserAgent(), Cookie: v.cookie(), visit: v,
		SignOn: v.cookieNamed(v.cookieName(scope.SignOnCookie, scope.SecureSignOnCookie)),
	}
	if x.r.tenantOfHost(req) != "" {
		a.Origin = v.scheme() + "://" + x.r.calledHost(req)
	}
	return a, nil
}

// SetCookie is the header that has the browser keep a session's cookie for a time.
func (a Arrival) SetCookie(value string, life time.Duration) string {
	return a.visit.setCookie(value, life)
}

// SetSignOn is the header that has the browser keep the cookie of a sign-in for a time; no
// time takes it away. The provider's redirect must bring the cookie along, so SameSite is
// Lax.
func (a Arrival) SetSignOn(value string, life time.Duration) string {
	name := a.visit.cookieName(scope.SignOnCookie, scope.SecureSignOnCookie)
	return a.visit.cookieFor(name, value, life, http.SameSiteLaxMode)
}

func (v visit) scheme() string {
	if v.secure() {
		return "https"
	}
	return "http"
}
