package rest

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/origin"
	"github.com/gatehouse-dev/gatehouse/internal/rest/site"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Credential is what a request contains about its caller.
type Credential struct {
	Bearer, APIKey string
	// Cookie is the value of a browser's session cookie. A key or a token has precedence.
	Cookie string
	// Idle is true if a page makes the request without a person.
	Idle bool
	// Enrolling is true if the operation serves people who must enrol a second factor.
	Enrolling     bool
	TenantHint    scope.TenantID
	EnvHint       scope.Env
	IP, RequestID string
}

// Authenticator turns a credential into its scope. Its faults are Unauthenticated,
// Forbidden and NotFound for a credential that is refused.
type Authenticator func(ctx context.Context, c Credential) (scope.Scope, Principal, error)

// Recheck authenticates the credential of a stream or a socket that stays open, and checks the
// permissions that it needs. While the store does not answer, was remains valid, as for requests.
// The error is the refusal, or ctx's own if ctx has ended.
func (a Authenticator) Recheck(ctx context.Context, c Credential, was scope.Scope, permissions ...scope.Permission) (scope.Scope, error) {
	sc, _, err := a(ctx, c)
	for _, p := range permissions {
		if err == nil {
			err = sc.Require(p)
		}
	}
	switch {
	case err == nil:
		return sc, nil
	case fault.Is(err, fault.Unauthenticated), fault.Is(err, fault.Forbidden), fault.Is(err, fault.NotFound):
		return scope.Scope{}, err
	default:
		return was, ctx.Err()
	}
}

// Principal is what the rate limit needs to know about a caller.
type Principal struct {
	// KeyID is set for API keys, and for tokens made from one.
	KeyID string
	// Tenant is the key's own tenant, in which its requests are counted.
	Tenant scope.TenantID
	// Plan is the tenant's plan, which sets the key's limit.
	Plan string
	// RateLimited is set for keys. People and bouncers are not counted.
	RateLimited bool
	// Limit is the caller's own limit in requests an hour; 0: that of the plan.
	Limit int64
}

// BadRequest returns the fault for a request that cannot be read.
func BadRequest(code, format string, args ...any) *fault.Error {
	return fault.Newf(fault.BadRequest, code, format, args...)
}

// authenticate finds the caller and counts the request against the caller's limit.
// It also counts requests that name a wrong tenant or environment, so that probing
// is not free. Two credentials are refused before either is looked up.
func (r *Router) authenticate(x *exchange, rt *route, req *http.Request) (scope.Scope, error) {
	c, offence := r.credential(x, req)
	if c.Bearer == "" && c.APIKey == "" && c.Cookie == "" {
		if offence == nil {
			offence = fault.New(fault.Unauthenticated, "authentication_required", "send an API key or an access token")
		}
		return scope.Scope{}, offence
	}
	if c.Cookie != "" {
		if err := (visit{r, req}).sameOrigin(); err != nil {
			return scope.Scope{}, err
		}
	}
	sc, who, err := r.cfg.Authenticate(req.Context(), c)
	if over := r.limiter.count(req.Context(), x, rt, who); over != nil {
		return scope.Scope{}, over
	}
	if offence != nil {
		return scope.Scope{}, offence
	}
	if err == nil { // a credential that is not valid is answered alike everywhere
		err = rt.checkManner(c)
	}
	if err != nil {
		return scope.Scope{}, err
	}
	x.scope, x.authenticated = sc, true
	if rt.namesTenant && !sc.Platform {
		if id := req.PathValue("tenant_id"); id != string(sc.Tenant) {
			return scope.Scope{}, TenantDenied(id)
		}
	}
	return sc, nil
}

