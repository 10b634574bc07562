package vendor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// yard is a deployment with the services that a vendor needs.
type yard struct {
	*Service
	t     testing.TB
	ahead atomic.Int64 // time by which the clock is ahead, in nanoseconds
}

var ctx = context.Background()

// newYard returns a deployment on a store.
func newYard(t testing.TB, c *db.Cluster) *yard {
	t.Helper()
	y := &yard{t: t}
	now := func() time.Time { return time.Now().UTC().Add(time.Duration(y.ahead.Load())) }
	box, err := secret.New([secret.KeyBytes]byte{1})
	errtest.Must(t, err)
	tenants := &tenant.Service{Stores: c, Now: now, Counters: map[string]func(context.Context, *db.Tx) (int64, error){tenant.Users: user.Count, tenant.Bouncers: bouncer.Count}}
	errtest.Must(t, tenants.EnsureDefault(ctx))
	hasher, err := user.NewHasher(user.Cost{Passes: 1, MemoryKiB: 64, Lanes: 1}, 0, rand.Reader)
	errtest.Must(t, err)
	people := &user.Service{Stores: c, Hasher: hasher, Now: now, NewID: uuid.NewString, CheckLimit: tenants.CheckLimit, Released: tenants.UpdateUsageAlerts, Revoke: auth.RevokeUser}
	a, err := auth.New(ctx, auth.Config{
		Stores: c, Tenants: tenants, Users: people, Hasher: hasher, Box: box, Now: now, NewID: uuid.NewString, Random: rand.Reader,
		Holders: auth.Holders{scope.Vendor: Holder},
	})
	errtest.Must(t, err)
	t.Cleanup(a.Close)
	y.Service = &Service{
		Stores: c, Tenants: tenants, Users: people, Auth: a, Box: box, Now: now, NewID: uuid.NewString, Random: rand.Reader,
		Bouncers: &bouncer.Service{Stores: c, Now: now, Random: rand.Reader, Tenants: tenants, Box: box},
	}
	tenants.Readmit = y.Readmit
	tenants.OnPurge = append(tenants.OnPurge, y.Forget)
	return y
}

func root() scope.Scope { return auth.SystemScope(scope.DefaultTenant, "test", "req") }

// vendor registers a vendor, and returns the scope of its key.
func (y *yard) vendor(name string, tenants int64) (scope.Scope, Issued) {
	y.t.Helper()
	made, err := y.Create(ctx, root(), Draft{Name: name, MaxTenants: &tenants})
	errtest.Must(y.t, err)
	sc, _, err := y.Auth.Authenticate(ctx, auth.Credential{APIKey: made.Key})
	errtest.Must(y.t, err)
	return sc, made
}

// request is a request for the tenant Acme with a bouncer.
func request() Request {
	return Request{
		Name: "Acme", Administrator: Administrator{Email: "root@acme.example"},
		Bouncer: &bouncer.Draft{Name: "edge", Hostname: "edge.example.com", Port: 8443},
	}
}

// tenants returns the ids of all tenants with a record, complete or not.
func (y *yard) tenants() []scope.TenantID {
	y.t.Helper()
	ids, err := y.Stores.Tenants(ctx)
	errtest.Must(y.t, err)
	return ids
}

// killed calls f, and reports whether f was killed before it returned.
func killed(f func()) bool {
	done, whole := make(chan struct{}), false
	go func() {
		defer close(done)
		f()
		whole = true
	}()
	<-done
	return !whole
}

