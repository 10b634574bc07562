package resource

import (
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// openHosts returns the resources of an environment that name a host, were not discovered
// and have no active control, sorted by id. It reads the ids from first to last; last 0: all.
func openHosts(ctx context.Context, tx *db.Tx, env scope.Env, first, last int64) ([]Resource, error) {
	list, err := db.All[Resource](ctx, tx, `SELECT `+columns+` FROM resources
		WHERE environment = $1 AND id >= $2 AND ($3 = 0 OR id <= $3) AND NOT auto_discovered AND (original_host <> '' OR url <> '') AND NOT EXISTS
		(SELECT 1 FROM policies p WHERE p.resource_id = resources.id AND p.status = 'active' AND p.kind = 'control' AND p.deleted_at IS NULL)
		ORDER BY id LIMIT $4`, string(env), first, last, maxCompared)
	return slices.DeleteFunc(list, func(r Resource) bool { return !r.canShadow() }), err
}

// hostlessGuards are the resources of an environment without a host that have an active
// control, by id.
func hostlessGuards(ctx context.Context, tx *db.Tx, env scope.Env) ([]Resource, error) {
	list, err := db.All[Resource](ctx, tx, `SELECT `+columns+` FROM resources
		WHERE environment = $1 AND original_host = '' AND id IN
		(SELECT resource_id FROM policies WHERE environment = $1 AND status = 'active' AND kind = 'control' AND deleted_at IS NULL)
		ORDER BY id LIMIT $2`, string(env), maxCompared)
	return slices.DeleteFunc(list, func(r Resource) bool { return r.host() != "" }), err
}
