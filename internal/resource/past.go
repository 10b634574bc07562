package resource

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Past is what a resource was until a change.
type Past struct {
	// ID is the resource's, Revision the environment's that ended this state, At
	// when that was.
	ID, Revision int64
	At           time.Time
	// Doc is the resource as the engine saw it; nil: there was none.
	Doc *rego.Resource
}

// pastRow is a row of the history: Resource as far as the engine sees it.
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

// PastSince gives the states of an environment's resources that were ended from a
// time on and up to a revision, newest first, as long as each is wanted: whoever
// has the resources as of that revision and goes through them comes to what was
// before.
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

// PastFrom is the revision of an environment from which on PastSince has every
// change; 0 where that is all.
func PastFrom(ctx context.Context, tx *db.Tx, env scope.Env) (int64, error) {
	return tx.Revision(ctx, "past:"+Revision(env))
}

// forgetStep is how many revisions one transaction forgets.
const forgetStep = 50

// Forget removes what is older than any replay looks back: as long as the audit
// keeps the decisions of level detailed, and a day. It gives how many rows went,
// and may run on several replicas at once.
func (s *Service) Forget(ctx context.Context, tenant scope.TenantID) (removed int64, err error) {
	cutoff := s.Now().Add(-audit.Detailed.Keep() - 24*time.Hour)
	for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
		for {
			var n int64
			err := s.Stores.Write(ctx, tenant, func(tx *db.Tx) (err error) {
				n, err = forgetPast(ctx, tx, env, cutoff, forgetStep)
				return err
			})
			removed += n
			if err != nil {
				return removed, err
			}
			if n == 0 {
				break
			}
		}
	}
	return removed, nil
}
