package factor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

const (
	// recoveryCodes is how many codes a person gets at once.
	recoveryCodes = 10
	// recoveryBytes makes 16 characters: 80 random bits, which nobody guesses, so that a
	// plain hash is enough.
	recoveryBytes = 10
)

// renew replaces the recovery codes of a person, and returns the new ones.
func (s *Service) renew(ctx context.Context, tx *db.Tx, userID string) ([]string, error) {
	codes, digests := make([]string, recoveryCodes), make([]string, recoveryCodes)
	for i := range codes {
		var raw [recoveryBytes]byte
		if _, err := io.ReadFull(s.Random, raw[:]); err != nil {
			return nil, err
		}
		text := strings.ToLower(encoding.EncodeToString(raw[:]))
		codes[i] = text[:4] + "-" + text[4:8] + "-" + text[8:12] + "-" + text[12:]
		digests[i] = recoveryDigest(userID, text)
	}
	if err := deleteRecovery(ctx, tx, userID); err != nil {
		return nil, err
	}
	return codes, insertRecovery(ctx, tx, userID, digests)
}

// recoveryDigest is the stored form of a recovery code.
func recoveryDigest(userID, text string) string {
	sum := sha256.Sum256([]byte("recovery\x00" + userID + "\x00" + text))
	return hex.EncodeToString(sum[:])
}

// clean gives a code the form in which it is compared: people type spaces, dashes and
// capitals.
func clean(code string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(strings.TrimSpace(code)))
}

// IsTimed reports whether a text has the form of an app's code. Such a code is short enough
// to be guessed.
func IsTimed(code string) bool {
	text := clean(code)
	return len(text) <= digits
}
