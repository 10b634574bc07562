package identity

import (
	"context"
	"mime"
	"net/http"
	"net/url"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/schema"
	"github.com/gatehouse-dev/gatehouse/internal/rest/site"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// LoginRequest is the body of POST /auth/login.
type LoginRequest struct {
	Username string `json:"username" maxLength:"254" doc:"User name or e-mail address, ignoring case"`
	Password string `json:"password" maxLength:"1024" writeOnly:"true" doc:"Password"`
	Code     string `json:"code,omitempty" maxLength:"64" writeOnly:"true" doc:"For people with a second factor: a code of the authenticator app, or a recovery code"`
}

// proof returns the proof of identity in the request.
func (q LoginRequest) proof() auth.Proof {
	return auth.Proof{Username: q.Username, Password: q.Password, Code: q.Code}
}

// Me is the caller, as GET /auth/me shows it.
type Me struct {
	user.User
	// Permissions is the same as User's own member, but is always present.
	Permissions []string        `json:"permissions" nullable:"false" doc:"Scopes held; empty for none"`
	Kind        scope.ActorKind `json:"kind" enum:"user,api_key,bouncer" doc:"The owner of the credential; an API key or bouncer has the same fields as a person"`
	TenantID    scope.TenantID  `json:"tenant_id" doc:"Tenant that the request works in"`
	Environment scope.Env       `json:"environment,omitempty" enum:"sandbox,production" doc:"The only environment in which the credential is valid; absent: both"`
	MustEnrol   bool            `json:"must_enrol_second_factor,omitempty" doc:"The tenant requires a second factor and the person has none: until it is enrolled, everything else is 403 second_factor_enrolment_required"`
}

// Done is an answer with a message only.
type Done struct {
	Message string `json:"message" doc:"What was done"`
}

// SignedOut is the answer of POST /auth/logout.
type SignedOut struct {
	Done
	EndSessionURL string `json:"end_session_url,omitempty" doc:"Where to send the browser to sign out at the identity provider, too; absent for sign-ins without one"`
}

type signedOutOut struct {
	SetCookie string `header:"Set-Cookie" doc:"Deletes the session cookie, if the browser sent one"`
	Body      SignedOut
}

// auth registers signing in and out, and the token endpoint.
func (h *Handler) auth(r *rest.Router) {
	tags := []string{"Authentication"}
	rest.Register(r, rest.Op{
		ID: "login", Method: http.MethodPost, Path: "/auth/login", Public: true, Tags: tags,
		Errors:      []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests},
		Summary:     "Sign in",
		Description: "Issues a token that is valid for an hour. Every failure gets the same 401: unknown name, wrong password or disabled account. Ten failures within 15 minutes lock this account for this client address for 15 minutes: 429 `locked` with Retry-After. Other addresses can still sign in. While someone guesses the password, addresses that have never signed in to the account wait up to two seconds. 429 `too_many_sign_ins`: too many callers are waiting. 403 `password_login_off`: people of the tenant sign in through its identity provider. People with a second factor also send `code`; without it, a right password gets 401 `second_factor_required` with a `challenge` for /auth/login/second-factor, and with a wrong one 401 `second_factor_invalid`.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[LoginRequest]) (*rest.JSON[auth.Grant], error) {
		return rest.Answer(h.Auth.Login(ctx, sc, in.Body.proof()))
	})
	rest.Register(r, rest.Op{
		ID: "logout", Method: http.MethodPost, Path: "/auth/logout", Reach: rest.ReachSelf, Enrols: true, Tags: tags,
		Summary:     "Sign out",
		Description: "Ends the caller's session at once, and the tokens that were created from it. After a sign-in at an identity provider, `end_session_url` ends the session there, too. API keys have no session: 400.",
	}, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*signedOutOut, error) {
		out := &signedOutOut{Body: SignedOut{Done: Done{"Signed out"}}}
		if b, err := r.Browser(ctx); err == nil && b.Cookie != "" {
			out.SetCookie = b.SetCookie("", 0)
		}
		by, err := h.Auth.Sessions.Logout(ctx, sc)
		if err == nil {
			out.Body.EndSessionURL = h.SignOn.EndSessionURL(ctx, auth.Home(sc), by)
		}
		return out, err
	})
	rest.Register(r, rest.Op{
		ID: "get-current-user", Method: http.MethodGet, Path: "/auth/me", Reach: rest.ReachSelf, Enrols: true, Tags: tags,
		Summary:     "The caller",
		Description: "permissions holds the scopes of the credential.",
	}, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[Me], error) {
		u, err := h.Auth.Me(ctx, sc)
		me := Me{User: u, Permissions: u.Permissions, Kind: sc.Actor.Kind, TenantID: sc.Tenant, MustEnrol: sc.EnrolOnly}
		if sc.EnvBound {
			me.Environment = sc.Env
		}
		return rest.Answer(me, err)
	})
	rest.Raw(r, rest.Op{
		ID: "issue-token", Method: http.MethodPost, Path: "/auth/token", Public: true, Tags: tags,
		Errors:      []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests},
		Summary:     "OAuth 2.0 token endpoint",
		Description: "The grants password and client_credentials (RFC 6749). For client_credentials, the API key is the client secret, sent in the body or by HTTP Basic. With scope, the token gets only a part of the scopes. People with a second factor send `code` with the password: 400 `second_factor_required` without it.",
	},
		rest.RawDocs{
			Request: reflect.TypeFor[auth.TokenRequest](), RequestType: "application/x-www-form-urlencoded, application/json",
			Response: reflect.TypeFor[auth.Grant](),
		}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
			g, err := h.token(r, w, req, sc)
			if err != nil {
				rest.Fail(w, err)
				return
			}
			w.Header()["Pragma"] = []string{"no-cache"} // RFC 6749 section 5.1
			rest.WriteJSON(w, http.StatusOK, g)
		})
}

