package simulator

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user/usertest"
)

// TestRemoval: a simulation names nobody after its actor was removed, so that a later person with the
// same id does not see it.
func TestRemoval(t *testing.T) {
	ctx := context.Background()
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := &Service{Stores: c, Now: time.Now}
		r := usertest.NewRemoval(t, c, RemoveActor)
		r.CheckRemovals(func() error {
			return errtest.Of(s.storeRun(ctx, &trialRun{sc: r.Caller, record: sample(t)}))
		}, func(ctx context.Context, tx *db.Tx, id string) (int64, error) {
			return db.One[int64](ctx, tx, `SELECT count(*) FROM simulations WHERE actor_kind = $1 AND actor_id = $2`, string(scope.Person), id)
		})
	})
}
