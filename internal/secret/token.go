package secret

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"io"
	"math/big"
	"strings"
)

// A token is a head that says what it is for, 32 random bytes, and a checksum:
//
//	<head>_<43 base62 digits of the random bytes>_<6 base62 digits of a CRC-32>
//
// The checksum covers everything before it. With it, a secret scanner recognises a token, and a
// mistyped token needs no lookup in the store. It is not secret.
const (
	randomDigits = 43 // 62^43 > 2^256
	crcDigits    = 6  // 62^6 > 2^32
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewToken returns a new token, such as gh_bouncer_…_…, with bytes from random.
func NewToken(random io.Reader, head string) (string, error) {
	text, err := RandomText(random, 32, randomDigits)
	if err != nil {
		return "", err
	}
	body := head + "_" + text
	return body + "_" + checksum(body), nil
}

// RandomText returns n bytes from random as base62 digits, padded to width.
func RandomText(random io.Reader, n, width int) (string, error) {
	raw := make([]byte, n)
	if _, err := io.ReadFull(random, raw); err != nil {
		return "", err
	}
	return digits(new(big.Int).SetBytes(raw), width), nil
}

// ParseToken returns the head of a token. ok is false for a text that NewToken does not make.
func ParseToken(s string) (head string, ok bool) {
	cut := len(s) - crcDigits - 1
	at := cut - randomDigits - 1
	if at < 0 || s[at] != '_' || s[cut] != '_' {
		return "", false
	}
	for _, part := range []string{s[at+1 : cut], s[cut+1:]} {
		if strings.Trim(part, base62) != "" {
			return "", false
		}
	}
	return s[:at], checksum(s[:cut]) == s[cut+1:]
}

// DigestOf returns the stored form of a token: lower-case hex of its SHA-256. A token has 256
// random bits, so it needs no slow hash.
func DigestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
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
