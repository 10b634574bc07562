package factor

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

// row is a person's factor as stored.
type row struct {
	UserID      string     `db:"user_id"`
	Sealed      []byte     `db:"sealed"`
	CreatedAt   time.Time  `db:"created_at"`
	ConfirmedAt *time.Time `db:"confirmed_at"`
}

const columns = `user_id, sealed, created_at, confirmed_at`

// selectRow returns a person's factor, confirmed or not; the zero row: there is none.
func selectRow(ctx context.Context, tx *db.Tx, userID string) (row, error) {
	return db.OneOrZero[row](ctx, tx, `SELECT `+columns+` FROM user_factors WHERE user_id = $1`, userID)
}

func putRow(ctx context.Context, tx *db.Tx, r row) error {
	return tx.Do(ctx, `INSERT INTO user_factors (`+columns+`) VALUES ($1, $2, $3, $4)
		ON CONFLICT (user_id) DO UPDATE SET sealed = excluded.sealed, created_at = excluded.created_at, confirmed_at = excluded.confirmed_at`,
		r.UserID, r.Sealed, r.CreatedAt, r.ConfirmedAt)
}

// useStep marks a step as used, and reports whether it was unused. Of concurrent callers, one
// succeeds.
func useStep(ctx context.Context, tx *db.Tx, userID string, step int64) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO user_factor_steps (user_id, step) VALUES ($1, $2) ON CONFLICT (user_id, step) DO NOTHING`, userID, step)
	return n == 1, err
}

func deleteStepsBefore(ctx context.Context, tx *db.Tx, userID string, step int64) error {
	return tx.Do(ctx, `DELETE FROM user_factor_steps WHERE user_id = $1 AND step < $2`, userID, step)
}

func insertRecovery(ctx context.Context, tx *db.Tx, userID string, digests []string) error {
	rows := make([][]any, len(digests))
	for i, d := range digests {
		rows[i] = []any{userID, d}
	}
	return db.DoRows(ctx, tx, `INSERT INTO user_recovery_codes (user_id, digest) VALUES `, rows, ``)
}

// useRecovery marks a recovery code as used, and reports whether it was valid and unused. Of
// concurrent callers, one succeeds.
func useRecovery(ctx context.Context, tx *db.Tx, userID, digest string, at time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE user_recovery_codes SET used_at = $3 WHERE user_id = $1 AND digest = $2 AND used_at IS NULL`, userID, digest, at)
	return n == 1, err
}

func countRecovery(ctx context.Context, tx *db.Tx, userID string) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM user_recovery_codes WHERE user_id = $1 AND used_at IS NULL`, userID)
}

func deleteRecovery(ctx context.Context, tx *db.Tx, userID string) error {
	return tx.Do(ctx, `DELETE FROM user_recovery_codes WHERE user_id = $1`, userID)
}

// deleteAll deletes everything about a person's factor, and reports whether there was a confirmed
// one.
func deleteAll(ctx context.Context, tx *db.Tx, userID string) (bool, error) {
	n, err := tx.Exec(ctx, `DELETE FROM user_factors WHERE user_id = $1 AND confirmed_at IS NOT NULL`, userID)
	for _, q := range []string{
		`DELETE FROM user_factors WHERE user_id = $1`,
		`DELETE FROM user_factor_steps WHERE user_id = $1`,
		`DELETE FROM user_recovery_codes WHERE user_id = $1`,
	} {
		if err == nil {
			err = tx.Do(ctx, q, userID)
		}
	}
	return n > 0, err
}

// Secrets declares the secrets of second factors, for package reseal.
func (s *Service) Secrets() []reseal.Column {
	return []reseal.Column{{Table: "user_factors", Name: "sealed", Key: "user_id", Box: s.Box, Place: reseal.ByName(place)}}
}
