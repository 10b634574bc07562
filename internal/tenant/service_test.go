package tenant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// root and own are a platform administrator and the administrator of t2.
var (
	root = scope.Scope{Tenant: scope.DefaultTenant, Platform: true, Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Person, ID: "1", Name: "root"}}
	own  = scope.Scope{Tenant: dbtest.Second, Actor: scope.Actor{Kind: scope.Person, ID: "2", Name: "own"}}
)

// probes are the limited objects of these tests: rows of the alerts table, with a type of their
// own.
func addProbe(ctx context.Context, tx *db.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO settings (name, value) SELECT 'probe' || CAST(count(*) AS TEXT), '1' FROM settings WHERE name LIKE 'probe%'`)
	return err
}

func countProbes(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM settings WHERE name LIKE 'probe%'`)
}

func service(c *db.Cluster) *Service {
	var mu sync.Mutex
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &Service{
		Stores: c, BaseDomain: "gate.example",
		Now:      func() time.Time { mu.Lock(); defer mu.Unlock(); now = now.Add(time.Millisecond); return now },
		Counters: map[string]func(context.Context, *db.Tx) (int64, error){Policies: countProbes},
	}
}

func TestLifeOfATenant(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c)
		if err := errors.Join(s.EnsureDefault(ctx), s.EnsureDefault(ctx)); err != nil {
			t.Fatal(err)
		}
		if d, err := s.Get(ctx, root, scope.DefaultTenant); err != nil || d.Region != DefaultRegion || d.Status != Active || d.Domain != "default.gate.example" {
			t.Errorf("the default tenant: %+v, %v", d, err)
		}
		custom := "Acme.Example."
		a, err := s.Create(ctx, root, Draft{Name: "Acme Corp", CustomDomain: custom, Settings: Settings{"max_policies": 2}})
		if err != nil || a.ID != "acme-corp" || a.Domain != "acme-corp.gate.example" || *a.CustomDomain != "acme.example" || a.PlanType != DefaultPlan {
			t.Fatalf("created %+v, %v", a, err)
		}
		if b, err := s.Create(ctx, root, Draft{Name: "ACME corp"}); err != nil || b.ID != "acme-corp-2" {
			t.Errorf("a second of the name: %v, %v", b.ID, err)
		}
		if _, err := s.Create(ctx, root, Draft{Name: "Other", Domain: "acme.EXAMPLE"}); !fault.Is(err, fault.Conflict) {
			t.Errorf("a taken domain: %v", err)
		}
		if _, err := s.Create(ctx, own, Draft{Name: "Mine"}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("a tenant made by a tenant: %v", err)
		}
		got, err := s.Get(ctx, root, a.ID)
		if err != nil || got.Limits == nil || got.Limits.PoliciesUsed != 0 || !got.CreatedAt.Equal(a.CreatedAt) {
			t.Errorf("read back %+v, %v", got, err)
		}
		if n, ok := got.Settings.Limit(Policies); !ok || n != 2 {
			t.Errorf("settings read back: %v", got.Settings)
		}
		p, err := s.List(ctx, root, Filter{Limit: 2})
		if err != nil || p.Total != 4 || len(p.Tenants) != 2 {
			t.Errorf("list: %+v, %v", p, err)
		}
		if p, err = s.List(ctx, own, Filter{Limit: 10}); err != nil || p.Total != 1 || p.Tenants[0].ID != dbtest.Second {
			t.Errorf("a tenant lists others: %+v, %v", p, err)
		}
		up, err := s.Update(ctx, root, a.ID, Change{Name: patch.Set("New name"), Status: patch.Set(Suspended), PlanType: patch.Set("pro")})
		if err != nil || up.ID != a.ID || up.Status != Suspended || up.PlanType != "pro" {
			t.Errorf("update: %+v, %v", up, err)
		}
		if f, err := s.Facts(ctx, a.ID); err != nil || f.Status != Suspended || f.Plan != "pro" {
			t.Errorf("facts: %+v, %v", f, err)
		}
		lives(ctx, t, s, c, a.ID)
	})
}

