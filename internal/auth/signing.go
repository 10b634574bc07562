package auth

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// The life of signing keys. A new key is published for settleTime before it signs, so that
// all replicas know it. It verifies until the last token that it signed has expired.
const (
	settleTime  = time.Minute
	reloadPause = 2 * time.Second
)

// tokenType is the `typ` of our tokens (RFC 9068).
const tokenType = "at+jwt"

// signingKey is one Ed25519 key pair.
type signingKey struct {
	KID       string    `db:"kid"`
	Public    []byte    `db:"public"`
	Sealed    []byte    `db:"sealed"`
	CreatedAt time.Time `db:"created_at"`

	private ed25519.PrivateKey
}

// keyring holds the signing keys that this replica knows. It signs and verifies tokens.
type keyring struct {
	cfg Config

	mu sync.RWMutex
	// byHeader finds a key by the first segment of a token, which must be byte for byte
	// the one that we write. So no other algorithm, type or member (kid paths, jku, jwk,
	// crit) is ever read.
	byHeader map[string]*signingKey
	signer   *signingKey
	list     []*signingKey
	loaded   time.Time
}

// JWK is one public key of the set (RFC 8037).
type JWK struct {
	KeyType   string `json:"kty" enum:"OKP" doc:"Key type."`
	Curve     string `json:"crv" enum:"Ed25519" doc:"Curve."`
	X         string `json:"x" doc:"The public key, base64url."`
	KeyID     string `json:"kid" doc:"Key id, as in the header of the tokens."`
	Use       string `json:"use" enum:"sig" doc:"What the key is for."`
	Algorithm string `json:"alg" enum:"EdDSA" doc:"The only algorithm that the key is used with."`
}

// JWKS is the set of keys that tokens may be signed with (RFC 7517).
type JWKS struct {
	Keys []JWK `json:"keys" nullable:"false" doc:"The keys, newest first."`
}

// JWKS returns the public keys, newest first.
func (ring *keyring) JWKS() JWKS {
	ring.mu.RLock()
	defer ring.mu.RUnlock()
	set := JWKS{Keys: make([]JWK, 0, len(ring.list))}
	for _, k := range ring.list {
		set.Keys = append(set.Keys, JWK{
			KeyType: "OKP", Curve: "Ed25519", X: base64.RawURLEncoding.EncodeToString(k.Public), KeyID: k.KID, Use: "sig", Algorithm: "EdDSA",
		})
	}
	return set
}

// rotate creates a new signing key if the newest is older than Rotate, deletes those whose
// tokens have all expired, and loads the rest.
func (ring *keyring) rotate(ctx context.Context) error {
	now := ring.cfg.Now()
	fresh, err := ring.newSigningKey(now)
	if err != nil {
		return err
	}
	var list []signingKey
	err = ring.cfg.Stores.System().Write(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "signing_keys"); err != nil {
			return err
		}
		if err := deleteSigningKeys(ctx, tx, now.Add(-2*ring.cfg.Rotate-TokenLife-settleTime)); err != nil {
			return err
		}
		if list, err = selectSigningKeys(ctx, tx); err != nil {
			return err
		}
		if len(list) > 0 && now.Sub(list[0].CreatedAt) < ring.cfg.Rotate {
			return nil
		}
		list = slices.Insert(list, 0, fresh)
		return insertSigningKey(ctx, tx, fresh)
	})
	if err != nil {
		return err
	}
	return ring.install(list, now)
}

func (ring *keyring) newSigningKey(now time.Time) (signingKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(ring.cfg.Random, seed); err != nil {
		return signingKey{}, err
	}
	public, _ := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	k := signingKey{KID: ring.cfg.NewID(), Public: public, CreatedAt: now}
	var err error
	k.Sealed, err = ring.cfg.Box.Seal(seed, sealName(k.KID))
	return k, err
}

func sealName(kid string) string { return "signing_key:" + kid }

// install decrypts the keys of the store and uses them.
func (ring *keyring) install(list []signingKey, now time.Time) error {
	byHeader := make(map[string]*signingKey, len(list))
	var keys []*signingKey
	var signer *signingKey
	for i := range list {
		k := &list[i]
		seed, err := ring.cfg.Box.Open(k.Sealed, sealName(k.KID))
		if err != nil {
			return fault.Wrap(err, "open a signing key: has the encryption key changed?")
		}
		k.private = ed25519.NewKeyFromSeed(seed)
		header, err := headerOf(k.KID)
		if err != nil {
			return err
		}
		byHeader[header] = k
		keys = append(keys, k)
		settled := now.Sub(k.CreatedAt) >= settleTime
		if signer == nil || (settled && now.Sub(signer.CreatedAt) < settleTime) {
			signer = k
		}
	}
	ring.mu.Lock()
	defer ring.mu.Unlock()
	ring.byHeader, ring.list, ring.signer, ring.loaded = byHeader, keys, signer, now
	return nil
}

// headerOf returns the first segment of every token under a key.
func headerOf(kid string) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.RegisteredClaims{})
	t.Header["kid"], t.Header["typ"] = kid, tokenType
	text, err := t.SigningString()
	if err != nil {
		return "", err
	}
	for i := range len(text) {
		if text[i] == '.' {
			return text[:i], nil
		}
	}
	return "", fault.New(fault.Internal, "internal_error", "a token without a header")
}

// keyFor finds the key of a header. For an unknown one it reads the store again, at most
// once every two seconds.
func (ring *keyring) keyFor(ctx context.Context, header string) (*signingKey, bool) {
	ring.mu.RLock()
	k, ok := ring.byHeader[header]
	recent := ring.cfg.Now().Sub(ring.loaded) < reloadPause
	ring.mu.RUnlock()
	if ok || recent || len(header) > 256 {
		return k, ok
	}
	list, err := db.ReadStore(ctx, ring.cfg.Stores.System(), func(tx *db.Tx) ([]signingKey, error) { return selectSigningKeys(ctx, tx) })
	if err != nil || ring.install(list, ring.cfg.Now()) != nil {
		return nil, false
	}
	ring.mu.RLock()
	defer ring.mu.RUnlock()
	k, ok = ring.byHeader[header]
	return k, ok
}

// sign writes a token.
func (ring *keyring) sign(c claims) (string, error) {
	ring.mu.RLock()
	k := ring.signer
	ring.mu.RUnlock()
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c)
	t.Header["kid"], t.Header["typ"] = k.KID, tokenType
	return t.SignedString(k.private)
}
