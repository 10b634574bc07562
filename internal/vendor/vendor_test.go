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
	t   testing.TB
	ago atomic.Int64 // how far the clock is ahead, in nanoseconds
}

var ctx = context.Background()

func newYard(t testing.TB, c *db.Cluster) *yard {
	t.Helper()
	y := &yard{t: t}
	now := func() time.Time { return time.Now().UTC().Add(time.Duration(y.ago.Load())) }
	box, err := secret.New([secret.KeyBytes]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	tenants := &tenant.Service{Stores: c, Now: now, Counters: map[string]func(context.Context, *db.Tx) (int64, error){tenant.Users: user.Count, tenant.Bouncers: bouncer.Count}}
	if err := tenants.EnsureDefault(ctx); err != nil {
		t.Fatal(err)
	}
	hasher, err := user.NewHasher(user.Cost{Passes: 1, MemoryKiB: 64, Lanes: 1}, 0, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	people := &user.Service{Stores: c, Hasher: hasher, Now: now, NewID: uuid.NewString, CheckLimit: tenants.CheckLimit, Released: tenants.Released, Revoke: auth.RevokeUser}
	a, err := auth.New(ctx, auth.Config{
		Stores: c, Tenants: tenants, Users: people, Hasher: hasher, Box: box, Now: now, NewID: uuid.NewString, Random: rand.Reader,
		Holders: auth.Holders{scope.Vendor: Find},
	})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		y.t.Fatal(err)
	}
	sc, _, err := y.Auth.Authenticate(ctx, auth.Credential{APIKey: made.Key})
	if err != nil {
		y.t.Fatal(err)
	}
	return sc, made
}

func asked() Request {
	return Request{
		Name: "Acme", Administrator: Administrator{Email: "root@acme.example"},
		Bouncer: &bouncer.Draft{Name: "edge", Hostname: "edge.example.com", Port: 8443},
	}
}

// tenants returns the ids of all tenants with a record, complete or not.
func (y *yard) tenants() []scope.TenantID {
	y.t.Helper()
	ids, err := y.Stores.Tenants(ctx)
	if err != nil {
		y.t.Fatal(err)
	}
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
				if !killed(func() { _, _ = y.Provision(ctx, sc, step, asked()) }) {
					t.Fatalf("%s: not killed", step)
				}
				y.between = nil
				page, err := y.ListTenants(ctx, sc, 0, 10)
				all, err2 := y.Tenants.List(ctx, root(), tenant.Filter{Limit: 10})
				if step != "complete" && (err != nil || page.Total != 0 || len(page.Tenants) != 0 || err2 != nil || all.Total != int64(before)) {
					t.Errorf("killed after %s: the vendor sees %+v, the platform %+v, %v, %v", step, page, all, err, err2)
				}
				if _, err := y.Status(ctx, sc, "acme"); step != "complete" && !fault.Is(err, fault.NotFound) {
					t.Errorf("killed after %s: %v", step, err)
				}
				if repeated {
					first, err := y.Provision(ctx, sc, step, asked())
					if err != nil {
						t.Fatalf("repeated after %s: %v", step, err)
					}
					second, err := y.Provision(ctx, sc, step, asked())
					if a, b := text(t, first), text(t, second); err != nil || a != b {
						t.Errorf("after %s the answers differ: %v\n%s\n%s", step, err, a, b)
					}
					if first.Tenant.ID != "acme" {
						t.Errorf("after %s the id is %s", step, first.Tenant.ID)
					}
					y.works(first)
					if _, err := y.Remove(ctx, sc, "acme", false); err != nil {
						t.Fatal(err)
					}
					if err := y.Stores.DropTenant(ctx, "acme"); err != nil {
						t.Fatal(err)
					}
					if err := y.Forget(ctx, "acme"); err != nil {
						t.Fatal(err)
					}
				} else if step != "complete" {
					if n, err := y.Recover(ctx); n != 0 || err != nil {
						t.Errorf("after %s, while somebody may work on it: %d, %v", step, n, err)
					}
					if step == "keys" {
						y.ago.Add(-int64(2 * time.Hour)) // the clock was ahead
					} else {
						y.ago.Add(int64(abandonedAfter + time.Second))
					}
					if n, err := y.Recover(ctx); n != 1 || err != nil {
						t.Errorf("after %s: taken back %d, %v", step, n, err)
					}
				} else if err := y.Stores.DropTenant(ctx, "acme"); err != nil {
					t.Fatal(err)
				}
				if ids := y.tenants(); len(ids) != before {
					t.Fatalf("after %s there are %v", step, ids)
				}
			}
		}
	})
}

