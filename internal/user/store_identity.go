package user

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

const identityColumns = `id, issuer, subject, user_id, created_at, created_by, last_used_at`

// insertIdentity adds a link. It returns false if the subject is already linked.
func insertIdentity(ctx context.Context, tx *db.Tx, i Identity) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO user_identities (`+identityColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (issuer, subject) DO NOTHING`,
		i.ID, i.Issuer, i.Subject, i.UserID, i.CreatedAt, i.CreatedBy, i.LastUsedAt)
	return n == 1, err
}

func selectIdentity(ctx context.Context, tx *db.Tx, issuer, subject string) (Identity, error) {
	i, err := db.One[Identity](ctx, tx, `SELECT `+identityColumns+` FROM user_identities WHERE issuer = $1 AND subject = $2`, issuer, subject)
	if errors.Is(err, db.ErrNoRows) {
		return i, fault.NotFoundf("nobody is linked to this subject")
	}
	return i, err
}

func selectIdentities(ctx context.Context, tx *db.Tx, userID string) ([]Identity, error) {
	return db.All[Identity](ctx, tx, `SELECT `+identityColumns+` FROM user_identities WHERE user_id = $1 ORDER BY created_at, id`, userID)
}

func deleteIdentity(ctx context.Context, tx *db.Tx, id string) error {
	return tx.Do(ctx, `DELETE FROM user_identities WHERE id = $1`, id)
}

// RecordIdentityUse records when a person signed in with an identity.
func RecordIdentityUse(ctx context.Context, tx *db.Tx, issuer, subject string, at time.Time) error {
	return tx.Do(ctx, `UPDATE user_identities SET last_used_at = $3 WHERE issuer = $1 AND subject = $2`, issuer, subject, at)
}
