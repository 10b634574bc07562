package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"io"
	"math/big"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The format of an API key:
//
//	gh_<sandbox|production|tenant>_<43 base62 digits of 32 random bytes>_<6 base62 digits of a CRC-32>
//
// Bouncers' tokens are written alike, with bouncer in the middle (package bouncer).
// The checksum is over all before it. It lets a scanner know a key when it sees
// one and spares the store a look for a mistyped one; it is no secret.
const (
	keyPrefix    = "gh_"
	secretDigits = 43 // 62^43 > 2^256
	crcDigits    = 6  // 62^6 > 2^32
	hintDigits   = 4
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// kindOf returns the middle of a key: its environment, or tenant if it is not limited to
// one.
func kindOf(env scope.Env) string {
	if env == scope.AnyEnv {
		return "tenant"
	}
	return string(env)
}

func knownKind(kind string) bool {
	return kind == "tenant" || kind == credentialBouncer || scope.Env(kind).Valid()
}

// newKey generates an API key from random.
func newKey(random io.Reader, env scope.Env) (string, error) {
	var raw [32]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return "", err
	}
	body := keyPrefix + kindOf(env) + "_" + digits(new(big.Int).SetBytes(raw[:]), secretDigits)
	return body + "_" + checksum(body), nil
}

// digits writes n in base 62, padded to width.
func digits(n *big.Int, width int) string {
	out := make([]byte, width)
	base, rest := big.NewInt(62), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, rest)
		out[i] = base62[rest.Int64()]
	}
	return string(out)
}

func checksum(body string) string {
	return digits(big.NewInt(int64(crc32.ChecksumIEEE([]byte(body)))), crcDigits)
}

// looksLikeKey distinguishes an API key from a token by its first letters.
func looksLikeKey(s string) bool { return strings.HasPrefix(s, keyPrefix) }

// wellFormed reports whether s has the format of our keys, including the checksum.
func wellFormed(s string) bool {
	rest, ok := strings.CutPrefix(s, keyPrefix)
	if !ok {
		return false
	}
	kind, rest, ok := strings.Cut(rest, "_")
	if !ok || !knownKind(kind) || len(rest) != secretDigits+1+crcDigits || rest[secretDigits] != '_' {
		return false
	}
	for i := range len(rest) {
		if i != secretDigits && strings.IndexByte(base62, rest[i]) < 0 {
			return false
		}
	}
	cut := len(s) - crcDigits - 1
	return checksum(s[:cut]) == s[cut+1:]
}

// hint returns the part of a key that may be shown again, so that its owner recognises it.
func hint(key string) string {
	cut := strings.LastIndexByte(key, '_')
	head := strings.LastIndexByte(key[:cut], '_') + 1
	return key[:head+hintDigits] + "…"
}

// digestOf returns the stored form of a key: lower-case hex of its SHA-256. Its 256 random
// bits need no slow hash.
func digestOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
