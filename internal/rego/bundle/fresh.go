package bundle

import (
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

// Freshness is what the control plane signs in the answer to a poll: the revision that is current.
// Without it, an attacker between server and bouncer could answer "not modified" forever. The
// bouncer chooses the nonce, so that an answer cannot be replayed.
type Freshness struct {
	Bouncer  int64  `json:"bouncer"`
	Revision string `json:"revision"`
	Nonce    string `json:"nonce"`
}

type freshClaims struct {
	Freshness
	jwt.RegisteredClaims
}

// freshType distinguishes this token from a bundle's signature (RFC 8725 section 3.11).
const freshType = "gatehouse-fresh+jwt"

var errNotFresh = errors.New("the answer is not proven to be fresh")

// SignFresh returns f as a signed JWT (RFC 7519).
func (k *SigningKey) SignFresh(f Freshness) (string, error) {
	if k.ID == "" || k.Key == nil {
		return "", errors.New("a signing key needs an id and a key")
	}
	method, err := signingMethod(k.Key.Public())
	if err != nil {
		return "", err
	}
	token := jwt.NewWithClaims(method, freshClaims{Freshness: f})
	token.Header["kid"], token.Header["typ"] = k.ID, freshType
	text, err := token.SignedString(k.Key)
	if err != nil {
		return "", fmt.Errorf("sign the freshness of a bundle: %w", err)
	}
	return text, nil
}

// CheckFresh verifies a token of SignFresh and returns its content. It fails if the token has
// another nonce.
func (v *Verify) CheckFresh(text, nonce string) (Freshness, error) {
	if v.Key == nil {
		return Freshness{}, errors.New("a key is needed to verify freshness")
	}
	method, err := signingMethod(v.Key)
	if err != nil {
		return Freshness{}, err
	}
	var claims freshClaims
	_, err = jwt.ParseWithClaims(text, &claims, func(t *jwt.Token) (any, error) {
		if t.Header["typ"] != freshType {
			return nil, errors.New("the token has another type")
		}
		return v.Key, nil
	}, jwt.WithValidMethods([]string{method.Alg()}), jwt.WithoutClaimsValidation())
	if err != nil {
		return Freshness{}, fmt.Errorf("%w: %w", errNotFresh, err)
	}
	if nonce == "" || claims.Nonce != nonce {
		return Freshness{}, fmt.Errorf("%w: the nonce is that of another poll", errNotFresh)
	}
	return claims.Freshness, nil
}