// checkManner refuses (401) a valid credential that the operation does not take, or not in
// the header that it was sent in.
func (rt *route) checkManner(c Credential) error {
	switch {
	case rt.op.Bearer && c.APIKey != "":
		return fault.New(fault.Unauthenticated, "authentication_required", "send the credential, a token or a key, as Authorization: Bearer")
	case rt.op.Token && c.Cookie == "" && !isToken(c.Bearer):
		return fault.New(fault.Unauthenticated, "authentication_required", "send an access token as Authorization: Bearer; API keys are not accepted here")
	}
	return nil
}

// isToken reports whether a credential has the three parts of a signed token (RFC 7515
// section 3.1). An API key has no dot.
func isToken(text string) bool { return strings.Count(text, ".") == 2 }

// TenantDenied returns the fault for a caller who may not know whether a tenant exists.
func TenantDenied(id string) *fault.Error {
	return fault.New(fault.Forbidden, "tenant_access_denied", "this credential has no access to that tenant").With("tenant_id", id)
}

// anonymous returns the scope of a request without a credential.
func (r *Router) anonymous(x *exchange, req *http.Request) (scope.Scope, error) {
	var sc scope.Scope
	query, err := parseQuery(req)
	if err != nil {
		return sc, err
	}
	if sc.Tenant, err = r.tenantOf(req, query); err != nil {
		return sc, err
	}
	if sc.Env, err = envOf(req, query); err != nil {
		return sc, err
	}
	sc.Tenant = cmp.Or(sc.Tenant, scope.DefaultTenant)
	sc.RequestID = x.id
	sc.Actor.IP = r.address(req)
	return sc, nil
}

