package resource

import (
	"context"
	"iter"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// shadowColumns are the columns that the search for shadows needs. A search may read every
// resource of a tenant, so it reads no others.
const shadowColumns = "id, name, path, methods, original_host, url"

// isOpen is the condition on a resource that names a host, was not discovered, and has no
// active control.
const isOpen = `NOT auto_discovered AND (original_host <> '' OR url <> '') AND NOT EXISTS
	(SELECT 1 FROM policies p WHERE p.resource_id = resources.id AND p.status = 'active' AND p.kind = 'control' AND p.deleted_at IS NULL)`

// openHosts yields the resources of an environment that name a host, were not discovered
// and have no active control, sorted by id.
func openHosts(ctx context.Context, tx *db.Tx, env scope.Env) iter.Seq2[Resource, error] {
	return only(Resource.canShadow, db.Rows[Resource](ctx, tx, `SELECT `+shadowColumns+` FROM resources
		WHERE environment = $1 AND `+isOpen+` ORDER BY id`, string(env)))
}

// openAmong returns those of the resources ids that openHosts yields.
func openAmong(ctx context.Context, tx *db.Tx, ids []int64) ([]Resource, error) {
	return db.AllIn[Resource](ctx, tx, `SELECT `+shadowColumns+` FROM resources WHERE id IN ($in) AND `+isOpen, ids)
}

// hostlessGuards yields the resources of an environment without a host that have an active
// control, sorted by id.
func hostlessGuards(ctx context.Context, tx *db.Tx, env scope.Env) iter.Seq2[Resource, error] {
	return only(Resource.hostless, db.Rows[Resource](ctx, tx, `SELECT `+shadowColumns+` FROM resources
		WHERE environment = $1 AND original_host = '' AND id IN
		(SELECT resource_id FROM policies WHERE environment = $1 AND status = 'active' AND kind = 'control' AND deleted_at IS NULL)
		ORDER BY id`, string(env)))
}

// withIDs returns the resources ids of an environment.
func withIDs(ctx context.Context, tx *db.Tx, env scope.Env, ids []int64) ([]Resource, error) {
	return db.AllIn[Resource](ctx, tx, `SELECT `+shadowColumns+` FROM resources WHERE environment = $1 AND id IN ($in)`, ids, string(env))
}

// only yields the rows that keep accepts, and errors.
func only(keep func(Resource) bool, rows iter.Seq2[Resource, error]) iter.Seq2[Resource, error] {
	return func(yield func(Resource, error) bool) {
		for r, err := range rows {
			if (err != nil || keep(r)) && !yield(r, err) {
				return
			}
		}
	}
}