// token handles a request to the token endpoint. It needs the tenant that the request names,
// because a stranger's scope does not distinguish a request for the default tenant from one without
// a tenant.
func (h *Handler) token(r *rest.Router, w http.ResponseWriter, req *http.Request, sc scope.Scope) (auth.Grant, error) {
	ask, err := tokenRequest(w, req)
	if err != nil {
		return auth.Grant{}, err
	}
	if ask.Named, err = r.TenantOf(req); err != nil {
		return auth.Grant{}, err
	}
	return h.Auth.Token(req.Context(), sc, ask)
}

func invalidRequest(format string, args ...any) error {
	return rest.BadRequest("invalid_request", format, args...)
}

// tokenRequest reads a token request: a form, as in OAuth, or JSON. It refuses duplicate
// parameters. It ignores unknown ones in a form (RFC 6749 section 3.2), and refuses them in JSON,
// which is our own addition.
func tokenRequest(w http.ResponseWriter, req *http.Request) (auth.TokenRequest, error) {
	var ask auth.TokenRequest
	data, err := rest.Body(w, req)
	if err != nil {
		return ask, err
	}
	members := map[string]*string{
		"grant_type": &ask.GrantType, "username": &ask.Username, "password": &ask.Password,
		"client_id": &ask.ClientID, "client_secret": &ask.ClientSecret, "scope": &ask.Scope, "code": &ask.Code,
	}
	if media, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); media == "application/json" {
		err = jsonMembers(data, members)
	} else {
		err = formMembers(string(data), members)
	}
	if err != nil {
		return ask, err
	}
	if id, secret, ok := req.BasicAuth(); ok {
		if ask.ClientSecret != "" {
			return ask, invalidRequest("send the client's secret only once")
		}
		if ask.ClientID, err = url.QueryUnescape(id); err == nil {
			ask.ClientSecret, err = url.QueryUnescape(secret)
		}
		if err != nil {
			return ask, invalidRequest("the Authorization header cannot be read")
		}
	}
	return ask, nil
}

func jsonMembers(data []byte, members map[string]*string) error {
	doc, err := rest.Parse(data)
	if err != nil {
		return err
	}
	if doc.Kind() != value.ObjectKind {
		return invalidRequest("the body must be an object")
	}
	var unknown []fault.Detail
	doc.Each(func(name string, _ value.Value) bool {
		if members[name] == nil {
			unknown = append(unknown, fault.Detail{Pointer: schema.Pointer([]string{name}), Message: "there is no such member here"})
		}
		return len(unknown) < schema.MaxDetails
	})
	if len(unknown) > 0 {
		e := rest.BadRequest("invalid_request", "the body has unknown members")
		e.Details = unknown
		return e
	}
	for name, dst := range members {
		v := doc.Get(name)
		text, ok := v.Str()
		if !ok && v.Kind() != value.UndefinedKind {
			return invalidRequest("%s must be a string", name)
		}
		*dst = text
	}
	return nil
}

func formMembers(text string, members map[string]*string) error {
	form, err := url.ParseQuery(text)
	if err != nil {
		return invalidRequest("the form cannot be read")
	}
	for name, dst := range members {
		values := form[name]
		if len(values) > 1 {
			return invalidRequest("%s is sent twice", name)
		}
		if len(values) == 1 {
			*dst = values[0]
		}
	}
	return nil
}

// inTenant returns the handler of an operation whose path names a tenant. It calls run with the
// scope in that tenant (scopeOfTenant).
func inTenant[I any, P interface {
	*I
	tenant() scope.TenantID
}, O any](h *Handler, run func(ctx context.Context, sc scope.Scope, in P) (*O, error)) func(context.Context, scope.Scope, *I) (*O, error) {
	return func(ctx context.Context, sc scope.Scope, in *I) (*O, error) {
		sc, err := h.scopeOfTenant(ctx, sc, P(in).tenant())
		if err != nil {
			return nil, err
		}
		return run(ctx, sc, in)
	}
}

// scopeOfTenant returns the scope of an operation whose path names a tenant. Only platform
// administrators may name another tenant than their own.
func (h *Handler) scopeOfTenant(ctx context.Context, sc scope.Scope, id scope.TenantID) (scope.Scope, error) {
	if !sc.Platform && id != sc.Tenant {
		return sc, rest.TenantDenied(string(id))
	}
	if !site.IsLabel(string(id)) {
		return sc, fault.New(fault.NotFound, "tenant_not_found", "there is no such tenant").With("tenant_id", string(id))
	}
	return h.Auth.InTenant(ctx, sc, id)
}
