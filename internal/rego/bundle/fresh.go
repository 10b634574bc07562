package bundle

import (
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

// Freshness is what the control plane signs in answer to a poll: which revision it
// stands by now. Without it, whoever is on the way could answer "not modified" for
// ever. The nonce is the bouncer's, so that no answer can be given twice.
type Freshness struct {
	Bouncer  int64  `json:"bouncer"`
	Revision string `json:"revision"`
	Nonce    string `json:"nonce"`
}

type freshClaims struct {
	Freshness
	jwt.RegisteredClaims
}

// freshType keeps the proof apart from a bundle's signature (RFC 8725 section 3.11).
const freshType = "gatehouse-fresh+jwt"

var errNotFresh = errors.New("the answer is not proven to be fresh")

// SignFresh signs f.
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

// CheckFresh reads what SignFresh signed for a nonce.
func (v *Verify) CheckFresh(text, nonce string) (Freshness, error) {
	if v.Key == nil {
		return Freshness{}, errors.New("verifying needs a key")
	}
	method, err := signingMethod(v.Key)
	if err != nil {
		return Freshness{}, err
	}
	var claims freshClaims
	_, err = jwt.ParseWithClaims(text, &claims, func(t *jwt.Token) (any, error) {
		if t.Header["typ"] != freshType {
			return nil, errors.New("it is another kind of token")
		}
		return v.Key, nil
	}, jwt.WithValidMethods([]string{method.Alg()}), jwt.WithoutClaimsValidation())
	if err != nil {
		return Freshness{}, fmt.Errorf("%w: %w", errNotFresh, err)
	}
	if nonce == "" || claims.Nonce != nonce {
		return Freshness{}, fmt.Errorf("%w: it answers another poll", errNotFresh)
	}
	return claims.Freshness, nil
}
