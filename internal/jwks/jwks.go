// Package jwks holds the public keys of token issuers. It reads key sets (RFC 7517),
// fetches them at a limited rate, and binds each key to the one algorithm that it may
// verify.
package jwks

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwk"
)

// Limits on a key set, and how often it may be fetched.
const (
	maxKeySetBytes  = 1 << 20
	maxKeys         = 100
	keyFetchTimeout = 5 * time.Second
	// keyRetry is the shortest time between two fetches that requests cause, so that
	// many invented key ids do not cause many fetches.
	keyRetry = 10 * time.Second
	// RefreshEvery is how often a set is fetched again.
	RefreshEvery = 5 * time.Minute
	// keyMaxAge is how long a set stays valid if it cannot be fetched again.
	keyMaxAge = 24 * time.Hour
)

// The errors of a Set without a matching key.
var (
	// ErrUnknown means that no key of the set can have signed the token.
	ErrUnknown = errors.New("no key of the issuer can have signed the token")
	// ErrUnavailable means that there is no valid set to check the token with.
	ErrUnavailable = errors.New("the keys that verify tokens are not available")
)

// Key is a public key with the only algorithm that it may verify.
type Key struct {
	ID, Alg string
	Public  crypto.PublicKey
}

// Set holds the keys that verify tokens: those of the configuration, and those that are
// fetched from a JWKS address. It is safe for concurrent use.
type Set struct {
	// URL is the address of the key set; empty: nothing is fetched.
	URL    string
	Client *http.Client
	Now    func() time.Time
	// Static are keys that need no fetch.
	Static []Key

	mu      sync.Mutex
	fetched []Key
	at      time.Time // of the last good fetch
	tried   time.Time // of the last attempt
	running *attempt  // nil: no fetch is running
	version uint64    // grows when keys change, so that verified tokens are checked again
}

// attempt is a running fetch.
type attempt struct {
	done chan struct{} // closed when it ends
	// err is why it failed. It is set when done is closed.
	err error
}

