package apptest

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// Issuer signs tokens of callers.
type Issuer struct {
	Key ed25519.PrivateKey
	Pem string
}

// NewIssuer returns an issuer with a new key.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	errtest.Must(t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	errtest.Must(t, err)
	return &Issuer{private, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}
}

// Identity returns the configuration of a bouncer that accepts the issuer's tokens.
func (i *Issuer) Identity() Body {
	return Body{"issuer": "https://issuer.test", "audience": "app", "public_keys": []string{i.Pem}}
}

// Token returns a token of a user with roles.
func (i *Issuer) Token(t testing.TB, user string, roles ...string) string {
	t.Helper()
	return i.With(t, user, map[string]any{"roles": roles})
}

// With returns a token with additional claims.
func (i *Issuer) With(t testing.TB, user string, more map[string]any) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": "https://issuer.test", "aud": "app", "sub": user, "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, more)
	text, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims).SignedString(i.Key)
	errtest.Must(t, err)
	return text
}
