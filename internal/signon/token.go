package signon

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/jwks"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// maxToken is the largest size of a token in bytes.
	maxToken = 16 << 10
	// leeway is how far the provider's clock may differ from ours.
	leeway = time.Minute
	// maxTokenAge is how old an ID token or a logout token may be.
	maxTokenAge = 10 * time.Minute
	// logoutEvent is the event of a logout token (OpenID Connect Back-Channel Logout
	// section 2.4).
	logoutEvent = "http://schemas.openid.net/event/backchannel-logout"
)

// refused returns the fault of an answer or a token of the provider that proves no identity.
func refused(code, message string) *fault.Error {
	return fault.New(fault.Unauthenticated, code, message)
}

// verify checks what ID tokens and logout tokens have in common: signature, algorithm, issuer,
// audience, type and times. It returns the claims as strict JSON. Faults: invalid_id_token,
// target_unreachable.
func (s *Service) verify(ctx context.Context, p *provider, token, issuer, clientID string, types ...string) (value.Value, error) {
	bad := func(why error) (value.Value, error) {
		return value.Value{}, refused("invalid_id_token", "the identity provider's token is not valid").Because(why)
	}
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return bad(errors.New("it is not a signed token"))
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods(jwks.Algorithms()), jwt.WithIssuer(issuer), jwt.WithAudience(clientID), jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(s.Now), jwt.WithStrictDecoding(),
	)
	p.keys.Renew(ctx)
	claims := jwt.MapClaims{} // a struct would also accept members in another case
	_, err := parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		if typ, set := t.Header["typ"]; set {
			text, _ := typ.(string)
			if !slices.ContainsFunc(types, func(known string) bool { return strings.EqualFold(known, text) }) {
				return nil, errors.New("it has another type")
			}
		}
		return p.keys.KeysFor(ctx, t)
	})
	if errors.Is(err, jwks.ErrUnavailable) {
		return value.Value{}, fault.New(fault.BadGateway, "target_unreachable", "the identity provider's keys cannot be read").Because(err)
	}
	if err != nil {
		return bad(err)
	}
	if issued, err := claims.GetIssuedAt(); err != nil || issued == nil || s.Now().Sub(issued.Time) > maxTokenAge {
		return bad(errors.New("it is too old, or does not say when it was issued"))
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		return bad(err)
	}
	doc, err := value.Decode(payload, value.Limits{Depth: maxDepth, Bytes: maxToken})
	if err != nil {
		return bad(err)
	}
	return doc, nil
}

// idClaims checks an ID token (OpenID Connect Core section 3.1.3.7).
func (s *Service) idClaims(ctx context.Context, p *provider, token string, f flow) (value.Value, error) {
	doc, err := s.verify(ctx, p, token, f.Issuer, f.ClientID, "JWT")
	if err != nil {
		return doc, err
	}
	bad := func(message string) (value.Value, error) { return value.Value{}, refused("invalid_id_token", message) }
	if nonce, _ := doc.Get("nonce").Str(); !equal(nonce, f.Nonce) {
		return bad("the identity provider's token is for another sign-in")
	}
	azp, named := doc.Get("azp").Str()
	if doc.Get("azp").Defined() && (!named || azp != f.ClientID) || !named && len(texts(doc.Get("aud"))) > 1 {
		return bad("the identity provider's token is for another client")
	}
	if sub, _ := doc.Get("sub").Str(); sub == "" || len(sub) > 255 {
		return bad("the identity provider's token names no subject")
	}
	return doc, nil
}

// logoutClaims checks a logout token (OpenID Connect Back-Channel Logout section 2.6).
func (s *Service) logoutClaims(ctx context.Context, p *provider, token, issuer, clientID string) (value.Value, error) {
	doc, err := s.verify(ctx, p, token, issuer, clientID, "JWT", "logout+jwt")
	if err != nil {
		return doc, err
	}
	sub, _ := doc.Get("sub").Str()
	sid, _ := doc.Get("sid").Str()
	jti, _ := doc.Get("jti").Str()
	if doc.At("events", logoutEvent).Kind() != value.ObjectKind || doc.Get("nonce").Defined() || jti == "" || sub == "" && sid == "" {
		return value.Value{}, refused("invalid_logout_token", "this is not a logout token")
	}
	return doc, nil
}
