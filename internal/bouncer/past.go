package bouncer

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// PastBundle is what a revision of a bouncer's bundle was made of.
type PastBundle struct {
	BouncerID   int64     `db:"bouncer_id"`
	Revision    int64     `db:"revision"`
	EnvRevision int64     `db:"env_revision"`
	PublishedAt time.Time `db:"published_at"`
	Resources   []int64   `db:"resources"`
	Denies      bool      `db:"denies"`
}

// PastBundles gives, by bouncer and newest first, the bundles of the bouncers of
// an environment that may have decided something from a time on: those published
// since, the newest before, and those from the one on that a bouncer still runs.
// Of a bouncer that was deleted they are still there.
func PastBundles(ctx context.Context, tx *db.Tx, env scope.Env, from time.Time) ([]PastBundle, error) {
	return pastBundles(ctx, tx, env, from)
}

// Denies reports whether the bouncer refuses what no control covers.
func (b Bouncer) Denies() bool { return b.Configuration["default_action"] == "deny" }

// Forget removes what bundles were made of that are older than any replay looks
// back, but for the last of each bouncer. It gives how many rows went, and may run
// on several replicas at once.
func (s *Service) Forget(ctx context.Context, tenant scope.TenantID) (removed int64, err error) {
	cutoff := s.Now().Add(-audit.Detailed.Keep() - 24*time.Hour)
	err = s.Stores.Write(ctx, tenant, func(tx *db.Tx) (err error) {
		removed, err = forgetBundles(ctx, tx, cutoff)
		return err
	})
	return removed, err
}
