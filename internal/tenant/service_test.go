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
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// root and own are a platform administrator and the administrator of t2.
var (
	root = scope.Scope{Tenant: scope.DefaultTenant, Platform: true, Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Person, ID: "1", Name: "root"}}
	own  = scope.Scope{Tenant: dbtest.Second, Actor: scope.Actor{Kind: scope.Person, ID: "2", Name: "own"}}
)

// addProbe adds an object that counts against a limit in these tests: a row of the settings.
func addProbe(ctx context.Context, tx *db.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO settings (name, value) SELECT 'probe' || CAST(count(*) AS TEXT), '1' FROM settings WHERE name LIKE 'probe%'`)
	return err
}

// countProbes counts these objects.
func countProbes(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM settings WHERE name LIKE 'probe%'`)
}

// service returns a service whose clock moves with each call.
func service(c *db.Cluster) *Service {
	var mu sync.Mutex
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &Service{
		Stores: c, BaseDomain: "gate.example",
		Now:      func() time.Time { mu.Lock(); defer mu.Unlock(); now = now.Add(time.Millisecond); return now },
		Counters: map[string]func(context.Context, *db.Tx) (int64, error){Policies: countProbes},
	}
}

// TestLifeOfATenant follows a tenant from its creation to its purge.
func TestLifeOfATenant(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c)
		errtest.Must(t, errors.Join(s.EnsureDefault(ctx), s.EnsureDefault(ctx)))
		if d, err := s.Get(ctx, root, scope.DefaultTenant); err != nil || d.Region != DefaultRegion || d.Status != Active || d.Domain != "default.gate.example" {
			t.Errorf("default tenant = %+v, %v", d, err)
		}
		custom := "Acme.Example."
		a, err := s.Create(ctx, root, Draft{Name: "Acme Corp", CustomDomain: custom, Settings: Settings{"max_policies": 2}})
		if err != nil || a.ID != "acme-corp" || a.Domain != "acme-corp.gate.example" || *a.CustomDomain != "acme.example" || a.PlanType != DefaultPlan {
			t.Fatalf("Create = %+v, %v", a, err)
		}
		if b, err := s.Create(ctx, root, Draft{Name: "ACME corp"}); err != nil || b.ID != "acme-corp-2" {
			t.Errorf("Create of the same name = %v, %v, want acme-corp-2", b.ID, err)
		}
		if _, err := s.Create(ctx, root, Draft{Name: "Other", Domain: "acme.EXAMPLE"}); !fault.Is(err, fault.Conflict) {
			t.Errorf("Create with a domain that is in use: got %v, want a conflict", err)
		}
		if _, err := s.Create(ctx, own, Draft{Name: "Mine"}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("Create by a tenant's administrator: got %v, want forbidden", err)
		}
		got, err := s.Get(ctx, root, a.ID)
		if err != nil || got.Limits == nil || got.Limits.PoliciesUsed != 0 || !got.CreatedAt.Equal(a.CreatedAt) {
			t.Errorf("Get = %+v, %v", got, err)
		}
		if n, ok := got.Settings.Limit(Policies); !ok || n != 2 {
			t.Errorf("settings = %v, want 2 policies", got.Settings)
		}
		p, err := s.List(ctx, root, Filter{Limit: 2})
		if err != nil || p.Total != 4 || len(p.Tenants) != 2 {
			t.Errorf("List = %+v, %v, want 2 of 4", p, err)
		}
		if p, err = s.List(ctx, own, Filter{Limit: 10}); err != nil || p.Total != 1 || p.Tenants[0].ID != dbtest.Second {
			t.Errorf("List by a tenant's administrator = %+v, %v, want only t2", p, err)
		}
		up, err := s.Update(ctx, root, a.ID, Change{Name: patch.Set("New name"), Status: patch.Set(Suspended), PlanType: patch.Set("pro")})
		if err != nil || up.ID != a.ID || up.Status != Suspended || up.PlanType != "pro" {
			t.Errorf("Update = %+v, %v", up, err)
		}
		if f, err := s.Facts(ctx, a.ID); err != nil || f.Status != Suspended || f.Plan != "pro" {
			t.Errorf("Facts = %+v, %v", f, err)
		}
		checkEnd(ctx, t, s, c, a.ID)
	})
}

