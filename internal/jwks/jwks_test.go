package jwks

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwk"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// jwkOf returns a key of a set as its provider writes it, with some members changed.
func jwkOf(t *testing.T, raw any, change map[string]any) string {
	t.Helper()
	key, err := jwk.Import(raw)
	errtest.Must(t, err)
	data, err := json.Marshal(key)
	errtest.Must(t, err)
	var members map[string]any
	errtest.Must(t, json.Unmarshal(data, &members))
	maps.Copy(members, change)
	data, err = json.Marshal(members)
	errtest.Must(t, err)
	return string(data)
}

// TestKeySets: Parse accepts only keys for one of the three algorithms, each only for its own
// algorithm.
func TestKeySets(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	errtest.Must(t, err)
	small, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // to be refused
	errtest.Must(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.Must(t, err)
	wide, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	errtest.Must(t, err)
	edPublic, edPrivate, err := ed25519.GenerateKey(rand.Reader)
	errtest.Must(t, err)
	zeros := base64.RawURLEncoding.EncodeToString(make([]byte, 32))
	for name, tc := range map[string]struct{ key, alg string }{
		"RSA":                                {jwkOf(t, &rsaKey.PublicKey, nil), "RS256"},
		"RSA that says so":                   {jwkOf(t, &rsaKey.PublicKey, map[string]any{"alg": "RS256", "use": "sig", "kid": "a"}), "RS256"},
		"P-256":                              {jwkOf(t, &ecKey.PublicKey, nil), "ES256"},
		"Ed25519":                            {jwkOf(t, edPublic, map[string]any{"alg": "EdDSA"}), "EdDSA"},
		"a private key, for its public half": {jwkOf(t, edPrivate, nil), "EdDSA"},
		"a certificate's other members":      {jwkOf(t, &rsaKey.PublicKey, map[string]any{"x5t": "abc", "made_up": 1}), "RS256"},

		"RSA for PS256":            {jwkOf(t, &rsaKey.PublicKey, map[string]any{"alg": "PS256"}), ""},
		"RSA for HS256":            {jwkOf(t, &rsaKey.PublicKey, map[string]any{"alg": "HS256"}), ""},
		"RSA for none":             {jwkOf(t, &rsaKey.PublicKey, map[string]any{"alg": "none"}), ""},
		"RSA for encryption":       {jwkOf(t, &rsaKey.PublicKey, map[string]any{"use": "enc"}), ""},
		"RSA of 1024 bits":         {jwkOf(t, &rsaKey.PublicKey, map[string]any{"n": base64.RawURLEncoding.EncodeToString(small.N.Bytes())}), ""},
		"RSA with exponent 1":      {jwkOf(t, &rsaKey.PublicKey, map[string]any{"e": "AQ"}), ""},
		"RSA with exponent 2^33":   {jwkOf(t, &rsaKey.PublicKey, map[string]any{"e": "AgAAAAE"}), ""},
		"P-384":                    {jwkOf(t, &wide.PublicKey, nil), ""},
		"a point off the curve":    {jwkOf(t, &ecKey.PublicKey, map[string]any{"x": zeros, "y": zeros}), ""},
		"a short Ed25519 key":      {jwkOf(t, edPublic, map[string]any{"x": "AAAA"}), ""},
		"a shared secret":          {jwkOf(t, []byte("a secret that both sides have, of some length"), nil), ""},
		"a shared secret as RS256": {jwkOf(t, []byte("a secret that both sides have, of some length"), map[string]any{"alg": "RS256"}), ""},
		"an unknown kind":          {`{"kty":"PQ","alg":"ML-DSA"}`, ""},
		"no object":                {`[1]`, ""},
	} {
		keys, err := Parse([]byte(`{"keys":[` + tc.key + `]}`))
		switch {
		case tc.alg == "" && err == nil:
			t.Errorf("Parse of %s = a key for %s, want an error", name, keys[0].Alg)
		case tc.alg != "" && (err != nil || len(keys) != 1 || keys[0].Alg != tc.alg):
			t.Errorf("Parse of %s = %+v, %v, want one key for %s", name, keys, err, tc.alg)
		}
		// A key that is not accepted does not affect the others.
		both, err := Parse([]byte(`{"keys":[` + tc.key + `,` + jwkOf(t, &ecKey.PublicKey, map[string]any{"kid": "other"}) + `]}`))
		if err != nil || both[len(both)-1].ID != "other" {
			t.Errorf("Parse of %s and another key = %+v, %v, want the other one last", name, both, err)
		}
	}
	for _, set := range []string{``, `[]`, `{}`, `{"keys":[]}`, `{"keys":{}}`, jwkOf(t, edPublic, nil)} {
		if keys, err := Parse([]byte(set)); err == nil {
			t.Errorf("Parse(%s) = %d keys, want an error", set, len(keys))
		}
	}
	many := make([]string, maxKeys+50)
	for i := range many {
		many[i] = jwkOf(t, edPublic, map[string]any{"kid": fmt.Sprint(i)})
	}
	if keys, err := Parse([]byte(`{"keys":[` + strings.Join(many, ",") + `]}`)); err != nil || len(keys) != maxKeys {
		t.Errorf("Parse of %d keys = %d, %v, want %d", len(many), len(keys), err, maxKeys)
	}
}

// TestRefreshTellsAllWaiters: callers that wait for a running fetch learn that it failed. If its
// caller gives up, they fetch themselves.
func TestRefreshTellsAllWaiters(t *testing.T) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	errtest.Must(t, err)
	good := `{"keys":[` + jwkOf(t, public, nil) + `]}`
	for name, c := range map[string]struct {
		giveUp bool
		answer int
		want   string // of the waiters
	}{
		"it fails":               {false, http.StatusBadGateway, "the key set answered 502"},
		"it succeeds":            {false, http.StatusOK, "<nil>"},
		"its caller gives up":    {true, http.StatusOK, "<nil>"},
		"and the next one fails": {true, http.StatusBadGateway, "the key set answered 502"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over := make(chan struct{})
				set := &Set{URL: "http://issuer.example/keys", Now: time.Now, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					select {
					case <-r.Context().Done():
						return nil, r.Context().Err()
					case <-over:
					}
					return &http.Response{StatusCode: c.answer, Body: io.NopCloser(strings.NewReader(good)), Request: r}, nil
				})}}
				first, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				results := make(chan error, 3)
				go func() { results <- set.Refresh(first) }()
				synctest.Wait()
				waiters := make(chan error, 3)
				for range 3 {
					go func() { waiters <- set.Refresh(t.Context()) }()
				}
				synctest.Wait()
				if c.giveUp {
					giveUp()
					if err := <-results; !errors.Is(err, context.Canceled) {
						t.Errorf("the caller that gave up: %v", err)
					}
					synctest.Wait()
				}
				close(over)
				for range 3 {
					if got := fmt.Sprint(<-waiters); got != c.want {
						t.Errorf("a waiter: %s, want %s", got, c.want)
					}
				}
			})
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