// TestKilledAnywhere: after whatever step a server is killed, no caller sees an incomplete
// tenant. If the request is repeated, it creates the tenant, or returns the first answer.
// Otherwise Recover removes the unfinished tenant.
func TestKilledAnywhere(t *testing.T) {
	fulltest.Only(t)
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		y := newYard(t, c)
		sc, _ := y.vendor("Widgets", 1)
		before := len(y.tenants())
		for _, step := range []string{"tenant", "administrator", "keys", "bouncer", "complete"} {
			for _, repeated := range []bool{true, false} {
				y.between = func(at string) {
					if at == step {
						runtime.Goexit()
					}
				}
				if !killed(func() { _, _ = y.Provision(ctx, sc, step, request()) }) {
					t.Fatalf("Provision has no step %s", step)
				}
				y.between = nil
				page, err := y.ListTenants(ctx, sc, 0, 10)
				all, err2 := y.Tenants.List(ctx, root(), tenant.Filter{Limit: 10})
				if step != "complete" && (err != nil || page.Total != 0 || len(page.Tenants) != 0 || err2 != nil || all.Total != int64(before)) {
					t.Errorf("killed after %s: the vendor lists %+v, the platform %+v, %v, %v, want no new tenant", step, page, all, err, err2)
				}
				if _, err := y.Status(ctx, sc, "acme"); step != "complete" && !fault.Is(err, fault.NotFound) {
					t.Errorf("Status after a kill after %s: got %v, want not found", step, err)
				}
				if repeated {
					first, err := y.Provision(ctx, sc, step, request())
					if err != nil {
						t.Fatalf("Provision again after %s: %v", step, err)
					}
					second, err := y.Provision(ctx, sc, step, request())
					if a, b := text(t, first), text(t, second); err != nil || a != b {
						t.Errorf("answers of Provision after %s differ: %v\n%s\n%s", step, err, a, b)
					}
					if first.Tenant.ID != "acme" {
						t.Errorf("id after %s = %s, want acme", step, first.Tenant.ID)
					}
					y.wantWorking(first)
					errtest.Must(t, errtest.Of(y.Remove(ctx, sc, "acme", false)))
					errtest.Must(t, y.Stores.DropTenant(ctx, "acme"))
					errtest.Must(t, y.Forget(ctx, "acme"))
				} else if step != "complete" {
					if n, err := y.Recover(ctx); n != 0 || err != nil {
						t.Errorf("Recover after %s within the time = %d, %v, want 0", step, n, err)
					}
					if step == "keys" {
						y.ahead.Add(-int64(2 * time.Hour)) // the clock was ahead
					} else {
						y.ahead.Add(int64(abandonedAfter + time.Second))
					}
					if n, err := y.Recover(ctx); n != 1 || err != nil {
						t.Errorf("Recover after %s = %d, %v, want 1", step, n, err)
					}
				} else if err := y.Stores.DropTenant(ctx, "acme"); err != nil {
					t.Fatal(err)
				}
				if ids := y.tenants(); len(ids) != before {
					t.Fatalf("tenants after %s = %v, want %d", step, ids, before)
				}
			}
		}
	})
}

// wantWorking fails unless the credentials of a new tenant work.
func (y *yard) wantWorking(p Provisioned) {
	y.t.Helper()
	for _, k := range p.APIKeys {
		sc, _, err := y.Auth.Authenticate(ctx, auth.Credential{APIKey: k.Key})
		if err != nil || sc.Tenant != p.Tenant.ID {
			y.t.Errorf("Authenticate with the key %s = tenant %q, %v, want %s", k.Name, sc.Tenant, err, p.Tenant.ID)
		}
	}
	_, err := y.Auth.Login(ctx, scope.Scope{Tenant: p.Tenant.ID, Actor: scope.Actor{IP: "192.0.2.1"}}, auth.Proof{Username: p.Administrator.Username, Password: p.Administrator.Password})
	if err != nil {
		y.t.Errorf("Login of the administrator: %v", err)
	}
	if p.Bouncer == nil || p.Bouncer.Token == "" {
		y.t.Errorf("bouncer = %+v, want one with a token", p.Bouncer)
	}
}

// text returns a value as JSON.
func text(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	errtest.Must(t, err)
	return string(raw)
}

