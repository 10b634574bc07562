package jwks

import (
	"context"

	"github.com/golang-jwt/jwt/v5"
)

// Algorithms returns the accepted signature algorithms. None of them uses a shared secret.
func Algorithms() []string { return []string{"RS256", "ES256", "EdDSA"} }

// KeysFor returns the keys that may have signed a token, for the parser of package jwt. It
// refuses tokens with critical extensions (RFC 7515 section 4.1.11), because it knows none.
// Errors: ErrUnknown, ErrUnavailable.
func (s *Set) KeysFor(ctx context.Context, t *jwt.Token) (any, error) {
	if _, critical := t.Header["crit"]; critical {
		return nil, ErrUnknown
	}
	kid, isText := t.Header["kid"].(string)
	if _, set := t.Header["kid"]; set && !isText {
		return nil, ErrUnknown
	}
	keys, err := s.Find(ctx, kid, t.Method.Alg())
	if err != nil {
		return nil, err
	}
	out := jwt.VerificationKeySet{}
	for _, k := range keys {
		out.Keys = append(out.Keys, k.Public)
	}
	return out, nil
}
