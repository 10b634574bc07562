package enforce

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/golang-jwt/jwt/v5"
)

const (
	// maxTokenBytes bounds a bearer token before anything parses it.
	maxTokenBytes = 16 << 10
	// tokenCacheLife is how long a verified token is taken without its
	// signature being checked again; a change of keys ends it at once.
	tokenCacheLife = time.Minute
	tokenCacheSize = 4096
)

// verifier turns bearer tokens into identities.
type verifier struct {
	parser *jwt.Parser
	issuer string
	keys   *keySet
	now    func() time.Time
	email  string // claim names
	roles  string
	groups string
	user   string

	mu       sync.Mutex
	young    map[string]verified // two generations: bounded, and what is used stays
	old      map[string]verified
	rotation uint64
}

type verified struct {
	who   *identity
	until time.Time
}

// newVerifier checks issuer, audience and expiry always (RFC 8725).
func newVerifier(c identityConfig, keys *keySet, now func() time.Time) *verifier {
	or := func(s, def string) string {
		if s == "" {
			return def
		}
		return s
	}
	return &verifier{
		issuer: c.Issuer,
		parser: jwt.NewParser(jwt.WithValidMethods([]string{"RS256", "ES256", "EdDSA"}), jwt.WithIssuer(c.Issuer),
			jwt.WithAudience(c.Audience...), jwt.WithExpirationRequired(), jwt.WithStrictDecoding(),
			jwt.WithLeeway(time.Duration(c.LeewaySeconds)*time.Second), jwt.WithTimeFunc(now)),
		keys: keys, now: now,
		user: or(c.UserClaim, "sub"), email: or(c.EmailClaim, "email"), roles: or(c.RolesClaim, "roles"), groups: or(c.GroupsClaim, "groups"),
		young: map[string]verified{}, old: map[string]verified{},
	}
}

// verify gives the identity that a token proves, errBadToken, or
// errIdentityUnavailable when there are no keys to check it with.
func (v *verifier) verify(ctx context.Context, token string) (*identity, error) {
	if len(token) > maxTokenBytes || strings.Count(token, ".") != 2 {
		return nil, errBadToken
	}
	now, generation := v.now(), v.keys.generation()
	if who := v.cached(token, now, generation); who != nil {
		return who, nil
	}
	who, err := v.check(ctx, token)
	if err != nil {
		return nil, err
	}
	until := now.Add(tokenCacheLife)
	if who.expires.Before(until) {
		until = who.expires
	}
	v.remember(strings.Clone(token), verified{who, until}, generation)
	return who, nil
}

func (v *verifier) check(ctx context.Context, token string) (*identity, error) {
	var claims jwt.RegisteredClaims
	var keyErr error
	parsed, err := v.parser.ParseWithClaims(token, &claims, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errBadToken // RFC 7515 section 4.1.11: what we do not know must not be passed over
		}
		if typ, set := t.Header["typ"]; set && !tokenType(typ) {
			return nil, errBadToken
		}
		kid, isText := t.Header["kid"].(string)
		if _, set := t.Header["kid"]; set && !isText {
			return nil, errBadToken
		}
		keys, err := v.keys.find(ctx, kid, t.Method.Alg())
		if err != nil {
			keyErr = err
			return nil, err
		}
		set := jwt.VerificationKeySet{}
		for _, k := range keys {
			set.Keys = append(set.Keys, k.key)
		}
		return set, nil
	})
	if errors.Is(keyErr, errIdentityUnavailable) {
		return nil, errIdentityUnavailable
	}
	if err != nil || !parsed.Valid {
		return nil, errBadToken
	}
	return v.identityOf(token, claims.ExpiresAt.Time)
}

func tokenType(typ any) bool {
	s, _ := typ.(string)
	return strings.EqualFold(s, "JWT") || strings.EqualFold(s, "at+jwt")
}

// identityOf reads the claims strictly: a payload with a member twice has no
// one meaning and proves nobody.
func (v *verifier) identityOf(token string, expires time.Time) (*identity, error) {
	part := token[strings.IndexByte(token, '.')+1 : strings.LastIndexByte(token, '.')]
	payload, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return nil, errBadToken
	}
	claims, err := value.Decode(payload, value.Limits{Depth: 16, Bytes: maxTokenBytes})
	if err != nil {
		return nil, errBadToken
	}
	who := &identity{expires: expires}
	who.id, _ = claims.Get(v.user).Str()
	who.email, _ = claims.Get(v.email).Str()
	if who.id == "" || !header.IsSafe(who.id) || !header.IsSafe(who.email) {
		return nil, errBadToken
	}
	who.agent = agentOf(claims)
	who.groups = textList(claims.Get(v.groups))
	roles := who.groups
	if claim := claims.Get(v.roles); claim.Defined() {
		// A token that speaks of roles has those, be it none.
		roles = textList(claim)
	}
	who.doc = userDoc(who, roles, claims)
	if d := claims.Get("department"); d.Kind() == value.StringKind {
		who.doc = who.doc.With("department", d)
	}
	return who, nil
}

// agentOf is who acts for the user: the actor (RFC 8693 section 4.1), else the
// client that the token was given to (RFC 9068 section 2.2, OpenID Connect's azp).
func agentOf(claims value.Value) string {
	for _, v := range [...]value.Value{claims.At("act", "sub"), claims.Get("client_id"), claims.Get("azp")} {
		if s, ok := v.Str(); ok && s != "" && header.IsSafe(s) {
			return s
		}
	}
	return ""
}

// textList takes an array of strings, or one string with spaces between.
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

func (v *verifier) cached(token string, now time.Time, generation uint64) *identity {
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

func (v *verifier) remember(token string, e verified, generation uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if generation == v.rotation {
		v.put(token, e)
	}
}

func (v *verifier) put(token string, e verified) {
	if len(v.young) >= tokenCacheSize {
		v.young, v.old = v.old, v.young
		clear(v.young)
	}
	v.young[token] = e
}
