package telemetry

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

func selectState(ctx context.Context, tx *db.Tx) (state, error) {
	return db.One[state](ctx, tx, `SELECT url, api_key, enabled, frequency, encryption, anonymization, retention_days, alias, period_start, next_at,
		last_sent_at, updated_at, change_no, attempted_at, verified_at, failure, key_refused, license, server_key FROM telemetry`)
}

func putState(ctx context.Context, tx *db.Tx, st state) error {
	return tx.Do(ctx, `INSERT INTO telemetry (id, url, api_key, enabled, frequency, encryption, anonymization, retention_days, alias,
			period_start, next_at, last_sent_at, updated_at, change_no, attempted_at, verified_at, failure, key_refused, license, server_key)
		VALUES (1, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
		ON CONFLICT (id) DO UPDATE SET url = excluded.url, api_key = excluded.api_key, enabled = excluded.enabled, frequency = excluded.frequency,
			encryption = excluded.encryption, anonymization = excluded.anonymization, retention_days = excluded.retention_days,
			period_start = excluded.period_start, next_at = excluded.next_at, last_sent_at = excluded.last_sent_at,
			updated_at = excluded.updated_at, change_no = excluded.change_no, attempted_at = excluded.attempted_at,
			verified_at = excluded.verified_at, failure = excluded.failure, key_refused = excluded.key_refused, license = excluded.license,
			server_key = excluded.server_key`,
		st.URL, st.APIKey, st.Enabled, st.Frequency, st.Encryption, st.Anonymization, st.RetentionDays, st.Alias, st.PeriodStart, st.NextAt,
		st.LastSentAt, st.UpdatedAt, st.ChangeNo, st.AttemptedAt, st.VerifiedAt, st.Failure, st.KeyRefused, st.License, st.ServerKey)
}

func noteSent(ctx context.Context, tx *db.Tx, at time.Time) error {
	return tx.Do(ctx, `UPDATE telemetry SET last_sent_at = $1`, at)
}

// selectUpdate returns the answer to an update that was applied, or db.ErrNoRows.
func selectUpdate(ctx context.Context, tx *db.Tx, digest string) (Updated, error) {
	row, err := db.One[struct {
		Answer Updated `db:"answer"`
	}](ctx, tx, `SELECT answer FROM license_updates WHERE digest = $1`, digest)
	return row.Answer, err
}

// insertUpdate records an update that was applied, and deletes those with an older date.
func insertUpdate(ctx context.Context, tx *db.Tx, digest string, effective time.Time, answer Updated) error {
	if err := tx.Do(ctx, `DELETE FROM license_updates WHERE effective_at < $1`, effective); err != nil {
		return err
	}
	return tx.Do(ctx, `INSERT INTO license_updates (digest, effective_at, answer) VALUES ($1, $2, $3)`, digest, effective, answer)
}

func deleteUpdates(ctx context.Context, tx *db.Tx) error {
	return tx.Do(ctx, `DELETE FROM license_updates`)
}

// Secrets declares the API key of the license server, for package reseal.
func Secrets(s *Service) []reseal.Column {
	return []reseal.Column{{Table: "telemetry", Name: "api_key", Key: "id", Box: s.Box, Place: reseal.ByTenant(place)}}
}
