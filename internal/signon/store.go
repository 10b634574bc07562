package signon

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

// record is the sign-on as stored.
type record struct {
	Settings  Settings  `db:"settings"`
	Secret    []byte    `db:"sealed_secret"`
	UpdatedAt time.Time `db:"updated_at"`
}

// selectRecord returns the record. Fault: NotFound if the tenant has no provider.
func selectRecord(ctx context.Context, tx *db.Tx) (record, error) {
	row, err := db.One[struct {
		Settings  string    `db:"settings"`
		Secret    []byte    `db:"sealed_secret"`
		UpdatedAt time.Time `db:"updated_at"`
	}](ctx, tx, `SELECT settings, sealed_secret, updated_at FROM sign_on WHERE id = 1`)
	if errors.Is(err, db.ErrNoRows) {
		return record{}, fault.New(fault.NotFound, "not_configured", "the tenant has no identity provider")
	}
	r := record{Secret: row.Secret, UpdatedAt: row.UpdatedAt}
	if err == nil {
		err = json.Unmarshal([]byte(row.Settings), &r.Settings)
	}
	return r, err
}

func putRecord(ctx context.Context, tx *db.Tx, r record) error {
	text, err := json.Marshal(r.Settings)
	if err != nil {
		return err
	}
	return tx.Do(ctx, `INSERT INTO sign_on (id, settings, sealed_secret, enabled, password_login, updated_at) VALUES (1, $1, $2, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET settings = excluded.settings, sealed_secret = excluded.sealed_secret, enabled = excluded.enabled,
			password_login = excluded.password_login, updated_at = excluded.updated_at`,
		string(text), r.Secret, r.Settings.Enabled, r.Settings.PasswordLogin, r.UpdatedAt)
}

func deleteRecord(ctx context.Context, tx *db.Tx) error {
	return tx.Do(ctx, `DELETE FROM sign_on`)
}

// countPasswordsOff returns 1 if people must use the provider and may not sign in with a password,
// or else 0.
func countPasswordsOff(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM sign_on WHERE enabled AND NOT password_login`)
}

// markUsed stores a digest, and reports whether it was new. It deletes those that have expired.
func markUsed(ctx context.Context, tx *db.Tx, digest string, now, until time.Time) (bool, error) {
	if err := tx.Do(ctx, `DELETE FROM sign_on_used WHERE expires_at < $1`, now); err != nil {
		return false, err
	}
	n, err := tx.Exec(ctx, `INSERT INTO sign_on_used (digest, expires_at) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING`, digest, until)
	return n == 1, err
}

// Secrets declares the client secret, for package reseal.
func (s *Service) Secrets() []reseal.Column {
	return []reseal.Column{{Table: "sign_on", Name: "sealed_secret", Key: "id", Box: s.Box, Place: reseal.ByTenant(secretPlace)}}
}