// lives deletes a tenant twice, and checks that its id is never used again.
func lives(ctx context.Context, t *testing.T, s *Service, c *db.Cluster, id scope.TenantID) {
	t.Helper()
	var purged []scope.TenantID
	s.OnPurge = []func(context.Context, scope.TenantID) error{func(_ context.Context, id scope.TenantID) error {
		purged = append(purged, id)
		return nil
	}}
	if _, err := s.Delete(ctx, root, scope.DefaultTenant, false); !fault.Is(err, fault.Conflict) {
		t.Errorf("the default tenant is deleted: %v", err)
	}
	d, err := s.Delete(ctx, root, id, false)
	if err != nil || d.ID != id {
		t.Fatalf("delete: %+v, %v", d, err)
	}
	got, err := s.Get(ctx, root, id)
	if err != nil || got.Status != Deleted || got.ExpiresAt == nil || got.ExpiresAt.Sub(*got.DeletedAt) != KeepDeleted {
		t.Errorf("deleted: %+v, %v", got, err)
	}
	if n, err := s.PurgeExpired(ctx); n != 0 || err != nil {
		t.Errorf("purged before its time: %d, %v", n, err)
	}
	now := s.Now
	s.Now = func() time.Time { return now().Add(KeepDeleted + time.Minute) }
	if n, err := s.PurgeExpired(ctx); n != 1 || err != nil || len(purged) != 1 {
		t.Errorf("purged %d, %v", n, err)
	}
	if _, err := s.Get(ctx, root, id); !fault.Is(err, fault.NotFound) {
		t.Errorf("purged, and still there: %v", err)
	}
	if _, err := c.Tenant(ctx, id); !fault.Is(err, fault.NotFound) {
		t.Errorf("purged, and its store opens: %v", err)
	}
	again, err := s.Create(ctx, root, Draft{Name: "Acme Corp", Domain: "acme.example"})
	if err != nil || again.ID == id || again.ID == "acme-corp-2" {
		t.Errorf("the id %s is given again: %s, %v", id, again.ID, err)
	}
	if _, err := s.Delete(ctx, root, again.ID, true); err != nil {
		t.Errorf("hard delete: %v", err)
	}
	if _, err := c.Tenant(ctx, again.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("hard deleted, and its store opens: %v", err)
	}
}

// TestForeign: only platform administrators learn anything about other tenants.
func TestForeign(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	ctx, s := context.Background(), service(c)
	for _, id := range []scope.TenantID{scope.DefaultTenant, "never-was", "../x", ""} {
		for what, err := range map[string]error{
			"get": second(s.Get(ctx, own, id)), "update": second(s.Update(ctx, own, id, Change{Name: patch.Set("x")})),
			"delete": second(s.Delete(ctx, own, id, false)), "alerts": second(s.Alerts(ctx, own, id)),
		} {
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != "tenant_access_denied" || f.Kind != fault.Forbidden || f.Fields["tenant_id"] != string(id) {
				t.Errorf("%s of %q: %v", what, id, err)
			}
		}
		if id != scope.DefaultTenant {
			if _, err := s.Get(ctx, root, id); !fault.Is(err, fault.NotFound) {
				t.Errorf("unknown tenant to a platform administrator: %v", err)
			}
		}
	}
	if _, err := s.Delete(ctx, own, own.Tenant, true); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a tenant purges itself: %v", err)
	}
}

// TestLimitHoldsInParallel: of 50 concurrent creates with a limit of 10, 10 succeed.
// TestDeleteKeepsAConcurrentChange checks that a deletion does not undo a change that another caller
// makes at the same time.
func TestDeleteKeepsAConcurrentChange(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c)
		for i := range 10 {
			made, err := s.Create(ctx, root, Draft{Name: fmt.Sprint("Tenant ", i)})
			if err != nil {
				t.Fatal(err)
			}
			deleted := make(chan error, 1)
			go func() {
				_, err := s.Delete(ctx, root, made.ID, false)
				deleted <- err
			}()
			_, changed := s.Update(ctx, root, made.ID, Change{Name: patch.Set("changed")})
			if err := <-deleted; err != nil {
				t.Fatal(err)
			}
			got, err := s.Get(ctx, root, made.ID)
			if err != nil || got.Status != Deleted || changed == nil && got.Name != "changed" {
				t.Errorf("after an update (%v) and a deletion at once: %q, %s, %v", changed, got.Name, got.Status, err)
			}
		}
	})
}

