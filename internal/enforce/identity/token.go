package identity

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/jwks"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// maxTokenBytes limits the length of a bearer token before it is parsed.
	maxTokenBytes = 16 << 10
	// tokenCacheLife is how long a verified token is accepted without verifying its signature
	// again. A change of keys ends it at once.
	tokenCacheLife = time.Minute
	tokenCacheSize = 4096
)

// Verifier verifies bearer tokens, and returns their identities.
type Verifier struct {
	parser *jwt.Parser
	issuer string
	keys   *jwks.Set
	now    func() time.Time
	email  string // claim names
	roles  string
	groups string
	user   string

	mu       sync.Mutex
	young    map[string]cachedCaller // two generations limit the size and keep what is in use
	old      map[string]cachedCaller
	rotation uint64
}

type cachedCaller struct {
	who   *Caller
	until time.Time
}

// newVerifier returns a verifier that always checks issuer, audience and expiry (RFC 8725).
func newVerifier(c Config, keys *jwks.Set, now func() time.Time) *Verifier {
	return &Verifier{
		issuer: c.Issuer,
		parser: jwt.NewParser(jwt.WithValidMethods(jwks.Algorithms()), jwt.WithIssuer(c.Issuer),
			jwt.WithAudience(c.Audience...), jwt.WithExpirationRequired(), jwt.WithStrictDecoding(),
			jwt.WithLeeway(time.Duration(c.LeewaySeconds)*time.Second), jwt.WithTimeFunc(now)),
		keys: keys, now: now,
		user: cmp.Or(c.UserClaim, "sub"), email: cmp.Or(c.EmailClaim, "email"), roles: cmp.Or(c.RolesClaim, "roles"), groups: cmp.Or(c.GroupsClaim, "groups"),
		young: map[string]cachedCaller{}, old: map[string]cachedCaller{},
	}
}

// Issuer returns the issuer whose tokens are accepted.
func (v *Verifier) Issuer() string { return v.issuer }

// Fetches reports whether the keys come from a URL.
func (v *Verifier) Fetches() bool { return v.keys != nil && v.keys.URL != "" }

// Refresh fetches the keys. Concurrent callers share one fetch.
func (v *Verifier) Refresh(ctx context.Context) error { return v.keys.Refresh(ctx) }

// Verify returns the identity that a token proves. The error is ErrBadToken, or ErrUnavailable if
// there are no keys to verify the token with.
func (v *Verifier) Verify(ctx context.Context, token string) (*Caller, error) {
	if len(token) > maxTokenBytes || strings.Count(token, ".") != 2 {
		return nil, ErrBadToken
	}
	now, generation := v.now(), v.keys.Generation()
	if who := v.cached(token, now, generation); who != nil {
		return who, nil
	}
	who, err := v.check(ctx, token)
	if err != nil {
		return nil, err
	}
	until := now.Add(tokenCacheLife)
	if who.Expires.Before(until) {
		until = who.Expires
	}
	v.putVerified(strings.Clone(token), cachedCaller{who, until}, generation)
	return who, nil
}

func (v *Verifier) check(ctx context.Context, token string) (*Caller, error) {
	claims := jwt.MapClaims{} // a struct would take members in other case, too
	var keyErr error
	parsed, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		if typ, set := t.Header["typ"]; set && !tokenType(typ) {
			return nil, ErrBadToken
		}
		keys, err := v.keys.KeysFor(ctx, t)
		keyErr = err
		return keys, err
	})
	if errors.Is(keyErr, ErrUnavailable) {
		return nil, ErrUnavailable
	}
	if err != nil || !parsed.Valid {
		return nil, ErrBadToken
	}
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil {
		return nil, ErrBadToken
	}
	return v.identityOf(token, expires.Time)
}

func tokenType(typ any) bool {
	s, _ := typ.(string)
	return strings.EqualFold(s, "JWT") || strings.EqualFold(s, "at+jwt")
}

// identityOf reads the claims strictly: a payload with a duplicate member is ambiguous, and is
// refused.
func (v *Verifier) identityOf(token string, expires time.Time) (*Caller, error) {
	part := token[strings.IndexByte(token, '.')+1 : strings.LastIndexByte(token, '.')]
	payload, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return nil, ErrBadToken
	}
	claims, err := value.Decode(payload, value.Limits{Depth: 16, Bytes: maxTokenBytes})
	if err != nil {
		return nil, ErrBadToken
	}
	who := &Caller{Expires: expires}
	who.ID, _ = claims.Get(v.user).Str()
	who.Email, _ = claims.Get(v.email).Str()
	if who.ID == "" || !header.IsSafe(who.ID) || !header.IsSafe(who.Email) {
		return nil, ErrBadToken
	}
	act := claims.Get("act")
	if actor.Check(act) != "" {
		return nil, ErrBadToken // controls would take the actor's request for one of the user's own
	}
	if who.Actor, _ = act.Get("sub").Str(); !header.IsSafe(who.Actor) {
		return nil, ErrBadToken
	}
	who.Agent = agentOf(who.Actor, claims)
	who.Groups = textList(claims.Get(v.groups))
	roles := who.Groups
	if claim := claims.Get(v.roles); claim.Defined() {
		// A token with a claim for roles has exactly those roles, even if the list is empty.
		roles = textList(claim)
	}
	who.Doc = userDoc(who, roles, claims)
	if who.Actor != "" {
		who.Doc = who.Doc.With("act", act)
	}
	if d := claims.Get("department"); d.Kind() == value.StringKind {
		who.Doc = who.Doc.With("department", d)
	}
	return who, nil
}

// agentOf returns who acts for the user: the actor (RFC 8693 section 4.1), or else the client that
// the token was issued to (RFC 9068 section 2.2, OpenID Connect's azp).
func agentOf(actor string, claims value.Value) string {
	if actor != "" {
		return actor
	}
	for _, v := range [...]value.Value{claims.Get("client_id"), claims.Get("azp")} {
		if s, ok := v.Str(); ok && s != "" && header.IsSafe(s) {
			return s
		}
	}
	return ""
}

// textList returns an array of strings, or the words of one string.
func textList(v value.Value) []string {
	if s, ok := v.Str(); ok {
		return strings.Fields(s)
	}
	var out []string
	if v.Kind() != value.ArrayKind {
		return nil
	}
	for i := range v.Len() {
		if s, ok := v.Index(i).Str(); ok {
			out = append(out, s)
		}
	}
	return out
}

func (v *Verifier) cached(token string, now time.Time, generation uint64) *Caller {
	v.mu.Lock()
	defer v.mu.Unlock()
	if generation != v.rotation {
		v.rotation = generation
		clear(v.young)
		clear(v.old)
		return nil
	}
	hit, ok := v.young[token]
	if !ok {
		if hit, ok = v.old[token]; !ok {
			return nil
		}
		v.put(token, hit)
	}
	if !now.Before(hit.until) {
		return nil
	}
	return hit.who
}

func (v *Verifier) putVerified(token string, e cachedCaller, generation uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if generation == v.rotation {
		v.put(token, e)
	}
}

func (v *Verifier) put(token string, e cachedCaller) {
	if len(v.young) >= tokenCacheSize {
		v.young, v.old = v.old, v.young
		clear(v.young)
	}
	v.young[token] = e
}
