package auth

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

const sessionColumns = `id, root, user_id, key_id, limited, scopes, environment, ip, created_at, expires_at, digest, agent, used_at, issuer, issuer_subject, issuer_session, id_token`

func insertSession(ctx context.Context, tx *db.Tx, ss session) error {
	_, err := tx.Exec(ctx, `INSERT INTO sessions (`+sessionColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`,
		ss.ID, ss.Root, ss.UserID, ss.KeyID, ss.Limited, ss.Scopes, ss.Env, ss.IP, ss.CreatedAt, ss.ExpiresAt, ss.Digest, ss.Agent, ss.UsedAt,
		ss.Issuer, ss.Subject, ss.ProviderSession, ss.IDToken)
	return err
}

func selectSession(ctx context.Context, tx *db.Tx, id string) (session, error) {
	return db.One[session](ctx, tx, `SELECT `+sessionColumns+` FROM sessions WHERE id = $1`, id)
}

// selectBrowser finds a browser's session by the hash of its cookie.
func selectBrowser(ctx context.Context, tx *db.Tx, digest string) (session, error) {
	return db.One[session](ctx, tx, `SELECT `+sessionColumns+` FROM sessions WHERE digest = $1`, digest)
}

// selectSignIns lists the sign-ins of a person that have not expired, newest use
// first. A browser that has been idle since before idle has expired.
func selectSignIns(ctx context.Context, tx *db.Tx, userID string, now, idle time.Time) ([]session, error) {
	return db.All[session](ctx, tx, `SELECT `+sessionColumns+` FROM sessions
		WHERE user_id = $1 AND root = id AND expires_at > $2 AND (digest = '' OR used_at > $3)
		ORDER BY used_at DESC, created_at DESC, id`, userID, now, idle)
}

func deleteRoot(ctx context.Context, tx *db.Tx, root string) error {
	_, err := tx.Exec(ctx, `DELETE FROM sessions WHERE root = $1`, root)
	return err
}

func deleteSessionsOf(ctx context.Context, tx *db.Tx, userID string) error {
	_, err := tx.Exec(ctx, `DELETE FROM sessions WHERE user_id = $1`, userID)
	return err
}

// deleteOthersOf deletes all sessions of a person except those of one root.
func deleteOthersOf(ctx context.Context, tx *db.Tx, userID, root string) error {
	_, err := tx.Exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND root <> $2`, userID, root)
	return err
}

// keepNewest deletes all but the newest browser sessions of a person, with the sessions
// made from them.
func keepNewest(ctx context.Context, tx *db.Tx, userID string, keep int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND root IN (
		SELECT id FROM sessions WHERE user_id = $1 AND digest <> '' ORDER BY created_at DESC, id LIMIT 1000 OFFSET $2)`, userID, int64(keep))
}

// touchSession moves the last use of a session forward, never back.
func touchSession(ctx context.Context, tx *db.Tx, id string, at time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE sessions SET used_at = $2 WHERE id = $1 AND used_at < $2`, id, at)
	return err
}

func dropExpired(ctx context.Context, tx *db.Tx, now time.Time) error {
	_, err := tx.Exec(ctx, `DELETE FROM sessions WHERE expires_at < $1`, now)
	return err
}

// selectFederated lists the sign-ins that a provider vouched for: those of one session
// there, or of a subject. What by leaves out matches all.
func selectFederated(ctx context.Context, tx *db.Tx, by Federation) ([]string, error) {
	return db.All[string](ctx, tx, `SELECT id FROM sessions WHERE issuer = $1 AND root = id
		AND ($2 = '' OR issuer_subject = $2) AND ($3 = '' OR issuer_session = $3)`, by.Issuer, by.Subject, by.ProviderSession)
}
