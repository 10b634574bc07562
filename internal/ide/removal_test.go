package ide

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user/usertest"
)

// TestRemoval: documents and settings of an editor do not outlive the person.
func TestRemoval(t *testing.T) {
	ctx := context.Background()
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := &Service{Stores: c, Now: time.Now, NewID: uuid.NewString, Check: func(context.Context, scope.Scope, string) (policy.Validation, error) { return policy.Validation{}, nil }}
		r := usertest.NewRemoval(t, c, Forget)
		left := func(table string) func(ctx context.Context, tx *db.Tx, id string) (int64, error) {
			return func(ctx context.Context, tx *db.Tx, id string) (int64, error) {
				return db.One[int64](ctx, tx, `SELECT count(*) FROM `+table+` WHERE actor = $1`, nameOf(scope.Actor{Kind: scope.Person, ID: id}))
			}
		}
		r.CheckRemovals(func() error { return errtest.Of(s.Sync(ctx, r.Caller, "", "a.rego", "package a\n")) }, left("ide_sessions"))
		r.CheckRemovals(func() error { return errtest.Of(s.SetSettings(ctx, r.Caller, "vscode", map[string]any{"x": "y"})) }, left("ide_settings"))
	})
}
