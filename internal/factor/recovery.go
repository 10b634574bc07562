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
	// recoveryBytes is the number of random bytes in a code of 16 characters. Nobody can guess 80
	// bits, so a plain hash protects them.
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

// recoveryDigest returns the stored form of a recovery code.
func recoveryDigest(userID, text string) string {
	sum := sha256.Sum256([]byte("recovery\x00" + userID + "\x00" + text))
	return hex.EncodeToString(sum[:])
}

// clean returns a code in the form in which it is compared, without the spaces, dashes and capitals
// that people type.
func clean(code string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(strings.TrimSpace(code)))
}

// IsTimed reports whether a text is as short as an app's code. Such a code can be guessed.
func IsTimed(code string) bool {
	text := clean(code)
	return len(text) <= digits
}
