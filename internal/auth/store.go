package auth

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

// credential is the system store's entry for the hash of a secret. It says in which tenant the
// secret is stored, and as what.
type credential struct {
	Tenant scope.TenantID `db:"tenant"`
	Kind   string         `db:"kind"`
	Ref    string         `db:"ref"`
}

func selectCredential(ctx context.Context, tx *db.Tx, digest string) (credential, error) {
	return db.One[credential](ctx, tx, `SELECT tenant, kind, ref FROM credentials WHERE digest = $1`, digest)
}

func putCredential(ctx context.Context, tx *db.Tx, digest string, t scope.TenantID, kind, ref string) error {
	return tx.Do(ctx, `INSERT INTO credentials (digest, tenant, kind, ref) VALUES ($1, $2, $3, $4)`, digest, t, kind, ref)
}

func dropCredential(ctx context.Context, tx *db.Tx, digest string) error {
	return tx.Do(ctx, `DELETE FROM credentials WHERE digest = $1`, digest)
}

const keyColumns = `id, name, environment, digest, hint, scopes, owner, created_by, created_at, expires_at, last_used_at, dedicated, holder, lineage`

func insertKey(ctx context.Context, tx *db.Tx, k Key) error {
	return tx.Do(ctx, `INSERT INTO api_keys (`+keyColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
		k.ID, k.Name, k.Environment, k.Digest, k.Hint, k.Scopes, k.Owner, k.CreatedBy, k.CreatedAt, k.ExpiresAt, k.LastUsedAt, k.Dedicated, k.Holder, k.Lineage)
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
	return tx.Do(ctx, `UPDATE api_keys SET name = $2, scopes = $3, expires_at = $4 WHERE id = $1`, k.ID, k.Name, k.Scopes, k.ExpiresAt)
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
	return tx.Do(ctx, `UPDATE api_keys SET expires_at = $2 WHERE id = $1`, id, at)
}

func touchKey(ctx context.Context, tx *db.Tx, id string, at time.Time) error {
	return tx.Do(ctx, `UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)`, id, at)
}

// deleteKey also deletes the sessions that were made from the key.
func deleteKey(ctx context.Context, tx *db.Tx, id string) error {
	if err := tx.Do(ctx, `DELETE FROM sessions WHERE key_id = $1`, id); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM api_keys WHERE id = $1`, id)
}

func deleteKeysOf(ctx context.Context, tx *db.Tx, owner string) error {
	err := tx.Do(ctx, `DELETE FROM sessions WHERE key_id IN (SELECT id FROM api_keys WHERE owner = $1)`, owner)
	if err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM api_keys WHERE owner = $1`, owner)
}

// deleteAll ends every key and session of the tenant, and removes the places of its
// sign-ins.
func deleteAll(ctx context.Context, tx *db.Tx) error {
	for _, q := range []string{`DELETE FROM sessions`, `DELETE FROM login_challenges`, `DELETE FROM api_keys`, `DELETE FROM login_places`, `DELETE FROM login_attempts`} {
		if err := tx.Do(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

const signingColumns = `kid, public, sealed, created_at`

func insertSigningKey(ctx context.Context, tx *db.Tx, k signingKey) error {
	return tx.Do(ctx, `INSERT INTO signing_keys (`+signingColumns+`) VALUES ($1, $2, $3, $4)`, k.KID, k.Public, k.Sealed, k.CreatedAt)
}

// selectSigningKeys lists the keys, newest first.
func selectSigningKeys(ctx context.Context, tx *db.Tx) ([]signingKey, error) {
	return db.All[signingKey](ctx, tx, `SELECT `+signingColumns+` FROM signing_keys ORDER BY created_at DESC, kid`)
}

func deleteSigningKeys(ctx context.Context, tx *db.Tx, before time.Time) error {
	return tx.Do(ctx, `DELETE FROM signing_keys WHERE created_at < $1`, before)
}

// Secrets declares the keys that sign tokens, for package reseal.
func (ring *keyring) Secrets() []reseal.Column {
	at := reseal.ByName(func(_ scope.TenantID, kid string) string { return sealName(kid) })
	return []reseal.Column{{Table: "signing_keys", Name: "sealed", Key: "kid", System: true, Box: ring.cfg.Box, Place: at}}
}
