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

// HashKeyBytes is the length of a HashKey in bytes.
const HashKeyBytes = 32

// HashKey is a tenant's key for the mask strategy hash. Equal values have equal hashes within a
// tenant, and different hashes in different tenants. Nobody can guess values without the key. An
// empty key means that there is none; values are then redacted.
type HashKey []byte

// Hash returns the replacement of a value: "sha256:" and the 64 hexadecimal digits of its
// HMAC-SHA-256 (RFC 2104). With an empty key it returns Redacted.
func (k HashKey) Hash(value []byte) string {
	if len(k) == 0 {
		return Redacted
	}
	mac := hmac.New(sha256.New, k)
	mac.Write(value)
	return "sha256:" + hex.EncodeToString(mac.Sum(nil))
}

// Derive returns a key for another purpose (HKDF, RFC 5869), which reveals nothing about k. It is
// empty if k is empty.
func (k HashKey) Derive(purpose string) HashKey {
	if len(k) == 0 {
		return nil
	}
	sub, err := hkdf.Key(sha256.New, k, nil, purpose, HashKeyBytes)
	if err != nil {
		return nil // cannot happen: the length is within the bound of HKDF
	}
	return sub
}

// KeyMember is the member of a manifest's metadata with the tenant's sealed HashKey: {id, sealed}.
const KeyMember = "mask_key"

// KeyPlace returns the place of a tenant's HashKey, for sealing it.
func KeyPlace(tenant, id string) string { return "mask_keys/" + tenant + "/" + id }

// SealFor encrypts k (AES-256-GCM) for the holder of a bouncer's token. A bundle carries the result,
// and a stock OPA shows the manifest of a bundle to anybody, and bundles are stored on disk. The
// result can be opened only for the same place. Equal arguments give equal results, so that the
// bytes of a bundle depend only on its content.
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

// ErrHashKey means that a sealed key cannot be opened: it is damaged, or was sealed for another
// token or place.
var ErrHashKey = errors.New("the sealed key cannot be opened")

// OpenHashKey decrypts a result of SealFor for the same token and place. Otherwise it fails with
// ErrHashKey.
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
		return nil, nil, fmt.Errorf("derive a key from the bouncer's token: %w", err)
	}
	block, err := aes.NewCipher(keys[:HashKeyBytes])
	if err != nil {
		return nil, nil, fmt.Errorf("create the cipher for the sealed key: %w", err)
	}
	aead, err = cipher.NewGCM(block)
	return aead, keys[HashKeyBytes:], err
}