// credential reads the credential, the tenant and the environment of a request. If the tenant or
// the environment is wrong, it returns the credential without both, and the error.
func (r *Router) credential(x *exchange, req *http.Request) (Credential, error) {
	keys, auths := req.Header["X-Api-Key"], req.Header["Authorization"]
	if len(keys)+len(auths) > 1 {
		return Credential{}, BadRequest("ambiguous_credentials", "send only one credential")
	}
	c := Credential{RequestID: x.id, Enrolling: x.route != nil && x.route.op.Enrols}
	switch {
	case len(keys) == 1:
		c.APIKey = strings.TrimSpace(keys[0])
	case len(auths) == 1:
		scheme, token, _ := strings.Cut(auths[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return c, fault.New(fault.Unauthenticated, "authentication_required", "the Authorization header must be of the Bearer scheme")
		}
		c.Bearer = strings.TrimSpace(token)
	default:
		c.Cookie = visit{r, req}.cookie()
		c.Idle = x.route != nil && x.route.op.Unattended || len(req.Header[backgroundHeader]) > 0
	}
	c.IP = r.address(req)
	query, err := parseQuery(req)
	if err != nil {
		return c, err
	}
	named, err := r.tenantOf(req, query)
	if err != nil {
		return c, err
	}
	env, err := envOf(req, query)
	if err != nil {
		return c, err
	}
	c.TenantHint, c.EnvHint = named, env
	return c, nil
}

// parseQuery parses the query strictly; nil if there is none.
func parseQuery(req *http.Request) (url.Values, error) {
	if req.URL.RawQuery == "" {
		return nil, nil
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, BadRequest("invalid_query", "the query string cannot be read")
	}
	return query, nil
}

// TenantOf returns the tenant that a request names by host, header or query; empty if it names
// none. The scope of a Public operation does not distinguish a request for the default tenant from
// one without a tenant.
func (r *Router) TenantOf(req *http.Request) (scope.TenantID, error) {
	query, err := parseQuery(req)
	if err != nil {
		return "", err
	}
	return r.tenantOf(req, query)
}

// CredentialOf returns the credential of a Raw operation's request.
func CredentialOf(w http.ResponseWriter, req *http.Request) (Credential, error) {
	x, ok := w.(*exchange)
	if !ok {
		return Credential{}, errNoExchange
	}
	return x.r.credential(x, req)
}

// tenantOf returns the tenant that the request names by host, header or query.
func (r *Router) tenantOf(req *http.Request, query url.Values) (scope.TenantID, error) {
	host := r.tenantOfHost(req)
	if len(req.Header["X-Tenant-Id"]) == 0 && len(query["tenant_id"]) == 0 {
		return host, nil
	}
	named, err := oneValue("tenant_conflict", "tenant", string(host), req.Header["X-Tenant-Id"], query["tenant_id"])
	if err != nil {
		return "", err
	}
	if named != "" && !site.IsLabel(named) {
		return "", BadRequest("invalid_tenant", "a tenant id must be a DNS label in lower case")
	}
	return scope.TenantID(named), nil
}

// envOf returns the environment that the request names by header or query.
func envOf(req *http.Request, query url.Values) (scope.Env, error) {
	if len(req.Header["X-Environment"]) == 0 && len(query["environment"]) == 0 {
		return scope.AnyEnv, nil
	}
	named, err := oneValue("environment_conflict", "environment", "", req.Header["X-Environment"], query["environment"])
	if err != nil {
		return "", err
	}
	if env := scope.Env(named); !env.Valid() {
		return "", badParameter("invalid_environment", "query.environment", "the environment must be sandbox or production")
	}
	return scope.Env(named), nil
}

// oneValue returns the value on which all sources agree. A source with several values, or two
// different sources, are a conflict.
func oneValue(code, what, first string, sources ...[]string) (string, error) {
	value, found := first, first != ""
	for _, source := range sources {
		if len(source) > 1 {
			return "", BadRequest(code, "the request names its %s more than once", what)
		}
		if len(source) == 0 {
			continue
		}
		if found && source[0] != value {
			return "", BadRequest(code, "the request names two different values for its %s", what)
		}
		value, found = source[0], true
	}
	if found && value == "" {
		return "", BadRequest("invalid_"+what, "the %s that the request names is empty", what)
	}
	return value, nil
}

// tenantOfHost returns the tenant whose subdomain or custom domain the request names.
func (r *Router) tenantOfHost(req *http.Request) scope.TenantID {
	if r.cfg.Hosts.IsEmpty() {
		return ""
	}
	return r.cfg.Hosts.Tenant(site.Name(r.calledHost(req)))
}

// calledHost returns the host that the client called, with a port if it named one.
func (r *Router) calledHost(req *http.Request) string {
	if len(r.cfg.TrustedProxies) > 0 && r.trusted(origin.Peer(req)) {
		if forwarded := req.Header["X-Forwarded-Host"]; len(forwarded) == 1 {
			return forwarded[0]
		}
	}
	return req.Host
}

func (r *Router) trusted(a netip.Addr) bool {
	return slices.ContainsFunc(r.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// address returns the caller's address: that of the peer, or behind trusted proxies the last
// address in X-Forwarded-For that is not one of theirs.
func (r *Router) address(req *http.Request) string {
	a := origin.Peer(req)
	if !a.IsValid() {
		return ""
	}
	if len(r.cfg.TrustedProxies) == 0 || !r.trusted(a) {
		return a.String()
	}
	a, _ = r.forwarded(req, a)
	return a.String()
}

// forwarded returns the address for which a trusted proxy, the peer, forwarded a request. known is
// false if X-Forwarded-For does not contain it completely.
func (r *Router) forwarded(req *http.Request, a netip.Addr) (from netip.Addr, known bool) {
	hops := strings.Split(strings.Join(req.Header["X-Forwarded-For"], ","), ",")
	for _, text := range slices.Backward(hops) {
		text = strings.TrimSpace(text)
		hop, err := netip.ParseAddr(text)
		if err != nil { // some balancers add the port
			var with netip.AddrPort
			if with, err = netip.ParseAddrPort(text); err != nil {
				return a, false
			}
			hop = with.Addr()
		}
		a = hop.Unmap().WithZone("")
		if !r.trusted(a) {
			break
		}
	}
	return a, true
}
