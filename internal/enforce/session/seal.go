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

// Seal makes the ids of MCP sessions worthless to all but who opened them.
// What the server calls a session is encrypted for its user under a key of the
// tenant, which all of its bouncers have: none has to remember anything.
type Seal struct {
	aead cipher.AEAD
	key  []byte // of nonces
}

// NewSeal is nil without a key.
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

// IsSealed reports an id that a bouncer gave out.
func IsSealed(id string) bool { return strings.HasPrefix(id, sealedSession) }

// Seal is the id that the user gets; the same each time.
func (s *Seal) Seal(id, user string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(user + "\x00" + id))
	nonce := mac.Sum(nil)[:s.aead.NonceSize()]
	return sealedSession + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, []byte(id), []byte(user)))
}

// Open is the server's own id; false: it is no id of ours, or another user's.
func (s *Seal) Open(sealed, user string) (string, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(sealed, sealedSession))
	if err != nil || len(raw) < s.aead.NonceSize() {
		return "", false
	}
	id, err := s.aead.Open(nil, raw[:s.aead.NonceSize()], raw[s.aead.NonceSize():], []byte(user))
	return string(id), err == nil
}
