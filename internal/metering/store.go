package metering

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

// putCalls stores counts. A row has the total of one source, so a later copy replaces an earlier
// one. The larger count wins, because counts only grow.
func putCalls(ctx context.Context, tx *db.Tx, rows [][]any) error {
	return db.DoRows(ctx, tx, `INSERT INTO api_calls (width, bucket, operation, source, n) VALUES `, rows,
		` ON CONFLICT (width, bucket, operation, source) DO UPDATE SET n = CASE WHEN excluded.n > api_calls.n THEN excluded.n ELSE api_calls.n END`)
}

// foldCalls adds up the hours before a day by the day, and deletes them.
func foldCalls(ctx context.Context, tx *db.Tx, before time.Time) error {
	const anHour, aDay = int64(time.Hour / time.Microsecond), int64(24 * time.Hour / time.Microsecond)
	err := tx.Do(ctx, `INSERT INTO api_calls (width, bucket, operation, source, n)
		SELECT $2, (bucket / $2) * $2, operation, 0, SUM(n) FROM api_calls WHERE width = $1 AND bucket < $3 GROUP BY (bucket / $2) * $2, operation
		ON CONFLICT (width, bucket, operation, source) DO UPDATE SET n = api_calls.n + excluded.n`, anHour, aDay, before)
	if err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM api_calls WHERE width = $1 AND bucket < $2`, anHour, before)
}

// callsOf is the number of calls of an operation in a bucket: an hour or a day.
type callsOf struct {
	Bucket    time.Time `db:"bucket"`
	Operation string    `db:"operation"`
	N         int64     `db:"n"`
}

// selectCalls returns the calls at or after from and before another time.
func selectCalls(ctx context.Context, tx *db.Tx, from, before time.Time) ([]callsOf, error) {
	return db.All[callsOf](ctx, tx, `SELECT bucket, operation, CAST(SUM(n) AS BIGINT) AS n FROM api_calls
		WHERE bucket >= $1 AND bucket < $2 GROUP BY bucket, operation ORDER BY bucket, operation`, from, before)
}

// sumCalls returns the number of calls at or after from and before another time.
func sumCalls(ctx context.Context, tx *db.Tx, from, before time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT CAST(COALESCE(SUM(n), 0) AS BIGINT) FROM api_calls WHERE bucket >= $1 AND bucket < $2`, from, before)
}

func countPolicies(ctx context.Context, tx *db.Tx) (PolicyCount, error) {
	return db.One[PolicyCount](ctx, tx, `SELECT COUNT(*) AS total, COUNT(CASE WHEN status = 'active' THEN 1 END) AS active,
		COUNT(CASE WHEN environment = 'sandbox' THEN 1 END) AS sandbox FROM policies WHERE deleted_at IS NULL`)
}

func countBouncers(ctx context.Context, tx *db.Tx) (BouncerCount, error) {
	return db.One[BouncerCount](ctx, tx, `SELECT COUNT(*) AS total, COUNT(CASE WHEN status <> 'disconnected' THEN 1 END) AS active,
		COALESCE(SUM(CASE WHEN status <> 'disconnected' THEN requests_per_second END), 0.0) * 60 AS requests_per_minute FROM bouncers`)
}

// countUsers counts people, and those among them who were signed in during a period.
func countUsers(ctx context.Context, tx *db.Tx, from, before time.Time) (UserCount, error) {
	return db.One[UserCount](ctx, tx, `SELECT COUNT(*) AS total, COUNT(CASE WHEN u.last_login_at >= $1 AND u.last_login_at < $2
			OR EXISTS (SELECT 1 FROM sessions s WHERE s.user_id = u.id AND s.used_at >= $1 AND s.created_at < $2) THEN 1 END) AS active
		FROM users u`, from, before)
}

// accountRow is the name of the account's row among the settings.
const accountRow = "billing"

func selectAccount(ctx context.Context, tx *db.Tx) (account, error) {
	row, err := db.OneOrZero[struct {
		Value account `db:"value"`
	}](ctx, tx, `SELECT value FROM settings WHERE name = $1`, accountRow)
	return row.Value, err
}

func putAccount(ctx context.Context, tx *db.Tx, a account) error {
	return tx.Do(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, accountRow, a)
}

// Secrets declares the token of the payment method, for package reseal. It is a member of a row of
// settings.
func (s *Service) Secrets() []reseal.Column {
	return []reseal.Column{{
		Table: "settings", Name: accountRow, Box: s.Box, Place: reseal.ByTenant(paymentPlace),
		List: func(ctx context.Context, tx *db.Tx) ([]reseal.Value, error) {
			a, err := selectAccount(ctx, tx)
			if err != nil {
				return nil, err
			}
			sealed, err := base64.StdEncoding.DecodeString(a.Payment)
			return []reseal.Value{{Key: accountRow, Sealed: sealed}}, err
		},
		Replace: func(ctx context.Context, tx *db.Tx, v reseal.Value, again []byte) (bool, error) {
			if err := tx.Lock(ctx, "tenant"); err != nil { // as Update does
				return false, err
			}
			a, err := selectAccount(ctx, tx)
			if err != nil || a.Payment != base64.StdEncoding.EncodeToString(v.Sealed) {
				return false, err
			}
			a.Payment = base64.StdEncoding.EncodeToString(again)
			return true, putAccount(ctx, tx, a)
		},
	}}
}
