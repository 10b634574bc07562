package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

// Seal makes the ids of MCP sessions useless to anyone but the user who opened them. It
// encrypts the server's id for the user with a key of the tenant. All bouncers of the tenant
// have the key, so they need no shared state.
type Seal struct {
	aead cipher.AEAD
	key  []byte // of nonces
}

// NewSeal returns nil without a key.
func NewSeal(key masking.HashKey) *Seal {
	own := key.Derive("mcp-session/v1")
	if len(own) == 0 {
		return nil
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil
	}
	return &Seal{aead, key.Derive("mcp-session/nonce/v1")}
}

// IsSealed reports whether a bouncer issued an id.
func IsSealed(id string) bool { return strings.HasPrefix(id, sealedSession) }

// Seal returns the id for the user. It is always the same.
func (s *Seal) Seal(id, user string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(user + "\x00" + id))
	nonce := mac.Sum(nil)[:s.aead.NonceSize()]
	return sealedSession + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, []byte(id), []byte(user)))
}

// Open returns the server's own id. It returns false for an id that was not sealed here, or that
// was sealed for another user.
func (s *Seal) Open(sealed, user string) (string, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(sealed, sealedSession))
	if err != nil || len(raw) < s.aead.NonceSize() {
		return "", false
	}
	id, err := s.aead.Open(nil, raw[:s.aead.NonceSize()], raw[s.aead.NonceSize():], []byte(user))
	return string(id), err == nil
}