// checkEnd deletes a tenant and another of its name, and checks that an id is never used again.
func checkEnd(ctx context.Context, t *testing.T, s *Service, c *db.Cluster, id scope.TenantID) {
	t.Helper()
	var purged []scope.TenantID
	s.OnPurge = []func(context.Context, scope.TenantID) error{func(_ context.Context, id scope.TenantID) error {
		purged = append(purged, id)
		return nil
	}}
	if _, err := s.Delete(ctx, root, scope.DefaultTenant, false); !fault.Is(err, fault.Conflict) {
		t.Errorf("Delete of the default tenant: got %v, want a conflict", err)
	}
	d, err := s.Delete(ctx, root, id, false)
	if err != nil || d.ID != id {
		t.Fatalf("Delete = %+v, %v", d, err)
	}
	got, err := s.Get(ctx, root, id)
	if err != nil || got.Status != Deleted || got.ExpiresAt == nil || got.ExpiresAt.Sub(*got.DeletedAt) != KeepDeleted {
		t.Errorf("Get of a deleted tenant = %+v, %v", got, err)
	}
	if n, err := s.PurgeExpired(ctx); n != 0 || err != nil {
		t.Errorf("PurgeExpired within the time = %d, %v, want 0", n, err)
	}
	now := s.Now
	s.Now = func() time.Time { return now().Add(KeepDeleted + time.Minute) }
	if n, err := s.PurgeExpired(ctx); n != 1 || err != nil || len(purged) != 1 {
		t.Errorf("PurgeExpired after the time = %d, %v, and %v were reported, want 1", n, err, purged)
	}
	if _, err := s.Get(ctx, root, id); !fault.Is(err, fault.NotFound) {
		t.Errorf("Get of a purged tenant: got %v, want not found", err)
	}
	if _, err := c.Tenant(ctx, id); !fault.Is(err, fault.NotFound) {
		t.Errorf("store of a purged tenant: got %v, want not found", err)
	}
	again, err := s.Create(ctx, root, Draft{Name: "Acme Corp", Domain: "acme.example"})
	if err != nil || again.ID == id || again.ID == "acme-corp-2" {
		t.Errorf("id of the next tenant of the name = %s, %v, want a new one", again.ID, err)
	}
	if _, err := s.Delete(ctx, root, again.ID, true); err != nil {
		t.Errorf("hard Delete: %v", err)
	}
	if _, err := c.Tenant(ctx, again.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("store after a hard Delete: got %v, want not found", err)
	}
}

// TestForeign: only platform administrators learn anything about other tenants.
func TestForeign(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	ctx, s := context.Background(), service(c)
	for _, id := range []scope.TenantID{scope.DefaultTenant, "never-was", "../x", ""} {
		for what, err := range map[string]error{
			"get": errtest.Of(s.Get(ctx, own, id)), "update": errtest.Of(s.Update(ctx, own, id, Change{Name: patch.Set("x")})),
			"delete": errtest.Of(s.Delete(ctx, own, id, false)), "alerts": errtest.Of(s.Alerts(ctx, own, id)),
		} {
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "tenant_access_denied" || f.Kind != fault.Forbidden || f.Fields["tenant_id"] != string(id) {
				t.Errorf("%s of %q: got %v, want tenant_access_denied", what, id, err)
			}
		}
		if id != scope.DefaultTenant {
			if _, err := s.Get(ctx, root, id); !fault.Is(err, fault.NotFound) {
				t.Errorf("Get of %q by a platform administrator: got %v, want not found", id, err)
			}
		}
	}
	if _, err := s.Delete(ctx, own, own.Tenant, true); !fault.Is(err, fault.Forbidden) {
		t.Errorf("purge of a tenant by itself: got %v, want forbidden", err)
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
			errtest.Must(t, err)
			deleted := make(chan error, 1)
			go func() {
				_, err := s.Delete(ctx, root, made.ID, false)
				deleted <- err
			}()
			_, changed := s.Update(ctx, root, made.ID, Change{Name: patch.Set("changed")})
			errtest.Must(t, <-deleted)
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
		errtest.Must(t, errtest.Of(s.Update(ctx, root, dbtest.Second, Change{Settings: patch.Set(Settings{"max_policies": 10})})))
		errs := make(chan error)
		for range 50 {
			go func() {
				errs <- c.Write(ctx, dbtest.Second, func(tx *db.Tx) error {
					if err := s.CheckLimit(ctx, tx, Policies, 1); err != nil {
						return err
					}
					return addProbe(ctx, tx)
				})
			}()
		}
		ok, full := 0, 0
		for range 50 {
			err := <-errs
			f, refused := errors.AsType[*fault.Error](err)
			switch {
			case err == nil:
				ok++
			case refused && f.Code == "limit_exceeded" && f.Kind == fault.Forbidden && fmt.Sprint(f.Fields["limit"], f.Fields["used"]) == "10 10":
				full++
			default:
				t.Errorf("create: got %v, want limit_exceeded", err)
			}
		}
		got, err := s.Get(ctx, own, dbtest.Second)
		if ok != 10 || full != 40 || err != nil || got.Limits.PoliciesUsed != 10 {
			t.Fatalf("%d created and %d refused, limits %+v, %v, want 10 and 40", ok, full, got.Limits, err)
		}
		checkAlerts(ctx, t, s, c)
	})
}

