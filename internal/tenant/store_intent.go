package tenant

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

func insertIntent(ctx context.Context, tx *db.Tx, in intent) error {
	return tx.Do(ctx, `INSERT INTO tenant_intents (seq, tenant, home, at, telling) VALUES ($1, $2, $3, $4, $5)`,
		in.Seq, in.Tenant, in.Home, in.At, in.Line)
}

// selectIntents lists the intents up to a time, oldest first.
func selectIntents(ctx context.Context, tx *db.Tx, until time.Time) ([]intent, error) {
	return db.All[intent](ctx, tx, `SELECT seq, tenant, home, at, telling FROM tenant_intents WHERE at <= $1 ORDER BY seq`, until)
}

// deleteIntentsFor deletes the intents for the log of a purged tenant.
func deleteIntentsFor(ctx context.Context, tx *db.Tx, home scope.TenantID) error {
	return tx.Do(ctx, `DELETE FROM tenant_intents WHERE home = $1`, home)
}

// deleteIntent returns how many intents it deleted: 0 if another server has completed the change.
func deleteIntent(ctx context.Context, tx *db.Tx, seq int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM tenant_intents WHERE seq = $1`, seq)
}
