package apptest

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Issuer signs callers' tokens.
type Issuer struct {
	Key ed25519.PrivateKey
	Pem string
}

// NewIssuer makes an issuer with a key of its own.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return &Issuer{private, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}
}

// Identity is the bouncer's configuration that takes the issuer's tokens.
func (i *Issuer) Identity() Body {
	return Body{"issuer": "https://issuer.test", "audience": "app", "public_keys": []string{i.Pem}}
}

// Token is a token of a user with roles.
func (i *Issuer) Token(t testing.TB, user string, roles ...string) string {
	t.Helper()
	return i.With(t, user, map[string]any{"roles": roles})
}

// With is a token with further claims.
func (i *Issuer) With(t testing.TB, user string, more map[string]any) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": "https://issuer.test", "aud": "app", "sub": user, "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, more)
	text, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims).SignedString(i.Key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