// checkAlerts checks both alerts of a limit while the usage falls.
func checkAlerts(ctx context.Context, t *testing.T, s *Service, c *db.Cluster) {
	t.Helper()
	open := func() string {
		list, err := s.Alerts(ctx, own, own.Tenant)
		errtest.Must(t, err)
		out := ""
		for _, a := range list {
			if a.Type != "usage_limit" || a.Subject != Policies {
				t.Errorf("alert = %+v, want a usage_limit of policies", a)
			}
			if a.ResolvedAt == nil {
				out += a.Severity + " "
			}
		}
		return out
	}
	remove := func(n int, release bool) {
		err := c.Write(ctx, own.Tenant, func(tx *db.Tx) error {
			for range n {
				if _, err := tx.Exec(ctx, `DELETE FROM settings WHERE name = (SELECT max(name) FROM settings WHERE name LIKE 'probe%')`); err != nil {
					return err
				}
			}
			if release {
				return s.UpdateUsageAlerts(ctx, tx, Policies)
			}
			return nil
		})
		errtest.Must(t, err)
	}
	if got := open(); got != "critical warning " {
		t.Errorf("open alerts at the limit = %q, want critical and warning", got)
	}
	remove(1, true)
	if got := open(); got != "warning " {
		t.Errorf("open alerts one below the limit = %q, want warning", got)
	}
	remove(4, false)
	if got := open(); got != "" {
		t.Errorf("open alerts at half the limit = %q, want none", got)
	}
}

// TestEnforcement: an environment begins in shadow. Production enforces after sandbox, and with a license.
func TestEnforcement(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c)
		mode := func(env scope.Env) string {
			e, err := s.Enforcement(ctx, own, env)
			errtest.Must(t, err)
			return e.Mode
		}
		if mode(scope.Sandbox) != Shadow || mode(scope.Production) != Shadow {
			t.Error("an environment does not begin in shadow")
		}
		if _, err := s.SetEnforcement(ctx, own, scope.Production, Enforce); !fault.Is(err, fault.Conflict) {
			t.Errorf("SetEnforcement of production before sandbox: got %v, want a conflict", err)
		}
		errtest.Must(t, errtest.Of(s.SetEnforcement(ctx, own, scope.Sandbox, Enforce)))
		s.MayEnforce = func(context.Context, scope.Scope) error {
			return fault.New(fault.Forbidden, "license_required", "no")
		}
		if _, err := s.SetEnforcement(ctx, own, scope.Production, Enforce); !fault.Is(err, fault.Forbidden) {
			t.Errorf("SetEnforcement of production without a license: got %v, want forbidden", err)
		}
		s.MayEnforce = nil
		e, err := s.SetEnforcement(ctx, own, scope.Production, Enforce)
		if err != nil || e.UpdatedBy != "own" || mode(scope.Production) != Enforce {
			t.Errorf("SetEnforcement of production = %+v, %v", e, err)
		}
		if e, _ := s.Enforcement(ctx, root, scope.Production); e.Mode != Shadow {
			t.Errorf("mode of another tenant = %s, want shadow", e.Mode)
		}
		bound := own
		bound.Env, bound.EnvBound = scope.Sandbox, true
		if _, err := s.SetEnforcement(ctx, bound, scope.Production, Shadow); !fault.Is(err, fault.Forbidden) {
			t.Errorf("SetEnforcement of production by a sandbox credential: got %v, want forbidden", err)
		}
		for _, bad := range []scope.Env{"", "staging"} {
			if _, err := s.SetEnforcement(ctx, own, bad, Shadow); !fault.Is(err, fault.BadRequest) {
				t.Errorf("SetEnforcement of %q: got %v, want a bad request", bad, err)
			}
		}
		if _, err := s.SetEnforcement(ctx, own, scope.Sandbox, "maybe"); !fault.Is(err, fault.Invalid) {
			t.Errorf("SetEnforcement to maybe: got %v, want invalid", err)
		}
	})
}
