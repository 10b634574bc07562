package identity

import (
	"context"
	"net/http"
	"net/url"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/signon"
)

// signInPage is the page of the console that explains a failed sign-in.
const signInPage = "/login"

// ssoLogin are the parameters of GET /auth/sso/login.
type ssoLogin struct {
	ReturnTo string `query:"return_to" maxLength:"2048" doc:"Path of this server to go to after the sign-in; by default the start page"`
}

// ssoCallback are the parameters of GET /auth/sso/callback.
type ssoCallback struct {
	State string `query:"state" doc:"The value from the start of the sign-in"`
	Code  string `query:"code" doc:"The authorization code"`
	Iss   string `query:"iss" doc:"The provider's issuer identifier (RFC 9207)"`
	Error string `query:"error" doc:"Why the provider did not sign the person in"`
}

// LogoutRequest is the body of POST /auth/sso/backchannel-logout.
type LogoutRequest struct {
	LogoutToken string `json:"logout_token" doc:"The provider's logout token: a signed JWT"`
}

// authSSO registers the sign-in at an identity provider.
func (h *Handler) authSSO(r *rest.Router) {
	tags := []string{"Authentication"}
	rest.Register(r, rest.Op{
		ID: "get-sign-on-offer", Method: http.MethodGet, Path: "/auth/sso", Public: true, Tags: tags,
		Summary:     "How people can sign in",
		Description: "For the sign-in page. The tenant is the one that the request names, by default the default tenant. An unknown tenant looks like one without an identity provider.",
	}, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[signon.Offer], error) {
		return rest.Answer(h.SignOn.Offer(ctx, sc.Tenant))
	})
	rest.Raw(r, rest.Op{
		ID: "start-sign-on", Method: http.MethodGet, Path: "/auth/sso/login", Public: true, Tags: tags, Status: http.StatusFound, FailurePage: signInPage,
		Errors:      []int{http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests, http.StatusBadGateway},
		Summary:     "Sign in at the identity provider",
		Description: "Redirects a browser to the tenant's identity provider (OpenID Connect, authorization code flow with PKCE). The tenant is the one that the request names by host or tenant_id, by default the default tenant. Without a provider: 404 `sign_on_off`. return_to must be a path of this server: 400 `invalid_return_to`. A cookie holds the state of the sign-in for ten minutes. A browser that comes from a page of another origin starts on the sign-in page: 403 `cross_origin`. If the sign-in fails, a browser (`Accept: text/html`) is redirected to `/login?error=<code>`.",
	}, rest.RawDocs{Params: reflect.TypeFor[ssoLogin]()}, h.startSignOn)
	rest.Raw(r, rest.Op{
		ID: "finish-sign-on", Method: http.MethodGet, Path: "/auth/sso/callback", Public: true, Tags: tags, Status: http.StatusSeeOther, FailurePage: signInPage,
		Errors:      []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests, http.StatusBadGateway},
		Summary:     "Return from the identity provider",
		Description: "The redirect URI to register at the provider. It starts a browser session and redirects to the page for which the sign-in was started. 400 `invalid_state`: this browser did not start the sign-in, or it was used already. 400 `wrong_issuer`: the answer comes from another provider. 401: the provider did not confirm the person (`sign_on_denied`, `code_refused`, `invalid_id_token`). 403: the person may not sign in (`no_account`, `account_disabled`, `email_not_verified`, `email_domain_denied`). 409 `account_exists`: another account has the e-mail address; an administrator links it to the identity. A browser (`Accept: text/html`) is redirected to `/login?error=<code>` instead.",
	}, rest.RawDocs{Params: reflect.TypeFor[ssoCallback]()}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) { h.finishSignOn(r, w, req, sc) })
	rest.Raw(r, rest.Op{
		ID: "end-sessions-of-provider", Method: http.MethodPost, Path: "/auth/sso/backchannel-logout", Public: true, Tags: tags, Status: http.StatusOK,
		Errors:      []int{http.StatusNotFound, http.StatusTooManyRequests, http.StatusBadGateway},
		Summary:     "Back-channel logout",
		Description: "The identity provider calls this to end sessions (OpenID Connect Back-Channel Logout). tenant_id names the tenant. A valid logout token ends the sessions of its `sid`, or without one all sessions of its `sub`, at once. Any other token: 400.",
	}, rest.RawDocs{
		Request: reflect.TypeFor[LogoutRequest](), RequestType: "application/x-www-form-urlencoded", Response: reflect.TypeFor[Done](),
	}, h.endSessionsOfProvider)
}

func (h *Handler) startSignOn(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	a, err := rest.ArrivalOf(w, req)
	if err == nil {
		err = a.CheckOrigin() // otherwise an attacker's link could sign people in to the attacker's tenant
	}
	if err != nil {
		rest.Fail(w, err)
		return
	}
	began, err := h.SignOn.Start(req.Context(), sc, a.Origin, req.URL.Query().Get("return_to"))
	if err != nil {
		rest.Fail(w, err)
		return
	}
	w.Header().Set("Set-Cookie", a.SetSignOn(began.Cookie, began.Life))
	redirect(w, http.StatusFound, began.Location)
}

func (h *Handler) finishSignOn(r *rest.Router, w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	a, err := rest.ArrivalOf(w, req)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	w.Header().Add("Set-Cookie", a.SetSignOn("", 0)) // a cookie is valid for one attempt
	named, err := r.TenantOf(req)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	done, err := h.SignOn.Finish(req.Context(), sc, signon.Answer{Cookie: a.SignOn, Named: named, Query: req.URL.Query()}, auth.Browser{Agent: a.Agent, Cookie: a.Cookie})
	if err != nil {
		rest.FailForTenant(w, done.Tenant, err)
		return
	}
	w.Header().Add("Set-Cookie", a.SetCookie(done.Cookie, done.Session.ExpiresAt.Sub(done.Session.CreatedAt)))
	redirect(w, http.StatusSeeOther, done.ReturnTo)
}

// redirect sends the browser to another page. Caches and referrers must not contain the answer or
// the current address, which may contain a code.
func redirect(w http.ResponseWriter, status int, location string) {
	h := w.Header()
	h.Set("Location", location)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
}

// endSessionsOfProvider answers 400 to a bad token (OpenID Connect Back-Channel Logout 1.0, section
// 2.8).
func (h *Handler) endSessionsOfProvider(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	w.Header().Set("Cache-Control", "no-store")
	data, err := rest.Body(w, req)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	form, err := url.ParseQuery(string(data))
	if err != nil || len(form["logout_token"]) != 1 {
		rest.Fail(w, invalidRequest("send one logout_token"))
		return
	}
	err = h.SignOn.EndOnRequest(req.Context(), sc, form.Get("logout_token"))
	if fault.Is(err, fault.Unauthenticated) {
		err = rest.BadRequest("invalid_logout_token", "%s", fault.Message(err))
	}
	if err != nil {
		rest.Fail(w, err)
		return
	}
	rest.WriteJSON(w, http.StatusOK, Done{"The sessions have ended"})
}
