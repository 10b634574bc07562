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
// disabled, after the first checks and before it is stored is refused, whoever files it. Nothing waits
// for a decision, and nothing is granted.
func TestRequestDuringRemoval(t *testing.T) {
	ctx := context.Background()
	admin := scope.Scope{Tenant: dbtest.Second, Actor: scope.Actor{Kind: scope.System, ID: "test", Name: "test"}, Permissions: scope.Permissions{All: true}, Platform: true}
	ann := scope.Scope{Tenant: dbtest.Second, Env: scope.Sandbox, Actor: scope.Actor{Kind: scope.Person, ID: "ann", Name: "ann"}}
	bob, key := ann, ann
	bob.Actor = scope.Actor{Kind: scope.Person, ID: "bob", Name: "bob"}
	key.Actor = scope.Actor{Kind: scope.Key, ID: "k1", Name: "portal"}
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := &Service{Stores: c, Now: time.Now, NewID: uuid.NewString}
		people := &user.Service{
			Stores: c, Now: time.Now, NewID: uuid.NewString, Withdraw: s.Withdraw,
			CheckLimit: func(context.Context, *db.Tx, string, int64) error { return nil },
			Released:   func(context.Context, *db.Tx, string) error { return nil },
			Revoke:     func(context.Context, *db.Tx, string, user.SessionEnd) error { return nil },
		}
		s.Person = func(ctx context.Context, _ scope.TenantID, subject string) (string, string, error) {
			u, err := people.Lookup(ctx, admin, subject)
			if fault.Is(err, fault.NotFound) {
				return "", "", nil
			}
			return u.ID, subject, err
		}
		resources := &resource.Service{
			Stores: c, Now: time.Now, Withdraw: s.WithdrawOf,
			PoliciesOf: func(context.Context, *db.Tx, int64, int64) (map[int64][]int64, error) { return nil, nil },
			BouncersOf: func(context.Context, *db.Tx, int64) ([]int64, error) { return nil, nil },
		}
		create := func(name string) error {
			_, err := people.Create(ctx, admin, user.Draft{ID: name, Username: name, Email: name + "@example.com"})
			return err
		}
		errtest.Must(t, create("bob"))
		file := func(sc scope.Scope, subject string) func() error {
			return func() error {
				d := Draft{Reason: "audit"}
				d.Action.Name, d.Subject.ID = "read", subject
				return errtest.Of(s.File(ctx, sc, d))
			}
		}
		open := func() error {
			d, life := Draft{Reason: "fire"}, int64(60)
			d.Action.Name, d.Subject.ID, d.Duration = "read", "ann", &life
			return errtest.Of(s.BreakGlass(ctx, bob, d))
		}
		remove := func(int64) error { _, err := people.Delete(ctx, admin, "ann"); return err }
		disable := func(int64) error {
			_, err := people.Update(ctx, admin, "ann", user.Change{Status: patch.Set(user.Disabled)})
			return err
		}
		for name, x := range map[string]struct {
			send   func() error
			change func(resource int64) error
			want   fault.Kind
		}{
			"the person is removed":                      {file(ann, "ann"), remove, fault.Unauthenticated},
			"the person is disabled":                     {file(ann, "ann"), disable, fault.Unauthenticated},
			"the resource is removed":                    {file(ann, "ann"), func(id int64) error { return errtest.Of(resources.Delete(ctx, admin, id, 0)) }, fault.NotFound},
			"the person for whom a key asks is removed":  {file(key, "ann"), remove, fault.NotFound},
			"a key asks by the address":                  {file(key, "Ann@example.com"), remove, fault.NotFound},
			"the person behind a break-glass grant":      {open, remove, fault.NotFound},
			"the disabled person of a break-glass grant": {open, disable, fault.Conflict},
			"the resource of a key's request is removed": {file(key, "ann"), func(id int64) error { return errtest.Of(resources.Delete(ctx, admin, id, 0)) }, fault.NotFound},
		} {
			errtest.Must(t, create("ann"))
			made, err := resources.Create(ctx, admin, resource.Draft{Name: name, Type: "api", Path: "/" + uuid.NewString(), Environment: scope.Sandbox})
			errtest.Must(t, err)
			s.Resource = func(context.Context, scope.TenantID, scope.Env, string) (RequestedResource, error) {
				return RequestedResource{ID: made.ID, Name: name, Type: "api", Requestable: true}, x.change(made.ID)
			}
			if err := x.send(); !fault.Is(err, x.want) {
				t.Errorf("%s: got %v, want a fault of the kind %v", name, err, x.want)
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