// Find returns the keys that may have signed a token with this key id and algorithm. If there
// are none, it fetches the set again, at most once every keyRetry. Errors: ErrUnknown,
// ErrUnavailable.
func (s *Set) Find(ctx context.Context, kid, alg string) ([]Key, error) {
	s.mu.Lock()
	keys := s.match(kid, alg)
	due := s.URL != "" && (len(keys) == 0 || s.at.IsZero()) && s.Now().Sub(s.tried) >= keyRetry
	running := s.running
	s.mu.Unlock()
	if len(keys) > 0 {
		return keys, nil
	}
	switch {
	case running != nil:
		select {
		case <-running.done:
		case <-ctx.Done():
			return nil, ErrUnavailable
		}
	case due:
		// Others need the keys even if this caller disconnects.
		_ = s.Refresh(context.WithoutCancel(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if keys = s.match(kid, alg); len(keys) > 0 {
		return keys, nil
	}
	if s.URL != "" && (s.at.IsZero() || s.Now().Sub(s.at) > keyMaxAge) {
		return nil, ErrUnavailable
	}
	return nil, ErrUnknown
}

// match returns at most ten keys for a token; s.mu must be held. For a token without a key id
// these are all keys of its algorithm. For a token with an id they are the keys with that id,
// and those without an id.
func (s *Set) match(kid, alg string) []Key {
	var out []Key
	pick := func(list []Key) {
		for _, k := range list {
			if k.Alg == alg && (kid == "" || k.ID == kid || k.ID == "") && len(out) < 10 {
				out = append(out, k)
			}
		}
	}
	pick(s.Static)
	if s.URL == "" || s.Now().Sub(s.at) <= keyMaxAge {
		pick(s.fetched)
	}
	return out
}

// Generation returns a number that grows with every change of the fetched keys.
func (s *Set) Generation() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Renew fetches the set again if it is older than RefreshEvery. So a key that its issuer has
// withdrawn is soon refused, and a new key with the id of an old one is soon known. If the
// fetch fails, the keys stay. Renew is for callers that do not call Refresh regularly.
func (s *Set) Renew(ctx context.Context) {
	s.mu.Lock()
	now := s.Now()
	due := s.URL != "" && now.Sub(s.at).Abs() >= RefreshEvery && now.Sub(s.tried).Abs() >= keyRetry
	s.mu.Unlock()
	if due {
		_ = s.Refresh(context.WithoutCancel(ctx)) // as in Find
	}
}

// Refresh fetches the set. Concurrent callers share one fetch and its error. If the caller whose
// fetch it is gives up, one of the others fetches.
func (s *Set) Refresh(ctx context.Context) error {
	s.mu.Lock()
	for s.running != nil {
		running := s.running
		s.mu.Unlock()
		select {
		case <-running.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !errors.Is(running.err, errGivenUp) {
			return running.err
		}
		s.mu.Lock()
	}
	mine := &attempt{done: make(chan struct{})}
	s.running, s.tried = mine, s.Now()
	s.mu.Unlock()

	keys, err := s.fetch(ctx)

	s.mu.Lock()
	if err == nil {
		if !sameKeys(keys, s.fetched) {
			s.version++
		}
		s.fetched, s.at = keys, s.Now()
	}
	s.running = nil
	s.mu.Unlock()
	if mine.err = err; err != nil && ctx.Err() != nil {
		mine.err = errGivenUp
	}
	close(mine.done)
	return err
}

// errGivenUp is the error of an attempt that ended because its caller gave up.
var errGivenUp = errors.New("the fetch of the key set was given up")

func (s *Set) fetch(ctx context.Context) ([]Key, error) {
	ctx, cancel := context.WithTimeout(ctx, keyFetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the key set answered %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxKeySetBytes {
		return nil, errors.New("the key set is too large")
	}
	return Parse(data)
}

func sameKeys(a, b []Key) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		eq, ok := a[i].Public.(interface{ Equal(crypto.PublicKey) bool })
		if a[i].ID != b[i].ID || a[i].Alg != b[i].Alg || !ok || !eq.Equal(b[i].Public) {
			return false
		}
	}
	return true
}

// Parse reads a JWK set (RFC 7517), at most 100 keys. It ignores keys for other uses or
// algorithms. A set without a usable key is an error.
func Parse(data []byte) ([]Key, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("the key set is not JSON: %w", err)
	}
	var out []Key
	for _, raw := range set.Keys {
		if len(out) == maxKeys {
			break
		}
		if k, err := parseKey(raw); err == nil {
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the key set contains no RS256, ES256 or EdDSA key")
	}
	return out, nil
}

// parseKey reads one key of a set. It is an error if the key is not for signatures, or if it
// names another algorithm than the one that keyFor chooses for its type.
func parseKey(raw []byte) (Key, error) {
	key, err := jwk.ParseKey(raw)
	if err != nil {
		return Key{}, err
	}
	if use, set := key.KeyUsage(); set && use != "sig" {
		return Key{}, errors.New("the key is not for signatures")
	}
	public, err := jwk.PublicKeyOf(key)
	if err != nil {
		return Key{}, err
	}
	var pub any
	if err := jwk.Export(public, &pub); err != nil {
		return Key{}, err
	}
	id, _ := key.KeyID()
	out, err := keyFor(id, pub)
	if err != nil {
		return Key{}, err
	}
	if alg, set := key.Algorithm(); set && alg.String() != out.Alg {
		return Key{}, errors.New("the key is for another algorithm")
	}
	return out, nil
}

// keyFor binds a public key to its one algorithm.
func keyFor(id string, pub crypto.PublicKey) (Key, error) {
	switch p := pub.(type) {
	case *rsa.PublicKey:
		if bits := p.N.BitLen(); bits < 2048 || bits > 8192 || p.E < 3 || p.E > 1<<31-1 || p.E%2 == 0 {
			return Key{}, errors.New("an RSA key needs 2048 to 8192 bits, and an odd exponent of 3 to 2^31-1")
		}
		return Key{id, "RS256", p}, nil
	case *ecdsa.PublicKey:
		if p.Curve != elliptic.P256() {
			return Key{}, errors.New("only P-256 keys are supported")
		}
		if _, err := p.ECDH(); err != nil { // the point is not on the curve
			return Key{}, err
		}
		return Key{id, "ES256", p}, nil
	case ed25519.PublicKey:
		if len(p) != ed25519.PublicKeySize {
			return Key{}, errors.New("malformed Ed25519 key")
		}
		return Key{id, "EdDSA", p}, nil
	}
	return Key{}, errors.New("unsupported key type")
}

// ParsePEM reads one PEM block: a public key or a certificate.
func ParsePEM(text string) (Key, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return Key{}, errors.New("not PEM")
	}
	if block.Type == "CERTIFICATE" {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return Key{}, err
		}
		return keyFor("", c.PublicKey)
	}
	pub, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Key{}, err
	}
	return keyFor("", pub)
}
