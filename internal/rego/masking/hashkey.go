package masking

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
)

// HashKeyBytes is the length of a key that values are hashed with.
const HashKeyBytes = 32

// HashKey is a tenant's key for the hash strategy of masks. Equal values have equal
// hashes within the tenant and different ones in another, and who has not the key
// cannot try values out. Empty: there is none, and a value is redacted instead.
type HashKey []byte

// Hash is what stands for a value: "sha256:" and the 64 hexadecimal digits of its
// HMAC-SHA-256 (RFC 2104).
func (k HashKey) Hash(value []byte) string {
	if len(k) == 0 {
		return Redacted
	}
	mac := hmac.New(sha256.New, k)
	mac.Write(value)
	return "sha256:" + hex.EncodeToString(mac.Sum(nil))
}

// Derive is a key for another purpose, which tells nothing of k; empty if k is.
func (k HashKey) Derive(purpose string) HashKey {
	if len(k) == 0 {
		return nil
	}
	sub, err := hkdf.Key(sha256.New, k, nil, purpose, HashKeyBytes)
	if err != nil {
		return nil // never: the length is within the bound of HKDF
	}
	return sub
}

// KeyMember is the member of a manifest's metadata that holds the key of the
// tenant's masks: {id, sealed}.
const KeyMember = "mask_key"

// KeyPlace is what a sealed key of masks belongs to.
func KeyPlace(tenant, id string) string { return "mask_keys/" + tenant + "/" + id }

// SealFor encrypts k for the holder of a bouncer's token, so that a bundle may
// carry it past a stock OPA, which shows a bundle's manifest to whoever asks, and
// onto a disk. place is what the result belongs to. Equal arguments give equal
// results: a bundle's bytes depend on nothing but its content.
func (k HashKey) SealFor(token, place string) (string, error) {
	aead, nonceKey, err := sealerFor(token)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, nonceKey)
	mac.Write([]byte(place))
	mac.Write(k)
	nonce := mac.Sum(nil)[:aead.NonceSize()]
	return base64.StdEncoding.EncodeToString(aead.Seal(nonce, nonce, k, []byte(place))), nil
}

// ErrHashKey says that a sealed key does not open: it is damaged, or was sealed for
// another token or place.
var ErrHashKey = errors.New("the sealed key does not open")

// OpenHashKey decrypts what SealFor gave for the same token and place; else ErrHashKey.
func OpenHashKey(sealed, token, place string) (HashKey, error) {
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, ErrHashKey
	}
	aead, _, err := sealerFor(token)
	if err != nil {
		return nil, err
	}
	if len(raw) < aead.NonceSize() {
		return nil, ErrHashKey
	}
	key, err := aead.Open(nil, raw[:aead.NonceSize()], raw[aead.NonceSize():], []byte(place))
	if err != nil || len(key) != HashKeyBytes {
		return nil, ErrHashKey
	}
	return key, nil
}

func sealerFor(token string) (aead cipher.AEAD, nonceKey []byte, err error) {
	keys, err := hkdf.Key(sha256.New, []byte(token), nil, "gatehouse/bundle/mask-key/v1", 2*HashKeyBytes)
	if err != nil {
		return nil, nil, fmt.Errorf("a bouncer's token: %w", err)
	}
	block, err := aes.NewCipher(keys[:HashKeyBytes])
	if err != nil {
		return nil, nil, fmt.Errorf("a bouncer's token: %w", err)
	}
	aead, err = cipher.NewGCM(block)
	return aead, keys[HashKeyBytes:], err
}
