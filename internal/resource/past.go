package resource

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Past is a past state of a resource.
type Past struct {
	// ID is the resource's id. Revision is the environment's revision that ended this
	// state, and At is when.
	ID, Revision int64
	At           time.Time
	// Doc is the resource as the engine saw it; nil: it did not exist.
	Doc *target.Resource
}

// pastRow is a row of the history.
type pastRow struct {
	Resource
	Revision int64     `db:"until_revision"`
	At       time.Time `db:"until_at"`
	Existed  bool      `db:"existed"`
}

func (r pastRow) past() (Past, error) {
	p := Past{ID: r.ID, Revision: r.Revision, At: r.At}
	if !r.Existed {
		return p, nil
	}
	doc, err := r.Doc()
	if err != nil {
		return p, fmt.Errorf("resource %d until %d: %w", r.ID, r.Revision, err)
	}
	p.Doc = &doc
	return p, nil
}

// PastSince calls each with the states that ended at or after from, up to a revision, newest
// first. Applied in this order to the resources as of that revision, they restore earlier
// states. It stops when each returns false.
func PastSince(ctx context.Context, tx *db.Tx, env scope.Env, from time.Time, upTo int64, each func(Past) bool) error {
	for row, err := range pastRows(ctx, tx, env, from, upTo) {
		if err != nil {
			return err
		}
		p, err := row.past()
		if err != nil {
			return err
		}
		if !each(p) {
			return nil
		}
	}
	return nil
}

// PastFrom returns the revision from which PastSince has every change; 0 if it has all.
func PastFrom(ctx context.Context, tx *db.Tx, env scope.Env) (int64, error) {
	return tx.Revision(ctx, "past:"+Revision(env))
}

// forgetStep is how many revisions one transaction deletes.
const forgetStep = 50

// Forget deletes past states that no replay needs: those older than the retention of
// decisions at audit level detailed, plus a day. It returns the number of deleted rows.
// Several replicas may run it at once.
func (s *Service) Forget(ctx context.Context, tenant scope.TenantID) (removed int64, err error) {
	cutoff := s.Now().Add(-audit.Detailed.Keep() - 24*time.Hour)
	for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
		// A step counts revisions, not rows, so only a step without rows is the last.
		n, err := s.Stores.WriteBatches(ctx, tenant, 1, func(tx *db.Tx) (int64, error) { return forgetPast(ctx, tx, env, cutoff, forgetStep) })
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}
