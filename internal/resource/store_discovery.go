package resource

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// hasHost reports whether a resource has exactly this original_host.
func hasHost(ctx context.Context, tx *db.Tx, env scope.Env, host string) (bool, error) {
	n, err := db.One[int64](ctx, tx, `SELECT count(*) FROM (SELECT id FROM resources WHERE environment = $1 AND original_host = $2 LIMIT 1) r`, string(env), host)
	return n > 0, err
}

// countDiscoveries is how many resources a bouncer reported after since.
func countDiscoveries(ctx context.Context, tx *db.Tx, bouncer int64, since time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM resource_discoveries WHERE bouncer_id = $1 AND discovered_at > $2`, bouncer, since)
}

// countUnreviewed is how many discovered resources no person has classified.
func countUnreviewed(ctx context.Context, tx *db.Tx, env scope.Env) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM resources
		WHERE environment = $1 AND auto_discovered AND classification_source IN ('', 'heuristic')`, string(env))
}

// untouchedDiscoveries returns the ids of at most n discovered resources that nobody has
// changed, the oldest first.
func untouchedDiscoveries(ctx context.Context, tx *db.Tx, env scope.Env, n int) ([]int64, error) {
	return db.All[int64](ctx, tx, `SELECT id FROM resources
		WHERE environment = $1 AND auto_discovered AND classification_source IN ('', 'heuristic') AND version = 1 ORDER BY id LIMIT $2`, string(env), n)
}

func insertDiscovery(ctx context.Context, tx *db.Tx, resource, bouncer int64, at time.Time) error {
	return tx.Do(ctx, `INSERT INTO resource_discoveries (resource_id, bouncer_id, discovered_at) VALUES ($1, $2, $3)`, resource, bouncer, at)
}

// forgetDiscoveries deletes rows that are too old to count against the hourly limit.
func forgetDiscoveries(ctx context.Context, tx *db.Tx, upTo time.Time) error {
	return tx.Do(ctx, `DELETE FROM resource_discoveries WHERE discovered_at <= $1`, upTo)
}
