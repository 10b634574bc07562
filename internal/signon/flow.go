package signon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/lockout"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// flow is a sign-in in progress. The browser keeps it, sealed, in a cookie.
type flow struct {
	Tenant      scope.TenantID `json:"t"`
	Issuer      string         `json:"i"`
	ClientID    string         `json:"c"`
	State       string         `json:"s"`
	Nonce       string         `json:"n"`
	Verifier    string         `json:"v"`
	RedirectURI string         `json:"r"`
	ReturnTo    string         `json:"b"`
	Until       time.Time      `json:"u"`
}

// flowPlace names the purpose that a sealed flow is bound to.
const flowPlace = "sign_on/flow"

// Started is a sign-in that has begun: where to send the browser, the cookie that it must send
// back, and how long the cookie is valid.
type Started struct {
	Location, Cookie string
	Life             time.Duration
}

// Start begins a sign-in to a tenant. origin is the origin of the tenant's own domain if the request
// came to one; empty: s.URL. returnTo is the path of this server to go to afterwards; empty: "/".
// Faults: NotFound sign_on_off, BadRequest invalid_return_to, RateLimited, BadGateway.
func (s *Service) Start(ctx context.Context, sc scope.Scope, origin, returnTo string) (Started, error) {
	returnTo = cmp.Or(returnTo, "/")
	if !localPath(returnTo) {
		return Started{}, fault.New(fault.BadRequest, "invalid_return_to", "return_to must be a path of this server, such as /policies")
	}
	r, err := s.enabledRecord(ctx, sc.Tenant)
	if err != nil {
		return Started{}, err
	}
	leave, err := s.admit(ctx, sc, sc.Tenant)
	if err != nil {
		return Started{}, err
	}
	defer leave()
	p, err := s.provider(ctx, r.Settings.Issuer)
	if err != nil {
		return Started{}, err
	}
	origin = cmp.Or(origin, s.URL)
	f := flow{
		Tenant: sc.Tenant, Issuer: r.Settings.Issuer, ClientID: r.Settings.ClientID, RedirectURI: origin + callbackPath,
		ReturnTo: returnTo, Until: s.Now().Add(flowLife),
	}
	for _, dst := range []*string{&f.State, &f.Nonce, &f.Verifier} {
		if *dst, err = s.token(); err != nil {
			return Started{}, err
		}
	}
	cookie, err := s.sealFlow(f)
	if err != nil {
		return Started{}, err
	}
	challenge := sha256.Sum256([]byte(f.Verifier))
	query := url.Values{
		"response_type": {"code"}, "client_id": {f.ClientID}, "redirect_uri": {f.RedirectURI}, "scope": {strings.Join(r.Settings.Scopes, " ")},
		"state": {f.State}, "nonce": {f.Nonce}, "code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}
	if r.Settings.Audience != "" {
		query.Set("audience", r.Settings.Audience)
	}
	return Started{Location: withQuery(p.authorization, query), Cookie: cookie, Life: flowLife}, nil
}

// Answer is the request with which the browser returns from the provider.
type Answer struct {
	// Cookie is the one that Start returned.
	Cookie string
	// Named is the tenant that the request names; empty: it names none.
	Named scope.TenantID
	// Query is the authorization response (RFC 6749 section 4.1.2).
	Query url.Values
}

// Finished is a sign-in that has succeeded.
type Finished struct {
	auth.SignedIn
	// Tenant is the tenant of the person. It is also set after a failure, once the flow was used.
	Tenant scope.TenantID
	// ReturnTo is the path to redirect the browser to.
	ReturnTo string
}

// Finish completes a sign-in that Start began. Faults: BadRequest for an answer that does not
// belong to this browser's sign-in, Unauthenticated if the provider's answer proves no identity,
// Forbidden or Conflict if the person may not sign in, RateLimited, BadGateway.
func (s *Service) Finish(ctx context.Context, sc scope.Scope, a Answer, from auth.Browser) (Finished, error) {
	f, err := s.flowOf(ctx, a)
	if err != nil {
		return Finished{}, err
	}
	sc.Tenant = f.Tenant
	leave, err := s.admit(ctx, sc, f.Tenant)
	if err != nil {
		return Finished{}, err
	}
	defer leave()
	if err := s.useFlow(ctx, f); err != nil {
		return Finished{}, err
	}
	in, err := s.redeem(ctx, sc, f, a.Query, from)
	if err != nil {
		return Finished{Tenant: f.Tenant}, s.recordFailure(ctx, sc, f, err)
	}
	return Finished{in, f.Tenant, f.ReturnTo}, s.Auth.Sessions.EndCookie(ctx, from.Cookie)
}

func invalidState() error {
	return fault.New(fault.BadRequest, "invalid_state", "this browser did not start this sign-in, or the sign-in is too old or was used already; start again")
}

// flowOf opens the flow of an answer, and checks its state, its age and its tenant.
func (s *Service) flowOf(ctx context.Context, a Answer) (flow, error) {
	f, err := s.openFlow(a.Cookie)
	if err != nil {
		return flow{}, invalidState()
	}
	state, ok := singleParam(a.Query, "state")
	if !ok || !equal(state, f.State) || !s.Now().Before(f.Until) || a.Named != "" && a.Named != f.Tenant {
		return flow{}, invalidState()
	}
	return f, s.Auth.CheckServed(ctx, f.Tenant)
}

// useFlow marks a flow as used. Fault: invalid_state if it was used before.
func (s *Service) useFlow(ctx context.Context, f flow) error {
	return s.Stores.Write(ctx, f.Tenant, func(tx *db.Tx) error {
		first, err := s.useOnce(ctx, tx, "state", f.State, f.Until)
		if err == nil && !first {
			err = invalidState()
		}
		return err
	})
}

// useOnce marks a secret of a kind as used, and reports whether this is the first use. It is
// remembered until a time.
func (s *Service) useOnce(ctx context.Context, tx *db.Tx, kind, text string, until time.Time) (first bool, err error) {
	sum := sha256.Sum256([]byte(kind + "\x00" + text))
	return markUsed(ctx, tx, hex.EncodeToString(sum[:]), s.Now(), until)
}

// redeem exchanges the answer's code for tokens, verifies them, and starts a session of the person.
func (s *Service) redeem(ctx context.Context, sc scope.Scope, f flow, query url.Values, from auth.Browser) (auth.SignedIn, error) {
	r, err := s.enabledRecord(ctx, f.Tenant)
	if err != nil {
		return auth.SignedIn{}, err
	}
	if r.Settings.Issuer != f.Issuer || r.Settings.ClientID != f.ClientID {
		return auth.SignedIn{}, fault.New(fault.BadRequest, "invalid_state", "the identity provider was changed in the meantime; start again")
	}
	p, err := s.provider(ctx, f.Issuer)
	if err != nil {
		return auth.SignedIn{}, err
	}
	code, err := codeOf(query, p, f.Issuer)
	if err != nil {
		return auth.SignedIn{}, err
	}
	var clientSecret []byte
	if len(r.Secret) > 0 {
		if clientSecret, err = s.Box.Open(r.Secret, secretPlace(f.Tenant)); err != nil {
			return auth.SignedIn{}, fault.Wrap(err, "open the client secret")
		}
	}
	idToken, accessToken, err := s.exchange(ctx, p, f, string(clientSecret), code)
	if err != nil {
		return auth.SignedIn{}, err
	}
	claims, err := s.idClaims(ctx, p, idToken, f)
	if err != nil {
		return auth.SignedIn{}, err
	}
	by, err := s.federation(f, claims, idToken)
	if err != nil {
		return auth.SignedIn{}, err
	}
	known := facts{settings: r.Settings, token: claims}
	if p.userinfo != "" && accessToken != "" && known.incomplete() {
		if known.info, err = s.userinfo(ctx, p, accessToken, by.Subject); err != nil {
			return auth.SignedIn{}, err
		}
	}
	var in auth.SignedIn
	err = s.Stores.Write(ctx, f.Tenant, func(tx *db.Tx) error {
		u, err := s.person(ctx, tx, sc, known, user.IdentityDraft{Issuer: by.Issuer, Subject: by.Subject})
		if err != nil {
			return err
		}
		if _, err := tx.Bump(ctx, user.Revision); err != nil {
			return err
		}
		in, err = s.Auth.Sessions.StartFederated(ctx, tx, sc, u, from, by)
		return err
	})
	return in, err
}

// codeOf returns the code of an authorization response. It refuses a response of another issuer
// (RFC 9207 section 2.4), whose code must not be sent to this provider.
func codeOf(query url.Values, p *provider, issuer string) (string, error) {
	if iss, ok := singleParam(query, "iss"); query.Has("iss") && (!ok || iss != issuer) || p.namesIssuer && !query.Has("iss") {
		return "", fault.New(fault.BadRequest, "wrong_issuer", "the answer is not from the identity provider that was asked")
	}
	if query.Has("error") {
		return "", refused("sign_on_denied", "the identity provider did not sign you in")
	}
	code, ok := singleParam(query, "code")
	if !ok || code == "" || len(code) > maxToken {
		return "", fault.New(fault.BadRequest, "invalid_request", "the answer of the identity provider has no code")
	}
	return code, nil
}

// recordFailure counts a failed sign-in, and writes an audit entry unless there were too many of
// them lately. It returns cause.
func (s *Service) recordFailure(ctx context.Context, sc scope.Scope, f flow, cause error) error {
	failed, err := s.failures(ctx, sc, 1)
	if err != nil {
		return err
	}
	if !lockout.RecordsFailure(failed) {
		return cause
	}
	sc.Actor = scope.Actor{Kind: scope.Person, Name: "anonymous", IP: sc.Actor.IP}
	about := map[string]any{"issuer": f.Issuer, "reason": fault.Message(cause), "ip_address": sc.Actor.IP}
	err = s.Stores.Write(ctx, f.Tenant, func(tx *db.Tx) error { return s.record(ctx, tx, sc, "LOGIN_FAILED", about) })
	if err != nil {
		return err
	}
	return cause
}

// token returns a new secret of 256 random bits.
func (s *Service) token() (string, error) {
	var raw [32]byte
	if _, err := io.ReadFull(s.Random, raw[:]); err != nil {
		return "", fault.Wrap(err, "create a secret")
	}
	return base64.RawURLEncoding.EncodeToString(raw[:]), nil
}

func (s *Service) sealFlow(f flow) (string, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	sealed, err := s.Box.Seal(text, flowPlace)
	return base64.RawURLEncoding.EncodeToString(sealed), fault.Wrap(err, "seal a sign-in")
}

func (s *Service) openFlow(cookie string) (f flow, err error) {
	sealed, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil {
		return f, err
	}
	text, err := s.Box.Open(sealed, flowPlace)
	if err != nil {
		return f, err
	}
	err = json.Unmarshal(text, &f)
	return f, err
}

// localPath reports whether a redirect to a path stays on this server in every browser. It refuses
// // and /\, which name another host, and characters that could split a header or confuse a parser.
func localPath(path string) bool {
	if len(path) > 2048 || path[0] != '/' || strings.HasPrefix(path, "//") {
		return false
	}
	if strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == '\\' || r >= 0x7f }) {
		return false
	}
	u, err := url.Parse(path)
	return err == nil && u.Scheme == "" && u.Host == ""
}

// withQuery adds parameters to a URL, which may already have some.
func withQuery(raw string, query url.Values) string {
	if strings.Contains(raw, "?") {
		return raw + "&" + query.Encode()
	}
	return raw + "?" + query.Encode()
}

// singleParam returns the value of a parameter; false: it is absent, or was sent more than once.
func singleParam(query url.Values, name string) (string, bool) {
	if len(query[name]) != 1 {
		return "", false
	}
	return query[name][0], true
}

// equal compares secrets in constant time. An empty secret equals nothing.
func equal(a, b string) bool { return b != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
