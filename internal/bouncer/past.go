package bouncer

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// PastBundle records the content of a revision of a bouncer's bundle.
type PastBundle struct {
	BouncerID   int64     `db:"bouncer_id"`
	Revision    int64     `db:"revision"`
	EnvRevision int64     `db:"env_revision"`
	PublishedAt time.Time `db:"published_at"`
	Resources   []int64   `db:"resources"`
	Denies      bool      `db:"denies"`
}

// Denies reports whether the bouncer refuses requests that no control covers.
func (b Bouncer) Denies() bool { return b.Configuration["default_action"] == "deny" }

// Forget deletes the records of bundles that are too old for any replay, except the last one of
// each bouncer. It returns the number of deleted rows. Several replicas may run it at once.
func (s *Service) Forget(ctx context.Context, tenant scope.TenantID) (removed int64, err error) {
	cutoff := s.Now().Add(-audit.Detailed.Keep() - 24*time.Hour)
	err = s.Stores.Write(ctx, tenant, func(tx *db.Tx) (err error) {
		removed, err = forgetBundles(ctx, tx, cutoff)
		return err
	})
	return removed, err
}
