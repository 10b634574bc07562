package rest

import (
	"net/http"
	"net/url"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/origin"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Arrival is a browser that a link or another site's redirect sent to a Raw operation. Unlike for
// Browser, its origin does not matter: the operation must not trust its session cookie, but only
// what the request itself proves.
type Arrival struct {
	// Agent is the User-Agent header, Cookie the session cookie; empty for none.
	Agent, Cookie string
	// SignOn is the cookie that connects the steps of a sign-in at an identity provider.
	SignOn string
	// Origin is the origin that was called, if its host belongs to a tenant; else empty.
	Origin string

	visit visit
}

// ArrivalOf returns the client of a Raw operation's request.
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

// CheckOrigin refuses a browser that a page of another origin sent: Forbidden "cross_origin".
// Otherwise another site could start an operation in its visitor's name.
func (a Arrival) CheckOrigin() error {
	if origin.IsCrossOrigin(a.visit.req.Header) {
		return crossOrigin("this must start on a page of this server")
	}
	return nil
}

// SetCookie returns the header that stores a session's cookie in the browser for a time.
func (a Arrival) SetCookie(value string, life time.Duration) string {
	return a.visit.setCookie(value, life)
}

// SetSignOn returns the header that stores the cookie of a sign-in in the browser for a time; 0
// deletes it. SameSite is Lax, because the provider's redirect must carry the cookie.
func (a Arrival) SetSignOn(value string, life time.Duration) string {
	name := a.visit.cookieName(scope.SignOnCookie, scope.SecureSignOnCookie)
	return a.visit.cookieFor(name, value, life, http.SameSiteLaxMode)
}

// FailForTenant is like Fail. tenant is the tenant of the failure page, if the request itself does not
// name it.
func FailForTenant(w http.ResponseWriter, tenant scope.TenantID, err error) {
	if x, ok := w.(*exchange); ok && tenant != "" {
		x.scope.Tenant = tenant
	}
	Fail(w, err)
}

// sendToPage sends a browser to the operation's failure page. It passes on the code of the fault
// and a tenant that is served, but nothing that the request or another server sent.
func (x *exchange) sendToPage(f *fault.Error) bool {
	if x.route == nil || x.route.op.FailurePage == "" || !origin.WantsPage(x.req.Header["Accept"]) {
		return false
	}
	query := url.Values{"error": {f.Code}}
	if t := x.scope.Tenant; t != "" && t != scope.DefaultTenant {
		query.Set("tenant_id", string(t))
	}
	h := x.Header()
	h.Set("Location", x.route.op.FailurePage+"?"+query.Encode())
	h["Referrer-Policy"] = noReferrer
	h["Cache-Control"] = noStore
	x.WriteHeader(http.StatusSeeOther)
	return true
}

func (v visit) scheme() string {
	if v.secure() {
		return "https"
	}
	return "http"
}
