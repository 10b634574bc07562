package bouncer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"io"
	"math/big"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// The format of a token, that of API keys:
//
//	gh_bouncer_<43 base62 digits of 32 random bytes>_<6 base62 digits of a CRC-32 of all before it>
const (
	tokenPrefix  = "gh_bouncer_"
	secretDigits = 43
	crcDigits    = 6
	base62       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

func newToken(random io.Reader) (string, error) {
	var raw [32]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return "", err
	}
	body := tokenPrefix + digits(new(big.Int).SetBytes(raw[:]), secretDigits)
	return body + "_" + checksum(body), nil
}

// Digest is how a token is stored: lower hex of its SHA-256. Its 256 random
// bits need no slow hash.
func Digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

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

// RevokeTokens makes the tokens of all bouncers of a tenant void within tx: each needs a
// new one (rotate). It is one of tenant.Service.RevokeHooks.
func RevokeTokens(ctx context.Context, tx *db.Tx) error { return dropTokens(ctx, tx) }
