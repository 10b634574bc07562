package signon

import (
	"context"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/jwks"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// metadataLife is how long a provider's configuration is used before it is read again.
	// metadataMaxAge is how long it is used while it cannot be read again.
	metadataLife   = time.Hour
	metadataMaxAge = 24 * time.Hour
	// metadataRetry is the pause after a failed read, so that not every sign-in and sign-out waits
	// for a provider that hangs.
	metadataRetry = time.Minute
	// maxProviders is how many configurations are cached.
	maxProviders = 1000
	maxKeySet    = 1 << 20
	maxDocument  = 64 << 10
	maxDepth     = 16
)

// metadata is the part of a provider's configuration that is used (OpenID Connect Discovery
// section 3).
type metadata struct {
	authorization, token, userinfo, endSession, jwks string
	// postsSecret says that the token endpoint accepts the secret in the body.
	postsSecret bool
	// namesIssuer says that authorization responses name their issuer (RFC 9207).
	namesIssuer bool
}

// provider is a provider's configuration, as it was last read, with its keys.
type provider struct {
	metadata
	keys *jwks.Set
	at   time.Time
	// retry is when to read it again after a failed read.
	retry time.Time
}

// providers caches configurations by issuer. The zero value is empty.
type providers struct {
	mu    sync.Mutex
	known map[string]*provider
}

// provider returns a provider by its issuer. It reads the configuration again after metadataLife.
func (s *Service) provider(ctx context.Context, issuer string) (*provider, error) {
	now := s.Now()
	s.providers.mu.Lock()
	p := s.providers.known[issuer]
	usable := p != nil && now.Sub(p.at) < metadataMaxAge
	fresh := usable && (now.Sub(p.at) < metadataLife || now.Before(p.retry))
	s.providers.mu.Unlock()
	if fresh {
		return p, nil
	}
	m, err := s.discover(ctx, issuer)
	if err != nil {
		if !usable {
			return nil, err
		}
		s.providers.mu.Lock()
		p.retry = now.Add(metadataRetry)
		s.providers.mu.Unlock()
		return p, nil
	}
	next := &provider{metadata: m, at: now}
	if p != nil && p.jwks == m.jwks {
		next.keys = p.keys // keep the keys that were fetched, and when
	} else {
		next.keys = &jwks.Set{URL: m.jwks, Client: s.Target.Bounded(maxKeySet), Now: s.Now}
	}
	s.providers.mu.Lock()
	defer s.providers.mu.Unlock()
	if s.providers.known == nil || len(s.providers.known) >= maxProviders {
		s.providers.known = map[string]*provider{}
	}
	s.providers.known[issuer] = next
	return next, nil
}

// providerFault returns the fault of a provider that cannot be used.
func providerFault(format string, args ...any) error {
	return fault.Newf(fault.BadGateway, "provider_unfit", format, args...)
}

// Endpoints are the endpoints in a provider's configuration, and what to register there.
type Endpoints struct {
	Issuer        string `json:"issuer" doc:"The provider's issuer identifier."`
	Authorization string `json:"authorization_endpoint" doc:"Where people sign in."`
	Token         string `json:"token_endpoint" doc:"Where the server redeems codes."`
	UserInfo      string `json:"userinfo_endpoint" doc:"Where the server reads claims that the ID token does not have; empty: nowhere."`
	EndSession    string `json:"end_session_endpoint" doc:"Where people sign out; empty: they stay signed in at the provider."`
	Keys          string `json:"jwks_uri" doc:"Where the provider's signing keys are."`
	Registration
}

// CheckIssuer reads the configuration of a provider, and stores nothing. An empty issuer means the
// tenant's own. Faults: NotFound if the tenant has none, Invalid, target_refused, provider_unfit.
func (s *Service) CheckIssuer(ctx context.Context, sc scope.Scope, issuer string) (Endpoints, error) {
	if issuer == "" {
		r, err := s.load(ctx, sc.Tenant)
		if err != nil {
			return Endpoints{}, err
		}
		issuer = r.Settings.Issuer
	}
	m, err := s.probe(ctx, issuer)
	return Endpoints{
		Issuer: issuer, Authorization: m.authorization, Token: m.token, UserInfo: m.userinfo, EndSession: m.endSession, Keys: m.jwks,
		Registration: s.registration(sc.Tenant),
	}, err
}

// probe checks whether a provider that a person wants to use may be called, and reads its
// configuration. Faults: Invalid, target_refused and provider_unfit.
func (s *Service) probe(ctx context.Context, issuer string) (metadata, error) {
	if err := checkIssuer(issuer); err != nil {
		return metadata{}, err
	}
	if err := s.Target.Check(ctx, "/issuer", issuer); err != nil {
		return metadata{}, err
	}
	m, err := s.discover(ctx, issuer)
	if err != nil {
		f := fault.Invalidf("/issuer", "the provider's configuration cannot be used: %s", fault.Message(err))
		f.Code = "provider_unfit"
		return metadata{}, f.Because(err)
	}
	return m, nil
}

