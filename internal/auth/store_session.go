package auth

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

const sessionColumns = `id, root, user_id, key_id, limited, scopes, environment, ip, created_at, expires_at, digest, agent, used_at, issuer, issuer_subject, issuer_session, id_token, proof`

func insertSession(ctx context.Context, tx *db.Tx, ss session) error {
	return tx.Do(ctx, `INSERT INTO sessions (`+sessionColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)`,
		ss.ID, ss.Root, ss.UserID, ss.KeyID, ss.Limited, ss.Scopes, ss.Env, ss.IP, ss.CreatedAt, ss.ExpiresAt, ss.Digest, ss.Agent, ss.UsedAt,
		ss.Issuer, ss.Subject, ss.ProviderSession, ss.IDToken, ss.Proof)
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
	return tx.Do(ctx, `DELETE FROM sessions WHERE root = $1`, root)
}

// deleteSessionsOf deletes the sessions of a person, and sign-ins that wait for a code.
func deleteSessionsOf(ctx context.Context, tx *db.Tx, userID string) error {
	if err := tx.Do(ctx, `DELETE FROM login_challenges WHERE user_id = $1`, userID); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM sessions WHERE user_id = $1`, userID)
}

// deleteOthersOf deletes all sessions of a person except those of one root, and sign-ins
// that wait for a code.
func deleteOthersOf(ctx context.Context, tx *db.Tx, userID, root string) error {
	if err := tx.Do(ctx, `DELETE FROM login_challenges WHERE user_id = $1`, userID); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM sessions WHERE user_id = $1 AND root <> $2`, userID, root)
}

// keepNewest deletes all but the newest browser sessions of a person, with the sessions
// made from them.
func keepNewest(ctx context.Context, tx *db.Tx, userID string, keep int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND root IN (
		SELECT id FROM sessions WHERE user_id = $1 AND digest <> '' ORDER BY created_at DESC, id LIMIT 1000 OFFSET $2)`, userID, int64(keep))
}

// touchSession moves the last use of a session forward, never back.
func touchSession(ctx context.Context, tx *db.Tx, id string, at time.Time) error {
	return tx.Do(ctx, `UPDATE sessions SET used_at = $2 WHERE id = $1 AND used_at < $2`, id, at)
}

func dropExpired(ctx context.Context, tx *db.Tx, now time.Time) error {
	return tx.Do(ctx, `DELETE FROM sessions WHERE expires_at < $1`, now)
}

// selectFederated lists the sign-ins of an identity provider: those of one of its sessions, or of a
// subject. An empty member of by matches all.
func selectFederated(ctx context.Context, tx *db.Tx, by Federation) ([]string, error) {
	return db.All[string](ctx, tx, `SELECT id FROM sessions WHERE issuer = $1 AND root = id
		AND ($2 = '' OR issuer_subject = $2) AND ($3 = '' OR issuer_session = $3)`, by.Issuer, by.Subject, by.ProviderSession)
}

// setProof records the proof of all sessions with one root.
func setProof(ctx context.Context, tx *db.Tx, root, proof string) error {
	return tx.Do(ctx, `UPDATE sessions SET proof = $2 WHERE root = $1`, root, proof)
}

// challenge is a sign-in with a correct password that waits for a code.
type challenge struct {
	Digest  string  `db:"digest"`
	UserID  string  `db:"user_id"`
	Purpose purpose `db:"purpose"`
	// PasswordDigest is a digest of the hash of the correct password: a new password ends the
	// challenge.
	PasswordDigest string    `db:"password_digest"`
	Rehash         string    `db:"rehash"`
	Failures       int64     `db:"failures"`
	ExpiresAt      time.Time `db:"expires_at"`
}

const challengeColumns = `digest, user_id, purpose, password_digest, rehash, failures, expires_at`

func insertChallenge(ctx context.Context, tx *db.Tx, c challenge) error {
	return tx.Do(ctx, `INSERT INTO login_challenges (`+challengeColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		c.Digest, c.UserID, c.Purpose, c.PasswordDigest, c.Rehash, c.Failures, c.ExpiresAt)
}

func selectChallenge(ctx context.Context, tx *db.Tx, digest string) (challenge, error) {
	return db.One[challenge](ctx, tx, `SELECT `+challengeColumns+` FROM login_challenges WHERE digest = $1`, digest)
}

// takeChallenge deletes a challenge. Only one of several concurrent calls succeeds.
func takeChallenge(ctx context.Context, tx *db.Tx, digest string) (bool, error) {
	n, err := tx.Exec(ctx, `DELETE FROM login_challenges WHERE digest = $1`, digest)
	return n == 1, err
}

// failChallenge counts a wrong code.
func failChallenge(ctx context.Context, tx *db.Tx, digest string) error {
	return tx.Do(ctx, `UPDATE login_challenges SET failures = failures + 1 WHERE digest = $1`, digest)
}

// dropChallenges deletes those that have expired, and all but the newest of a person.
func dropChallenges(ctx context.Context, tx *db.Tx, userID string, now time.Time) error {
	return tx.Do(ctx, `DELETE FROM login_challenges WHERE expires_at <= $1 OR digest IN (
		SELECT digest FROM login_challenges WHERE user_id = $2 ORDER BY expires_at DESC, digest LIMIT 1000 OFFSET $3)`, now, userID, int64(maxChallenges))
}