// TestRefusedLeavesNothing: if one part of a request is refused, nothing is created, and the
// error names the part.
func TestRefusedLeavesNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		y := newYard(t, c)
		sc, _ := y.vendor("Widgets", 5)
		for what, tc := range map[string]struct {
			change  func(*Request)
			pointer string
		}{
			"the administrator's id": {func(r *Request) { r.Administrator.ID = "no spaces" }, "/administrator/id"},
			"a scope":                {func(r *Request) { r.APIKeys = []auth.KeyDraft{{Name: "k", Scopes: []string{"nothing:read"}}} }, "/api_keys/0/scopes/0"},
			"the bouncer's setting":  {func(r *Request) { r.Bouncer.Configuration = map[string]any{"cache_tl": 1} }, "/bouncer/configuration/cache_tl"},
			"no room for people":     {func(r *Request) { r.Settings = tenant.Settings{"max_users": 0.0} }, ""},
			"no room for bouncers":   {func(r *Request) { r.Settings = tenant.Settings{"max_bouncers": 0.0} }, ""},
			"a domain of another":    {func(r *Request) { r.Domain = "taken.example" }, ""},
		} {
			if what == "a domain of another" {
				errtest.Must(t, errtest.Of(y.Tenants.Create(ctx, root(), tenant.Draft{Name: "Other", Domain: "taken.example"})))
			}
			before := len(y.tenants())
			req := request()
			tc.change(&req)
			_, err := y.Provision(ctx, sc, "", req)
			f, ok := errors.AsType[*fault.Error](err)
			if !ok {
				t.Errorf("%s: got %v, want a fault", what, err)
				continue
			}
			if tc.pointer != "" && (len(f.Details) != 1 || f.Details[0].Pointer != tc.pointer) {
				t.Errorf("%s: the fault names %+v, want %s", what, f.Details, tc.pointer)
			}
			if n := len(y.tenants()); n != before {
				t.Errorf("%s: %d tenants after the refusal, want %d", what, n, before)
			}
		}
	})
}

// TestLimitOfTenants: concurrent requests together cannot exceed the limit. A deleted tenant
// counts again when it becomes active.
func TestLimitOfTenants(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		y := newYard(t, c)
		sc, _ := y.vendor("Widgets", 2)
		var passed, refused atomic.Int64
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				_, err := y.Provision(ctx, sc, "", Request{Name: "Many", Administrator: Administrator{Email: "root@many.example"}})
				f, ok := errors.AsType[*fault.Error](err)
				switch {
				case err == nil:
					passed.Add(1)
				case ok && f.Kind == fault.Forbidden && f.Code == "limit_exceeded":
					refused.Add(1)
				default:
					t.Errorf("Provision: got %v, want limit_exceeded", err)
				}
			})
		}
		group.Wait()
		if passed.Load() != 2 || refused.Load() != 4 {
			t.Fatalf("%d of 6 concurrent requests succeed and %d are refused, want 2 and 4", passed.Load(), refused.Load())
		}
		page, err := y.ListTenants(ctx, sc, 0, 10)
		if err != nil || page.Total != 2 {
			t.Fatalf("Made = %+v, %v, want 2", page, err)
		}
		gone := page.Tenants[0].ID
		errtest.Must(t, errtest.Of(y.Remove(ctx, sc, gone, false)))
		if _, err := y.Provision(ctx, sc, "", request()); err != nil {
			t.Fatalf("Provision after a deletion: %v", err)
		}
		back := tenant.Change{Status: patch.Set(tenant.Active)}
		if _, err := y.Change(ctx, sc, gone, back); !fault.Is(err, fault.Forbidden) {
			t.Errorf("Change to active over the limit: got %v, want forbidden", err)
		}
		if _, err := y.Tenants.Update(ctx, root(), gone, back); !fault.Is(err, fault.Forbidden) {
			t.Errorf("Update to active over the limit, by the platform: got %v, want forbidden", err)
		}
		errtest.Must(t, errtest.Of(y.Remove(ctx, sc, "acme", false)))
		if _, err := y.Change(ctx, sc, gone, back); err != nil {
			t.Errorf("Change to active after a deletion: %v", err)
		}
	})
}

