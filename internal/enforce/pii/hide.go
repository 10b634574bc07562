package pii

import (
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

// Hide appends the replacement of a text under a mask's strategy: nothing for remove, the keyed
// digest for hash, "****" and the last four characters for last4, and "[redacted]" for all others
// and for hash without a key.
func Hide(dst, text []byte, strategy string, key masking.HashKey) []byte {
	switch strategy {
	case masking.Remove:
		return dst
	case masking.Hash:
		return append(dst, key.Hash(text)...)
	case masking.Last4:
		dst = append(dst, "****"...)
		if r := []rune(string(text)); len(r) > 8 {
			dst = append(dst, string(r[len(r)-4:])...)
		}
		return dst
	}
	return append(dst, masking.Redacted...)
}