// discover reads a provider's configuration (OpenID Connect Discovery section 4).
func (s *Service) discover(ctx context.Context, issuer string) (metadata, error) {
	res, err := s.Target.Do(ctx, outbound.Request{
		URL: strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration", Header: map[string][]string{"Accept": {"application/json"}},
	})
	if err != nil {
		return metadata{}, err
	}
	doc, err := document(res)
	if err != nil {
		return metadata{}, providerFault("its configuration is not a JSON object")
	}
	text := func(name string) string { t, _ := doc.Get(name).Str(); return t }
	if text("issuer") != issuer {
		return metadata{}, providerFault("its configuration is for another issuer")
	}
	m := metadata{
		authorization: text("authorization_endpoint"), token: text("token_endpoint"), userinfo: text("userinfo_endpoint"),
		endSession: text("end_session_endpoint"), jwks: text("jwks_uri"), namesIssuer: doc.Get("authorization_response_iss_parameter_supported").True(),
	}
	m.postsSecret = slices.Contains(texts(doc.Get("token_endpoint_auth_methods_supported")), "client_secret_post")
	if methods := doc.Get("code_challenge_methods_supported"); methods.Defined() && !slices.Contains(texts(methods), "S256") {
		return metadata{}, providerFault("it does not support PKCE with S256")
	}
	if types := doc.Get("response_types_supported"); types.Defined() && !slices.Contains(texts(types), "code") {
		return metadata{}, providerFault("it does not support the authorization code flow")
	}
	for _, e := range []struct {
		name, url string
		required  bool
	}{
		{"authorization_endpoint", m.authorization, true},
		{"token_endpoint", m.token, true},
		{"jwks_uri", m.jwks, true},
		{"userinfo_endpoint", m.userinfo, false},
		{"end_session_endpoint", m.endSession, false},
	} {
		if e.url == "" && !e.required {
			continue
		}
		if !sameScheme(e.url, issuer) {
			return metadata{}, providerFault("its %s is not an address of the issuer's scheme", e.name)
		}
	}
	return m, nil
}

// sameScheme reports whether an endpoint is an absolute URL with the issuer's scheme, without
// credentials or a fragment, so that a provider on https leads nobody to http: or javascript:.
func sameScheme(endpoint, issuer string) bool {
	e, err := url.Parse(endpoint)
	i, wrong := url.Parse(issuer)
	return err == nil && wrong == nil && e.Host != "" && e.Opaque == "" && e.User == nil && e.Scheme == i.Scheme && !strings.Contains(endpoint, "#")
}

// document parses a reply as a JSON object. It refuses objects with duplicate members.
func document(res outbound.Response) (value.Value, error) {
	if res.Status != 200 || res.Truncated {
		return value.Value{}, providerFault("it answered with status %d", res.Status)
	}
	doc, err := value.Decode(res.Body, value.Limits{Depth: maxDepth, Bytes: maxDocument})
	if err != nil || doc.Kind() != value.ObjectKind {
		return value.Value{}, providerFault("its answer is not a JSON object")
	}
	return doc, nil
}

// texts returns the strings in an array, or a single string as a list.
func texts(v value.Value) []string {
	if t, ok := v.Str(); ok {
		return []string{t}
	}
	var out []string
	if v.Kind() == value.ArrayKind {
		for _, e := range v.Elems() {
			if t, ok := e.Str(); ok {
				out = append(out, t)
			}
		}
	}
	return out
}

// exchange exchanges a code for tokens (RFC 6749 section 4.1.3), and returns the ID token and the
// access token.
func (s *Service) exchange(ctx context.Context, p *provider, f flow, clientSecret, code string) (idToken, accessToken string, err error) {
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {f.RedirectURI}, "client_id": {f.ClientID},
		"code_verifier": {f.Verifier},
	}
	header := map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	switch {
	case clientSecret == "":
	case p.postsSecret:
		form.Set("client_secret", clientSecret)
	default: // RFC 6749 section 2.3.1
		pair := url.QueryEscape(f.ClientID) + ":" + url.QueryEscape(clientSecret)
		header["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(pair))}
	}
	res, err := s.Target.Do(ctx, outbound.Request{Method: "POST", URL: p.token, Header: header, Body: []byte(form.Encode())})
	if err != nil {
		return "", "", err
	}
	if res.Status >= 400 && res.Status < 500 {
		return "", "", refused("code_refused", "the identity provider refused the code")
	}
	doc, err := document(res)
	if err != nil {
		return "", "", err
	}
	idToken, _ = doc.Get("id_token").Str()
	accessToken, _ = doc.Get("access_token").Str()
	if idToken == "" {
		return "", "", providerFault("its token endpoint answered without an ID token")
	}
	return idToken, accessToken, nil
}

// userinfo reads the claims of the user information endpoint. It refuses those of another subject
// (OpenID Connect Core section 5.3.2).
func (s *Service) userinfo(ctx context.Context, p *provider, accessToken, subject string) (value.Value, error) {
	res, err := s.Target.Do(ctx, outbound.Request{
		URL: p.userinfo, Header: map[string][]string{"Authorization": {"Bearer " + accessToken}, "Accept": {"application/json"}},
	})
	if err != nil {
		return value.Value{}, err
	}
	doc, err := document(res)
	if err != nil {
		return value.Value{}, err
	}
	if sub, _ := doc.Get("sub").Str(); sub != subject {
		return value.Value{}, refused("invalid_id_token", "the identity provider's user information is about another person")
	}
	return doc, nil
}
