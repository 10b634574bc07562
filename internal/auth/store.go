package auth

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// credential is the system store's entry for a secret: where to look.
type credential struct {
	Tenant scope.TenantID `db:"tenant"`
	Kind   string         `db:"kind"`
	Ref    string         `db:"ref"`
}

func selectCredential(ctx context.Context, tx *db.Tx, digest string) (credential, error) {
	return db.One[credential](ctx, tx, `SELECT tenant, kind, ref FROM credentials WHERE digest = $1`, digest)
}

func putCredential(ctx context.Context, tx *db.Tx, digest string, t scope.TenantID, kind, ref string) error {
	_, err := tx.Exec(ctx, `INSERT INTO credentials (digest, tenant, kind, ref) VALUES ($1, $2, $3, $4)`, digest, t, kind, ref)
	return err
}

func dropCredential(ctx context.Context, tx *db.Tx, digest string) error {
	_, err := tx.Exec(ctx, `DELETE FROM credentials WHERE digest = $1`, digest)
	return err
}

const keyColumns = `id, name, environment, digest, hint, scopes, owner, created_by, created_at, expires_at, last_used_at, dedicated, holder`

func insertKey(ctx context.Context, tx *db.Tx, k Key) error {
	_, err := tx.Exec(ctx, `INSERT INTO api_keys (`+keyColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		k.ID, k.Name, k.Environment, k.Digest, k.Hint, k.Scopes, k.Owner, k.CreatedBy, k.CreatedAt, k.ExpiresAt, k.LastUsedAt, k.Dedicated, k.Holder)
	return err
}

func selectKey(ctx context.Context, tx *db.Tx, id string) (Key, error) {
	return db.One[Key](ctx, tx, `SELECT `+keyColumns+` FROM api_keys WHERE id = $1`, id)
}

// lockKey reads a key for a change and locks it until the transaction ends.
func lockKey(ctx context.Context, tx *db.Tx, id string) (Key, error) {
	if err := tx.Lock(ctx, "key:"+id); err != nil {
		return Key{}, err
	}
	k, err := ordinaryKey(selectKey(ctx, tx, id))
	return k, unknownKey(err)
}

func updateKey(ctx context.Context, tx *db.Tx, k Key) error {
	_, err := tx.Exec(ctx, `UPDATE api_keys SET name = $2, scopes = $3, expires_at = $4 WHERE id = $1`, k.ID, k.Name, k.Scopes, k.ExpiresAt)
	return err
}

func selectKeys(ctx context.Context, tx *db.Tx, skip, limit int) (KeyPage, error) {
	var p KeyPage
	var err error
	p.Keys, err = db.All[Key](ctx, tx, `SELECT `+keyColumns+` FROM api_keys WHERE dedicated = '' ORDER BY created_at, id LIMIT $1 OFFSET $2`, limit, skip)
	if err != nil {
		return KeyPage{}, err
	}
	p.Total, err = db.One[int64](ctx, tx, `SELECT count(*) FROM api_keys WHERE dedicated = ''`)
	return p, err
}

// selectDedicated lists the keys of a holder, newest first.
func selectDedicated(ctx context.Context, tx *db.Tx, kind scope.ActorKind, holder string) ([]Key, error) {
	return db.All[Key](ctx, tx, `SELECT `+keyColumns+` FROM api_keys WHERE dedicated = $1 AND holder = $2 ORDER BY created_at DESC, id DESC`, kind, holder)
}

func expireKey(ctx context.Context, tx *db.Tx, id string, at time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE api_keys SET expires_at = $2 WHERE id = $1`, id, at)
	return err
}

func touchKey(ctx context.Context, tx *db.Tx, id string, at time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)`, id, at)
	return err
}

// deleteKey takes the sessions that were made from the key with it.
func deleteKey(ctx context.Context, tx *db.Tx, id string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM sessions WHERE key_id = $1`, id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM api_keys WHERE id = $1`, id)
	return err
}

