package access

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestRequestDuringRemoval: a request whose person or resource is removed, or whose person is
// disabled, after the first checks and before it is stored is refused. Nothing waits for a decision.
func TestRequestDuringRemoval(t *testing.T) {
	ctx := context.Background()
	admin := scope.Scope{Tenant: dbtest.Second, Actor: scope.Actor{Kind: scope.System, ID: "test", Name: "test"}, Permissions: scope.Permissions{All: true}, Platform: true}
	ann := scope.Scope{Tenant: dbtest.Second, Env: scope.Sandbox, Actor: scope.Actor{Kind: scope.Person, ID: "ann", Name: "ann"}}
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := &Service{Stores: c, Now: time.Now, NewID: uuid.NewString}
		s.Person = func(context.Context, scope.TenantID, string) (string, string, error) { return "", "", nil }
		people := &user.Service{
			Stores: c, Now: time.Now, NewID: uuid.NewString, Withdraw: s.Withdraw,
			CheckLimit: func(context.Context, *db.Tx, string, int64) error { return nil },
			Released:   func(context.Context, *db.Tx, string) error { return nil },
			Revoke:     func(context.Context, *db.Tx, string, user.SessionEnd) error { return nil },
		}
		resources := &resource.Service{
			Stores: c, Now: time.Now, Withdraw: s.WithdrawOf,
			PoliciesOf: func(context.Context, *db.Tx, int64, int64) (map[int64][]int64, error) { return nil, nil },
			BouncersOf: func(context.Context, *db.Tx, int64) ([]int64, error) { return nil, nil },
		}
		create := func() error {
			_, err := people.Create(ctx, admin, user.Draft{ID: "ann", Username: "ann", Email: "ann@example.com"})
			return err
		}
		remove := func(int64) error { _, err := people.Delete(ctx, admin, "ann"); return err }
		disable := func(int64) error {
			_, err := people.Update(ctx, admin, "ann", user.Change{Status: patch.Set(user.Disabled)})
			return err
		}
		for name, x := range map[string]struct {
			change func(resource int64) error
			want   fault.Kind
		}{
			"the person is removed":   {remove, fault.Unauthenticated},
			"the person is disabled":  {disable, fault.Unauthenticated},
			"the resource is removed": {func(id int64) error { _, err := resources.Delete(ctx, admin, id, 0); return err }, fault.NotFound},
		} {
			errtest.Must(t, create())
			made, err := resources.Create(ctx, admin, resource.Draft{Name: name, Type: "api", Path: "/" + uuid.NewString(), Environment: scope.Sandbox})
			errtest.Must(t, err)
			s.Resource = func(context.Context, scope.TenantID, scope.Env, string) (RequestedResource, error) {
				return RequestedResource{ID: made.ID, Name: name, Type: "api", Requestable: true}, x.change(made.ID)
			}
			d := Draft{Reason: "audit"}
			d.Action.Name, d.Subject.ID = "read", "ann"
			if _, err := s.File(ctx, ann, d); !fault.Is(err, x.want) {
				t.Errorf("%s: File = %v, want a fault of the kind %v", name, err, x.want)
			}
			page, err := s.List(ctx, admin, Filter{Limit: 10}, false)
			if err != nil || page.Total != 0 {
				t.Errorf("%s: %d requests are stored (%v), want none", name, page.Total, err)
			}
			if err := remove(0); err != nil && !fault.Is(err, fault.NotFound) {
				t.Fatal(err)
			}
		}
	})
}
