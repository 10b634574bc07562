package rest

import (
	"context"
	"net/http"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
	"github.com/gatehouse-dev/gatehouse/internal/user/usertest"
)

// TestRemoval: the answer to an Idempotency-Key does not outlive the person whom it was for, also if
// the person is removed while the request runs.
func TestRemoval(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		r := usertest.NewRemoval(t, c, ForgetAnswers)
		during := func() {} // runs while the operation does
		g := newRig(t, func(s *Config) {
			s.Idempotency = Idempotency{Cluster: c, Seal: seal, Open: unseal, Admit: user.RequireActor}
			s.Authenticate = func(context.Context, Credential) (scope.Scope, Principal, error) {
				return r.Caller, Principal{Tenant: r.Caller.Tenant}, nil
			}
		}, func(g *rig) {
			Register(g.Router, Op{ID: "create-own", Method: "POST", Path: "/own", Tags: []string{"Widgets"}, Status: 201, Creates: true},
				func(context.Context, scope.Scope, *createIn) (*widgetOut, error) {
					during()
					return &widgetOut{ETag: ETag(1), Body: widget{ID: g.created.Add(1)}}, nil
				})
		})
		send := func() error {
			switch w := g.Do(t, create(Root+"/own", "one", `{"name":"a"}`).Request()); w.Code {
			case http.StatusCreated:
				return nil
			case http.StatusUnauthorized:
				return fault.New(fault.Unauthenticated, "", w.Body.String())
			default:
				return fault.New(fault.Internal, "", w.Body.String())
			}
		}
		left := func(ctx context.Context, tx *db.Tx, id string) (int64, error) {
			return db.One[int64](ctx, tx, `SELECT count(*) FROM idempotency WHERE actor = $1`, actorOf(scope.Actor{Kind: scope.Person, ID: id}))
		}
		r.CheckRemovals(send, left)

		for name, between := range map[string]func(){
			"the person is removed":   r.Remove,
			"a new person has the id": func() { r.Remove(); r.Create(true) },
		} {
			r.Create(true)
			during = between
			errtest.Must(t, send())
			n, err := db.Read(t.Context(), c, r.Caller.Tenant, func(tx *db.Tx) (int64, error) { return left(t.Context(), tx, r.Caller.Actor.ID) })
			if err != nil || n != 0 {
				t.Errorf("%s while the request runs: %d answers are left (%v), want none", name, n, err)
			}
			if name == "a new person has the id" {
				r.Remove()
			}
		}
		if got := g.created.Load(); got != 3 {
			t.Errorf("%d requests created something, want 3: the others came after a removal", got)
		}
	})
}
