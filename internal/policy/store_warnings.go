package policy

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// uncovered is a resource to which no active control is bound.
type uncovered struct {
	ID   int64  `db:"id"`
	Name string `db:"name"`
}

// withoutControl returns the resources of an environment to which no active control is bound: the
// one with this id, or for id 0 all, sorted by id, at most maxUncovered+1.
func withoutControl(ctx context.Context, tx *db.Tx, env scope.Env, id int64) ([]uncovered, error) {
	return db.All[uncovered](ctx, tx, `SELECT r.id, r.name FROM resources r WHERE r.environment = $1 AND (CAST($2 AS BIGINT) = 0 OR r.id = $2)
		AND NOT EXISTS (SELECT 1 FROM policies p WHERE p.resource_id = r.id AND p.status = 'active' AND p.deleted_at IS NULL)
		ORDER BY r.id LIMIT $3`, string(env), id, maxUncovered+1)
}

// countTenantWide counts the active controls of an environment that name no resource.
func countTenantWide(ctx context.Context, tx *db.Tx, env scope.Env) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM policies WHERE environment = $1 AND resource_id IS NULL
		AND status = 'active' AND kind = 'control' AND deleted_at IS NULL`, string(env))
}