// TestVendorsAreApart: a vendor sees only its own tenants. The answer is the same for tenants of
// another vendor, of no vendor, and for tenants that do not exist.
func TestVendorsAreApart(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		y := newYard(t, c)
		mine, _ := y.vendor("Widgets", 5)
		other, _ := y.vendor("Gadgets", 5)
		errtest.Must(t, errtest.Of(y.Provision(ctx, other, "same key", request())))
		first, err := y.Provision(ctx, mine, "same key", request())
		if err != nil || first.Tenant.ID != "acme-2" {
			t.Fatalf("Provision = %s, %v, want acme-2", first.Tenant.ID, err)
		}
		errtest.Must(t, errtest.Of(y.Tenants.Create(ctx, root(), tenant.Draft{Name: "Platform's"})))
		for _, id := range []scope.TenantID{"acme", "platform-s", "default", "nowhere", "Not A Label"} {
			want := fault.Newf(fault.NotFound, "tenant_not_found", "there is no such tenant").With("tenant_id", string(id))
			check := func(what string, err error) {
				t.Helper()
				if f, ok := errors.AsType[*fault.Error](err); !ok || text(t, f) != text(t, want) {
					t.Errorf("%s of %s: got %v, want %v", what, id, err, want)
				}
			}
			_, err := y.Status(ctx, mine, id)
			check("status", err)
			_, err = y.Change(ctx, mine, id, tenant.Change{Name: patch.Set("taken over")})
			check("change", err)
			_, err = y.Remove(ctx, mine, id, true)
			check("removal", err)
		}
		page, err := y.ListTenants(ctx, mine, 0, 10)
		if err != nil || page.Total != 1 || len(page.Tenants) != 1 || page.Tenants[0].ID != "acme-2" {
			t.Errorf("Made = %+v, %v, want only acme-2", page, err)
		}
	})
}

// TestKeysOfVendors: a replaced key works for the grace period. A key ends with its vendor, is
// stored as a hash, and is not listed among the tenant's API keys. Only platform administrators
// can register vendors.
func TestKeysOfVendors(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		y := newYard(t, c)
		_, made := y.vendor("Widgets", 5)
		wantKey := func(what, key string, want fault.Kind) {
			t.Helper()
			_, _, err := y.Auth.Authenticate(ctx, auth.Credential{APIKey: key})
			if want == 0 && err != nil || want != 0 && !fault.Is(err, want) {
				t.Errorf("%s: got %v, want kind %d", what, err, want)
			}
		}
		keys, err := y.Auth.Keys(ctx, root(), 0, 10)
		if err != nil || keys.Total != 0 || len(keys.Keys) != 0 {
			t.Errorf("API keys of the tenant = %+v, %v, want none", keys, err)
		}
		id := made.Keys[0].ID
		for what, err := range map[string]error{
			"Key": errtest.Of(y.Auth.Key(ctx, root(), id)), "RevokeKey": errtest.Of(y.Auth.RevokeKey(ctx, root(), id)), "RotateKey": errtest.Of(y.Auth.RotateKey(ctx, root(), id, 0)),
			"UpdateKey": errtest.Of(y.Auth.UpdateKey(ctx, root(), id, auth.KeyChange{Name: patch.Set("x")})),
		} {
			if !fault.Is(err, fault.NotFound) {
				t.Errorf("%s of a vendor's key: got %v, want not found", what, err)
			}
		}
		second, err := y.Rotate(ctx, root(), made.ID, time.Hour)
		if err != nil || len(second.Keys) != 2 {
			t.Fatalf("Rotate with a grace period = %+v, %v, want 2 keys", second, err)
		}
		wantKey("the old key within the grace period", made.Key, 0)
		wantKey("the new key", second.Key, 0)
		third, err := y.Rotate(ctx, root(), made.ID, 0)
		if err != nil || len(third.Keys) != 1 || third.Key == second.Key {
			t.Fatalf("Rotate without a grace period = %+v, %v, want 1 new key", third, err)
		}
		wantKey("the first key", made.Key, fault.Unauthenticated)
		wantKey("the second key", second.Key, fault.Unauthenticated)
		wantKey("the third key", third.Key, 0)
		errtest.Must(t, errtest.Of(y.Delete(ctx, root(), made.ID, 0)))
		wantKey("the key of a deleted vendor", third.Key, fault.Unauthenticated)
		if _, err := y.Rotate(ctx, root(), made.ID, 0); !fault.Is(err, fault.NotFound) {
			t.Errorf("Rotate of a deleted vendor: got %v, want not found", err)
		}
		admin := scope.Scope{Tenant: scope.DefaultTenant, Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Person, ID: "1"}}
		if _, err := y.Create(ctx, admin, Draft{Name: "x"}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("Create by an administrator of the tenant: got %v, want forbidden", err)
		}
		var list audit.EventPage
		log := audit.NewDecisionLog(audit.Config{Cluster: c, Now: y.Now})
		if list, err = log.Events(ctx, root(), audit.EventFilter{Limit: 100}); err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		for _, e := range list.Events {
			kinds[e.Type]++
		}
		if kinds["VENDOR_CREATED"] != 1 || kinds["VENDOR_KEY_CREATED"] != 3 || kinds["VENDOR_DELETED"] != 1 {
			t.Errorf("audit entries = %v", kinds)
		}
	})
}

