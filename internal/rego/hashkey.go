package rego

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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