// works checks that the credentials of a new tenant work.
func (y *yard) works(p Provisioned) {
	y.t.Helper()
	for _, k := range p.APIKeys {
		sc, _, err := y.Auth.Authenticate(ctx, auth.Credential{APIKey: k.Key})
		if err != nil || sc.Tenant != p.Tenant.ID {
			y.t.Errorf("the key %s: %v in %q", k.Name, err, sc.Tenant)
		}
	}
	_, err := y.Auth.Login(ctx, scope.Scope{Tenant: p.Tenant.ID, Actor: scope.Actor{IP: "192.0.2.1"}}, auth.Proof{Username: p.Administrator.Username, Password: p.Administrator.Password})
	if err != nil {
		y.t.Errorf("sign-in of the administrator: %v", err)
	}
	if p.Bouncer == nil || p.Bouncer.Token == "" {
		y.t.Errorf("the bouncer %+v", p.Bouncer)
	}
}

func text(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
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
				if _, err := y.Tenants.Create(ctx, root(), tenant.Draft{Name: "Other", Domain: "taken.example"}); err != nil {
					t.Fatal(err)
				}
			}
			before := len(y.tenants())
			req := asked()
			tc.change(&req)
			_, err := y.Provision(ctx, sc, "", req)
			var f *fault.Error
			if !errors.As(err, &f) {
				t.Errorf("%s: %v", what, err)
				continue
			}
			if tc.pointer != "" && (len(f.Details) != 1 || f.Details[0].Pointer != tc.pointer) {
				t.Errorf("%s: %+v", what, f.Details)
			}
			if n := len(y.tenants()); n != before {
				t.Errorf("%s left %d tenants of %d", what, n, before)
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
				var f *fault.Error
				switch {
				case err == nil:
					passed.Add(1)
				case errors.As(err, &f) && f.Kind == fault.Forbidden && f.Code == "limit_exceeded":
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		group.Wait()
		if passed.Load() != 2 || refused.Load() != 4 {
			t.Fatalf("%d passed, %d were refused", passed.Load(), refused.Load())
		}
		page, err := y.ListTenants(ctx, sc, 0, 10)
		if err != nil || page.Total != 2 {
			t.Fatalf("%+v, %v", page, err)
		}
		gone := page.Tenants[0].ID
		if _, err := y.Remove(ctx, sc, gone, false); err != nil {
			t.Fatal(err)
		}
		if _, err := y.Provision(ctx, sc, "", asked()); err != nil {
			t.Fatalf("in the place of a deleted tenant: %v", err)
		}
		back := tenant.Change{Status: patch.Set(tenant.Active)}
		if _, err := y.Change(ctx, sc, gone, back); !fault.Is(err, fault.Forbidden) {
			t.Errorf("made active over the limit: %v", err)
		}
		if _, err := y.Tenants.Update(ctx, root(), gone, back); !fault.Is(err, fault.Forbidden) {
			t.Errorf("made active over the limit by the platform: %v", err)
		}
		if _, err := y.Remove(ctx, sc, "acme", false); err != nil {
			t.Fatal(err)
		}
		if _, err := y.Change(ctx, sc, gone, back); err != nil {
			t.Errorf("made active in the room of another: %v", err)
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
		if _, err := y.Provision(ctx, other, "same key", asked()); err != nil {
			t.Fatal(err)
		}
		first, err := y.Provision(ctx, mine, "same key", asked())
		if err != nil || first.Tenant.ID != "acme-2" {
			t.Fatalf("%s, %v", first.Tenant.ID, err)
		}
		if _, err := y.Tenants.Create(ctx, root(), tenant.Draft{Name: "Platform's"}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []scope.TenantID{"acme", "platform-s", "default", "nowhere", "Not A Label"} {
			want := fault.Newf(fault.NotFound, "tenant_not_found", "there is no such tenant").With("tenant_id", string(id))
			check := func(what string, err error) {
				t.Helper()
				var f *fault.Error
				if !errors.As(err, &f) || text(t, f) != text(t, want) {
					t.Errorf("%s of %s: %v", what, id, err)
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
			t.Errorf("%+v, %v", page, err)
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
		is := func(what, key string, want fault.Kind) {
			t.Helper()
			_, _, err := y.Auth.Authenticate(ctx, auth.Credential{APIKey: key})
			if want == 0 && err != nil || want != 0 && !fault.Is(err, want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		keys, err := y.Auth.Keys(ctx, root(), 0, 10)
		if err != nil || keys.Total != 0 || len(keys.Keys) != 0 {
			t.Errorf("API keys %+v, %v", keys, err)
		}
		for _, id := range []string{made.Keys[0].ID} {
			if _, err := y.Auth.Key(ctx, root(), id); !fault.Is(err, fault.NotFound) {
				t.Errorf("read as an API key: %v", err)
			}
			if _, err := y.Auth.RevokeKey(ctx, root(), id); !fault.Is(err, fault.NotFound) {
				t.Errorf("revoked as an API key: %v", err)
			}
			if _, err := y.Auth.RotateKey(ctx, root(), id, 0); !fault.Is(err, fault.NotFound) {
				t.Errorf("replaced as an API key: %v", err)
			}
			if _, err := y.Auth.UpdateKey(ctx, root(), id, auth.KeyChange{Name: patch.Set("x")}); !fault.Is(err, fault.NotFound) {
				t.Errorf("changed as an API key: %v", err)
			}
		}
		second, err := y.Rotate(ctx, root(), made.ID, time.Hour)
		if err != nil || len(second.Keys) != 2 {
			t.Fatalf("%+v, %v", second, err)
		}
		is("the old key, during the overlap", made.Key, 0)
		is("the new key", second.Key, 0)
		third, err := y.Rotate(ctx, root(), made.ID, 0)
		if err != nil || len(third.Keys) != 1 || third.Key == second.Key {
			t.Fatalf("%+v, %v", third, err)
		}
		is("the first key", made.Key, fault.Unauthenticated)
		is("the second key", second.Key, fault.Unauthenticated)
		is("the third key", third.Key, 0)
		if _, err := y.Delete(ctx, root(), made.ID, 0); err != nil {
			t.Fatal(err)
		}
		is("the key of a vendor who is gone", third.Key, fault.Unauthenticated)
		if _, err := y.Rotate(ctx, root(), made.ID, 0); !fault.Is(err, fault.NotFound) {
			t.Errorf("a new key for a vendor who is gone: %v", err)
		}
		admin := scope.Scope{Tenant: scope.DefaultTenant, Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Person, ID: "1"}}
		if _, err := y.Create(ctx, admin, Draft{Name: "x"}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("registered by an administrator of the tenant: %v", err)
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
			t.Errorf("the log has %v", kinds)
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
				t.Errorf("discard %v: %v", p.Attempt, err)
			}
		}
		if _, err := y.Provision(ctx, sc, "order-1", asked()); err == nil {
			t.Error("a tenant that was taken back is handed out")
		}
		if !fault.Is(late, fault.Conflict) {
			t.Errorf("the late completion: %v", late)
		}
		if ids := y.tenants(); len(ids) != len(before) {
			t.Errorf("there are %v", ids)
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
				if second, err = y.Provision(ctx, sc, "order", asked()); err != nil {
					t.Errorf("repeated after %s: %v", step, err)
				}
			}
			_, err := y.Provision(ctx, sc, "order", asked())
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Conflict || f.Code != "request_in_progress" {
				t.Errorf("taken over after %s: %v", step, err)
			}
			y.works(second)
			keys, err := y.Auth.Keys(ctx, within(sc, second.Tenant.ID), 0, 10)
			if err != nil || keys.Total != int64(len(second.APIKeys)) {
				t.Errorf("taken over after %s: the tenant has %d keys, its maker got %d; %v", step, keys.Total, len(second.APIKeys), err)
			}
			page, err := y.ListTenants(ctx, sc, 0, 10)
			if err != nil || page.Total != 1 {
				t.Errorf("taken over after %s: %+v, %v", step, page, err)
			}
		}
	})
}