func deleteKeysOf(ctx context.Context, tx *db.Tx, owner string) error {
	_, err := tx.Exec(ctx, `DELETE FROM sessions WHERE key_id IN (SELECT id FROM api_keys WHERE owner = $1)`, owner)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM api_keys WHERE owner = $1`, owner)
	return err
}

// deleteAll ends every key and session of the tenant, and removes the places of its
// sign-ins.
func deleteAll(ctx context.Context, tx *db.Tx) error {
	for _, q := range []string{`DELETE FROM sessions`, `DELETE FROM api_keys`, `DELETE FROM login_places`, `DELETE FROM login_attempts`} {
		if _, err := tx.Exec(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// lockAttempt returns the count of a subject and locks it; a new subject has none.
func lockAttempt(ctx context.Context, tx *db.Tx, subject string) (attempt, error) {
	if err := tx.Lock(ctx, "login:"+subject); err != nil {
		return attempt{}, err
	}
	return selectAttempt(ctx, tx, subject)
}

func selectAttempt(ctx context.Context, tx *db.Tx, subject string) (attempt, error) {
	a, err := db.One[attempt](ctx, tx, `SELECT subject, failures, refused, since, locked_until FROM login_attempts WHERE subject = $1`, subject)
	if errors.Is(err, db.ErrNoRows) {
		return attempt{Subject: subject}, nil
	}
	return a, err
}

func putAttempt(ctx context.Context, tx *db.Tx, a attempt) error {
	_, err := tx.Exec(ctx, `INSERT INTO login_attempts (subject, failures, refused, since, locked_until) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (subject) DO UPDATE SET failures = excluded.failures, refused = excluded.refused,
			since = excluded.since, locked_until = excluded.locked_until`,
		a.Subject, a.Failures, a.Refused, a.Since, a.LockedUntil)
	return err
}

// decrementAttempt takes back one guess that turned out to be right.
func decrementAttempt(ctx context.Context, tx *db.Tx, subject string) error {
	_, err := tx.Exec(ctx, `UPDATE login_attempts SET failures = failures - 1 WHERE subject = $1 AND failures > 0`, subject)
	return err
}

func dropAttempt(ctx context.Context, tx *db.Tx, subject string) error {
	_, err := tx.Exec(ctx, `DELETE FROM login_attempts WHERE subject = $1`, subject)
	return err
}

// dropAttemptsAt removes the guesses at an account, from everywhere.
func dropAttemptsAt(ctx context.Context, tx *db.Tx, account string) error {
	_, err := tx.Exec(ctx, `DELETE FROM login_attempts WHERE subject = $1 OR substr(subject, 1, $2) = $3`, account, int64(len(account)+1), account+"@")
	return err
}

// isPlace reports whether a person has signed in from a network since a time.
func isPlace(ctx context.Context, tx *db.Tx, userID, network string, since time.Time) (bool, error) {
	n, err := db.One[int64](ctx, tx, `SELECT count(*) FROM login_places WHERE user_id = $1 AND network = $2 AND at >= $3`, userID, network, since)
	return n > 0, err
}

// putPlace records that a person signed in from a network, and removes old places.
func putPlace(ctx context.Context, tx *db.Tx, userID, network string, at time.Time) error {
	_, err := tx.Exec(ctx, `INSERT INTO login_places (user_id, network, at) VALUES ($1, $2, $3)
		ON CONFLICT (user_id, network) DO UPDATE SET at = excluded.at`, userID, network, at)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM login_places WHERE at < $1`, at.Add(-placesKept))
	return err
}

func dropPlaces(ctx context.Context, tx *db.Tx, userID string) error {
	_, err := tx.Exec(ctx, `DELETE FROM login_places WHERE user_id = $1`, userID)
	return err
}

func dropAttempts(ctx context.Context, tx *db.Tx, before time.Time) error {
	_, err := tx.Exec(ctx, `DELETE FROM login_attempts WHERE since < $1`, before)
	return err
}

const signingColumns = `kid, public, sealed, created_at`

func insertSigningKey(ctx context.Context, tx *db.Tx, k signingKey) error {
	_, err := tx.Exec(ctx, `INSERT INTO signing_keys (`+signingColumns+`) VALUES ($1, $2, $3, $4)`, k.KID, k.Public, k.Sealed, k.CreatedAt)
	return err
}

// selectSigningKeys lists the keys, newest first.
func selectSigningKeys(ctx context.Context, tx *db.Tx) ([]signingKey, error) {
	return db.All[signingKey](ctx, tx, `SELECT `+signingColumns+` FROM signing_keys ORDER BY created_at DESC, kid`)
}

func deleteSigningKeys(ctx context.Context, tx *db.Tx, before time.Time) error {
	_, err := tx.Exec(ctx, `DELETE FROM signing_keys WHERE created_at < $1`, before)
	return err
}