func TestLimitHoldsInParallel(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c)
		if _, err := s.Update(ctx, root, dbtest.Second, Change{Settings: patch.Set(Settings{"max_policies": 10})}); err != nil {
			t.Fatal(err)
		}
		store, err := c.Tenant(ctx, dbtest.Second)
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error)
		for range 50 {
			go func() {
				errs <- store.Write(ctx, func(tx *db.Tx) error {
					if err := s.CheckLimit(ctx, tx, Policies, 1); err != nil {
						return err
					}
					return addProbe(ctx, tx)
				})
			}()
		}
		ok, full := 0, 0
		for range 50 {
			var f *fault.Error
			switch err := <-errs; {
			case err == nil:
				ok++
			case errors.As(err, &f) && f.Code == "limit_exceeded" && f.Kind == fault.Forbidden && fmt.Sprint(f.Fields["limit"], f.Fields["used"]) == "10 10":
				full++
			default:
				t.Errorf("create: %v", err)
			}
		}
		got, err := s.Get(ctx, own, dbtest.Second)
		if ok != 10 || full != 40 || err != nil || got.Limits.PoliciesUsed != 10 {
			t.Fatalf("%d made, %d refused, %+v, %v", ok, full, got.Limits, err)
		}
		alerts(ctx, t, s, store)
	})
}

// alerts checks both alerts of a limit while the usage falls.
func alerts(ctx context.Context, t *testing.T, s *Service, store *db.DB) {
	t.Helper()
	open := func() string {
		list, err := s.Alerts(ctx, own, own.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, a := range list {
			if a.Type != "usage_limit" || a.Subject != Policies {
				t.Errorf("alert %+v", a)
			}
			if a.ResolvedAt == nil {
				out += a.Severity + " "
			}
		}
		return out
	}
	remove := func(n int, tell bool) {
		err := store.Write(ctx, func(tx *db.Tx) error {
			for range n {
				if _, err := tx.Exec(ctx, `DELETE FROM settings WHERE name = (SELECT max(name) FROM settings WHERE name LIKE 'probe%')`); err != nil {
					return err
				}
			}
			if tell {
				return s.Released(ctx, tx, Policies)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := open(); got != "critical warning " {
		t.Errorf("full: open are %q", got)
	}
	remove(1, true)
	if got := open(); got != "warning " {
		t.Errorf("one below: open are %q", got)
	}
	remove(4, false)
	if got := open(); got != "" {
		t.Errorf("half: open are %q", got)
	}
}

func TestEnforcement(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c)
		mode := func(env scope.Env) string {
			e, err := s.Enforcement(ctx, own, env)
			if err != nil {
				t.Fatal(err)
			}
			return e.Mode
		}
		if mode(scope.Sandbox) != Shadow || mode(scope.Production) != Shadow {
			t.Error("an environment does not begin in shadow")
		}
		if _, err := s.SetEnforcement(ctx, own, scope.Production, Enforce); !fault.Is(err, fault.Conflict) {
			t.Errorf("production before sandbox: %v", err)
		}
		if _, err := s.SetEnforcement(ctx, own, scope.Sandbox, Enforce); err != nil {
			t.Fatal(err)
		}
		s.MayEnforce = func(context.Context, scope.Scope) error {
			return fault.New(fault.Forbidden, "license_required", "no")
		}
		if _, err := s.SetEnforcement(ctx, own, scope.Production, Enforce); !fault.Is(err, fault.Forbidden) {
			t.Errorf("production without a license: %v", err)
		}
		s.MayEnforce = nil
		e, err := s.SetEnforcement(ctx, own, scope.Production, Enforce)
		if err != nil || e.UpdatedBy != "own" || mode(scope.Production) != Enforce {
			t.Errorf("production: %+v, %v", e, err)
		}
		other := root
		if e, _ := s.Enforcement(ctx, other, scope.Production); e.Mode != Shadow {
			t.Error("another tenant's mode changed")
		}
		bound := own
		bound.Env, bound.EnvBound = scope.Sandbox, true
		if _, err := s.SetEnforcement(ctx, bound, scope.Production, Shadow); !fault.Is(err, fault.Forbidden) {
			t.Errorf("a sandbox credential sets production: %v", err)
		}
		for _, bad := range []scope.Env{"", "staging"} {
			if _, err := s.SetEnforcement(ctx, own, bad, Shadow); !fault.Is(err, fault.BadRequest) {
				t.Errorf("environment %q: %v", bad, err)
			}
		}
		if _, err := s.SetEnforcement(ctx, own, scope.Sandbox, "maybe"); !fault.Is(err, fault.Invalid) {
			t.Errorf("mode maybe: %v", err)
		}
	})
}

func second[T any](_ T, err error) error {
	if err == nil {
		return errors.New("it worked")
	}
	return err
}
