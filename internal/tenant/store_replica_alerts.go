package tenant

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// renewal is a row of replica_alerts.
type renewal struct {
	AlertKey
	At time.Time `db:"renewed_at"`
}

func selectRenewals(ctx context.Context, tx *db.Tx) ([]renewal, error) {
	return db.All[renewal](ctx, tx, `SELECT tenant, type, subject, renewed_at FROM replica_alerts`)
}

// upsertRenewals stores that alerts were renewed.
func upsertRenewals(ctx context.Context, tx *db.Tx, keys []AlertKey, at time.Time) error {
	rows := make([][]any, len(keys))
	for i, k := range keys {
		rows[i] = []any{k.Tenant, k.Type, k.Subject, at}
	}
	return db.DoRows(ctx, tx, `INSERT INTO replica_alerts (tenant, type, subject, renewed_at) VALUES `, rows,
		` ON CONFLICT (tenant, type, subject) DO UPDATE SET renewed_at = excluded.renewed_at`)
}

// insertRenewal stores an alert that has no row.
func insertRenewal(ctx context.Context, tx *db.Tx, k AlertKey, at time.Time) error {
	return tx.Do(ctx, `INSERT INTO replica_alerts (tenant, type, subject, renewed_at) VALUES ($1, $2, $3, $4) ON CONFLICT (tenant, type, subject) DO NOTHING`,
		k.Tenant, k.Type, k.Subject, at)
}

// deleteRenewal deletes the row of an alert, unless it was renewed after at.
func deleteRenewal(ctx context.Context, tx *db.Tx, k AlertKey, at time.Time) error {
	return tx.Do(ctx, `DELETE FROM replica_alerts WHERE tenant = $1 AND type = $2 AND subject = $3 AND renewed_at <= $4`, k.Tenant, k.Type, k.Subject, at)
}

func deleteRenewals(ctx context.Context, tx *db.Tx, id scope.TenantID) error {
	return tx.Do(ctx, `DELETE FROM replica_alerts WHERE tenant = $1`, id)
}
