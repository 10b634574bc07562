package pii

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// Hide appends what stands for a text under a mask's strategy (contract
// section 4): nothing for remove, "sha256:" and a digest for hash, "****" and
// the last four characters for last4, "[redacted]" for any other.
func Hide(dst, text []byte, strategy string) []byte {
	switch strategy {
	case rego.StrategyRemove:
		return dst
	case rego.StrategyHash:
		sum := sha256.Sum256(text)
		return hex.AppendEncode(append(dst, "sha256:"...), sum[:])
	case rego.StrategyLast4:
		dst = append(dst, "****"...)
		if r := []rune(string(text)); len(r) > 8 {
			dst = append(dst, string(r[len(r)-4:])...)
		}
		return dst
	}
	return append(dst, rego.Redacted...)
}