// TestDiscardedStaysDiscarded: a server that was paused cannot complete a tenant that another one
// has removed meanwhile. Otherwise it would return credentials of a tenant that no longer exists.
func TestDiscardedStaysDiscarded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		y := newYard(t, c)
		sc, _ := y.vendor("Widgets", 5)
		before := y.tenants()
		var late error
		var p provisioning
		y.Tenants.OnPurge = append(y.Tenants.OnPurge, func(ctx context.Context, id scope.TenantID) error {
			late = y.Stores.System().Write(ctx, func(tx *db.Tx) error { return tenant.Complete(ctx, tx, id, p.Attempt) })
			return nil
		})
		y.between = func(step string) {
			if step != "keys" {
				return
			}
			y.between = nil
			err := y.Stores.System().Read(ctx, func(tx *db.Tx) error {
				all, err := selectAbandoned(ctx, tx, y.Now().Add(time.Hour))
				if err == nil && len(all) == 1 {
					p = all[0]
				}
				return err
			})
			if err != nil || y.discard(ctx, p) != nil {
				t.Errorf("discard of attempt %v: %v", p.Attempt, err)
			}
		}
		if _, err := y.Provision(ctx, sc, "order-1", request()); err == nil {
			t.Error("Provision of a discarded tenant succeeds, want an error")
		}
		if !fault.Is(late, fault.Conflict) {
			t.Errorf("Complete of a discarded tenant: got %v, want a conflict", late)
		}
		if ids := y.tenants(); len(ids) != len(before) {
			t.Errorf("tenants = %v, want %v", ids, before)
		}
	})
}

// TestTakenOver: a server that was paused while another one repeated its request answers that the
// request was taken over. It does not change the other's tenant, which has the same id.
func TestTakenOver(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		for _, step := range []string{"tenant", "administrator", "keys", "bouncer"} {
			y := newYard(t, c)
			sc, _ := y.vendor("Widgets "+step, 1)
			var second Provisioned
			y.between = func(at string) {
				if at != step {
					return
				}
				y.between = nil
				var err error
				if second, err = y.Provision(ctx, sc, "order", request()); err != nil {
					t.Errorf("Provision again after %s: %v", step, err)
				}
			}
			_, err := y.Provision(ctx, sc, "order", request())
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Conflict || f.Code != "request_in_progress" {
				t.Errorf("Provision that was repeated elsewhere after %s: got %v, want request_in_progress", step, err)
			}
			y.wantWorking(second)
			keys, err := y.Auth.Keys(ctx, within(sc, second.Tenant.ID), 0, 10)
			if err != nil || keys.Total != int64(len(second.APIKeys)) {
				t.Errorf("after %s the tenant has %d keys, %v, want %d", step, keys.Total, err, len(second.APIKeys))
			}
			page, err := y.ListTenants(ctx, sc, 0, 10)
			if err != nil || page.Total != 1 {
				t.Errorf("Made after %s = %+v, %v, want 1", step, page, err)
			}
		}
	})
}
