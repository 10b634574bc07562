package bouncer

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/config"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

var now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// gate is a Service with its dependencies. names lists the controls that name a bouncer.
type gate struct {
	*Service
	Resources *resource.Service
	names     map[int64][]int64
}

// publish publishes one content, and reports whether it got a new revision.
func (g *gate) publish(ctx context.Context, tx *db.Tx, id int64, hash string) (b Bundle, isNew bool, err error) {
	before, err := bundleOf(ctx, tx, id)
	if err != nil {
		return b, false, err
	}
	if err := g.Publish(ctx, tx, []Content{{BouncerID: id, Hash: hash}}); err != nil {
		return b, false, err
	}
	b, err = bundleOf(ctx, tx, id)
	return b, b.Revision != before.Revision, err
}

// newGate returns a Service on c.
func newGate(c *db.Cluster) *gate {
	g := &gate{names: map[int64][]int64{}}
	tick := atomic.Int64{}
	clock := func() time.Time { return now.Add(time.Duration(tick.Add(1)) * time.Second) }
	g.Service = &Service{
		Stores: c, Now: clock, Random: rand.Reader, Root: "https://gate.example/api/v1",
		Tenants: &tenant.Service{Stores: c, Now: clock},
		LinksOf: func(_ context.Context, _ *db.Tx, id int64) ([]int64, []int64, error) {
			return g.names[id], []int64{500}, nil
		},
		VerifyKey: func(context.Context, scope.TenantID) (VerifyKey, error) {
			return VerifyKey{ID: "k1", Algorithm: "RS256", PEM: "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----\n"}, nil
		},
	}
	g.Resources = &resource.Service{
		Stores: c, Now: clock, BouncersOf: LinkedTo,
		PoliciesOf: func(context.Context, *db.Tx, int64, int64) (map[int64][]int64, error) { return nil, nil },
	}
	g.Tenants.Counters = map[string]func(context.Context, *db.Tx) (int64, error){tenant.Bouncers: Count}
	return g
}

// eachStore runs a test with a Service on each store.
func eachStore(t *testing.T, test func(t *testing.T, ctx context.Context, g *gate)) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) { test(t, context.Background(), newGate(c)) })
}

// create creates a bouncer.
func (g *gate) create(t *testing.T, d Draft) Issued {
	t.Helper()
	made, err := g.Create(context.Background(), sc(""), d)
	errtest.Must(t, err)
	return made
}

// sc is the scope of a person.
func sc(env scope.Env) scope.Scope {
	return scope.Scope{Tenant: scope.DefaultTenant, Env: env, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice"}}
}

// in writes to the store of the tenant.
func (g *gate) in(t *testing.T, fn func(ctx context.Context, tx *db.Tx) error) {
	t.Helper()
	ctx := context.Background()
	store, err := g.Stores.Tenant(ctx, scope.DefaultTenant)
	if err == nil {
		err = store.Write(ctx, func(tx *db.Tx) error { return fn(ctx, tx) })
	}
	errtest.Must(t, err)
}

// wantFault requires an error of a kind, and among its details one for pointer.
func wantFault(t *testing.T, err error, kind fault.Kind, pointer string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Kind != kind {
		t.Fatalf("the error is %v, want kind %d", err, kind)
	}
	if pointer != "" && !slices.ContainsFunc(f.Details, func(d fault.Detail) bool { return d.Pointer == pointer }) {
		t.Fatalf("the offences are %+v, want one at %s", f.Details, pointer)
	}
}

// A bouncer can be created, read, changed and deleted. A control or resource that it needs keeps it.
func TestBouncerLifecycle(t *testing.T) {
	eachStore(t, func(t *testing.T, ctx context.Context, g *gate) {
		r, err := g.Resources.Create(ctx, sc(""), resource.Draft{Name: "pay", Type: "api", Path: "/pay"})
		errtest.Must(t, err)
		made := g.create(t, Draft{
			Name: "edge", Hostname: "edge.example", Port: 8080, TargetApp: "app:80", ResourceIDs: []int64{r.ID, r.ID},
			Configuration: map[string]any{"cache_enabled": true, "cache_ttl": "30s", "x-mine": []any{"x"}},
		})
		if !wellFormed(made.Token) || made.Status != Disconnected || made.Environment != scope.Sandbox || len(made.ResourceIDs) != 1 {
			t.Errorf("created %+v, want a disconnected bouncer with a token and one resource", made)
		}
		if !strings.Contains(made.OPAConfig, made.Token) || !strings.Contains(made.OPAConfig, `url: "https://gate.example/api/v1/bridge"`) {
			t.Errorf("the configuration is\n%s, want the token and the address in it", made.OPAConfig)
		}
		got, err := g.Get(ctx, sc(""), made.ID)
		if diff := cmp.Diff(made.Bouncer, got); err != nil || diff != "" {
			t.Errorf("Get after Create: %v %s", err, diff)
		}
		_, err = g.Create(ctx, sc(""), Draft{Name: "edge"})
		wantFault(t, err, fault.Conflict, "")
		if _, err = g.Create(ctx, sc(""), Draft{Name: "edge", Environment: scope.Production}); err != nil {
			t.Errorf("the same name in production: %v, want no error", err)
		}
		up, err := g.Update(ctx, sc(""), made.ID, Change{Port: new(9090), Configuration: patch.Set(map[string]any{"enforcement_mode": "shadow"})}, 1)
		if err != nil || up.Port != 9090 || up.ChangeNo != 2 || up.Hostname != "edge.example" || up.Configuration["cache_ttl"] != nil {
			t.Errorf("updated %+v, %v, want port, change number and the whole configuration changed", up, err)
		}
		_, err = g.Update(ctx, sc(""), made.ID, Change{}, 1)
		wantFault(t, err, fault.Precondition, "")
		_, err = g.Resources.Delete(ctx, sc(""), r.ID, 0)
		wantFault(t, err, fault.Conflict, "")

		g.names[made.ID] = []int64{3}
		_, err = g.Delete(ctx, sc(""), made.ID, 0)
		wantFault(t, err, fault.Conflict, "")
		g.names[made.ID] = nil
		if _, err = g.Delete(ctx, sc(""), made.ID, 0); err != nil {
			t.Fatal(err)
		}
		_, err = g.Get(ctx, sc(""), made.ID)
		wantFault(t, err, fault.NotFound, "")
		if _, err = g.Resources.Delete(ctx, sc(""), r.ID, 0); err != nil {
			t.Errorf("the end of the resource after its bouncer: %v, want no error", err)
		}
	})
}

// A token is indexed while it is valid: until its rotation, or the end of its bouncer.
func TestTokens(t *testing.T) {
	eachStore(t, func(t *testing.T, ctx context.Context, g *gate) {
		made := g.create(t, Draft{Name: "edge"})
		wantKnown := func(what, token string, want bool) {
			t.Helper()
			rows, known := indexed(t, g.Stores, secret.DigestOf(token)), false
			g.in(t, func(ctx context.Context, tx *db.Tx) error {
				b, err := ByToken(ctx, tx, secret.DigestOf(token))
				known = err == nil && b.ID == made.ID
				if err != nil && !fault.Is(err, fault.NotFound) {
					t.Error(err)
				}
				return nil
			})
			if known != want || rows != map[bool]int{true: 1}[want] {
				t.Errorf("%s: %d rows, known %t, want it known: %t", what, rows, known, want)
			}
		}
		wantKnown("a new token", made.Token, true)
		next, err := g.Rotate(ctx, sc(""), made.ID)
		if err != nil || next.Token == made.Token || next.ChangeNo != 2 {
			t.Fatalf("rotated %+v, %v, want another token and change 2", next, err)
		}
		wantKnown("the former token", made.Token, false)
		wantKnown("the rotated token", next.Token, true)
		errtest.Must(t, errtest.Of(g.Delete(ctx, sc(""), made.ID, 0)))
		wantKnown("the token of a deleted bouncer", next.Token, false)
		// A refused request leaves no row.
		if _, err := g.Create(ctx, sc(""), Draft{Name: "x", ResourceIDs: []int64{99}}); !fault.Is(err, fault.Invalid) {
			t.Errorf("a bouncer with an unknown resource: %v, want Invalid", err)
		}
		if n := indexed(t, g.Stores, ""); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
	for _, bad := range []string{"", "gh_bouncer_", "gh_tenant_" + strings.Repeat("a", 50), tokenHead + "_" + strings.Repeat("a", 43) + "_000000"} {
		if wellFormed(bad) {
			t.Errorf("%q is well-formed", bad)
		}
	}
}

// Every fault of a draft is named with its place.
func TestOffences(t *testing.T) {
	eachStore(t, func(t *testing.T, ctx context.Context, g *gate) {
		_, err := g.Create(ctx, sc(""), Draft{
			Name: " ", Hostname: "a b", TargetApp: "app", Configuration: map[string]any{
				"cache_enabled": "yes", "cache_ttl": "soon", "max_stale": "-1s", "enforcement_mode": "off", "default_action": nil, "signing": true,
				"headers": []any{"Cookie"}, "identity": map[string]any{"jwks_url": "file:///x", "trusted_proxies": []any{"10.0.0.0/99"}, "leeway_seconds": 61.0},
			},
		})
		for _, p := range []string{
			"/name", "/hostname", "/target_app", "/configuration/cache_enabled", "/configuration/cache_ttl", "/configuration/max_stale",
			"/configuration/enforcement_mode", "/configuration/default_action", "/configuration/signing", "/configuration/headers/0",
			"/configuration/identity/jwks_url", "/configuration/identity/trusted_proxies/0", "/configuration/identity/leeway_seconds",
			"/configuration/identity/issuer", "/configuration/identity/audience",
		} {
			wantFault(t, err, fault.Invalid, p)
		}
		prod, err := g.Resources.Create(ctx, sc(""), resource.Draft{Name: "pay", Type: "api", Path: "/pay", Environment: scope.Production})
		errtest.Must(t, err)
		_, err = g.Create(ctx, sc(""), Draft{Name: "x", ResourceIDs: []int64{prod.ID}})
		wantFault(t, err, fault.Invalid, "/resource_ids/0")
	})
}

// Of parallel creations with one name, one succeeds.
func TestParallelCreatesOfOneName(t *testing.T) {
	eachStore(t, func(t *testing.T, ctx context.Context, g *gate) {
		var created, refused atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				switch _, err := g.Create(ctx, sc(""), Draft{Name: "edge"}); {
				case err == nil:
					created.Add(1)
				case fault.Is(err, fault.Conflict):
					refused.Add(1)
				default:
					t.Errorf("Create: %v, want Conflict", err)
				}
			})
		}
		wg.Wait()
		if created.Load() != 1 || refused.Load() != 19 {
			t.Errorf("%d created, %d refused, want 1 and 19", created.Load(), refused.Load())
		}
	})
}

// What a bouncer was sent, runs and refuses decides its sync status and that of each control.
func TestBridgeReports(t *testing.T) {
	eachStore(t, func(t *testing.T, ctx context.Context, g *gate) {
		made := g.create(t, Draft{Name: "edge"})
		b, id := made.Bouncer, made.ID
		wantStatus := func(want string, revision int64, rows ...string) {
			t.Helper()
			s, err := g.SyncStatus(ctx, sc(""), id)
			var got []string
			for _, p := range s.Policies {
				got = append(got, p.Status)
			}
			if err != nil || s.Status != want || s.Revision != revision || !slices.Equal(got, rows) {
				t.Errorf("the sync status is %s at %d with %v, %v, want %s at %d with %v", s.Status, s.Revision, got, err, want, revision, rows)
			}
		}
		wantStatus(Pending, 0)
		g.in(t, func(ctx context.Context, tx *db.Tx) error {
			for i, step := range []struct {
				hash     string
				revision int64
				isNew    bool
			}{{"a", 1, true}, {"a", 1, false}, {"b", 2, true}, {"a", 3, true}} {
				p, isNew, err := g.publish(ctx, tx, id, step.hash)
				if err != nil || p.Revision != step.revision || isNew != step.isNew || p.ContentHash != step.hash {
					t.Errorf("publish %d: %+v, new %t, %v, want revision %d, new %t", i, p, isNew, err, step.revision, step.isNew)
				}
			}
			return g.RecordSent(ctx, tx, id, 3, []Item{{PolicyID: 10, Version: 1}, {PolicyID: 11, Version: 4}})
		})
		wantStatus(InProgress, 0, InProgress, InProgress)
		g.in(t, func(ctx context.Context, tx *db.Tx) error {
			health, err := LoadSyncHealth(ctx, tx, now.Add(time.Hour))
			if err != nil || health.InProgress != 2 || health.Stuck != 2 || health.LastSync != nil {
				t.Errorf("the sync health is %+v, %v, want two deliveries stuck", health, err)
			}
			for _, want := range []bool{true, false} {
				if isNew, err := g.RecordActivation(ctx, tx, sc(""), b, 3); err != nil || isNew != want {
					t.Errorf("an activation is new: %t, %v, want %t", isNew, err, want)
				}
			}
			if changed, err := g.SetStatus(ctx, tx, sc(""), id, Connected, ""); err != nil || !changed {
				t.Errorf("the status changed: %t, %v, want true", changed, err)
			}
			version, rate, reachable := "1.2", 7.5, true
			return g.RecordHeartbeat(ctx, tx, id, Figures{Version: &version, RequestsPerSecond: &rate, TargetAppReachable: &reachable})
		})
		wantStatus(Synced, 3, Enabled, Enabled)
		h, err := g.Health(ctx, sc(""), id)
		if err != nil || h.Status != Connected || !h.BridgeConnected || !h.TargetAppReachable || h.PoliciesLoaded != 2 || h.LastHeartbeat == nil {
			t.Errorf("the health is %+v, %v, want a connected bouncer with 2 policies", h, err)
		}
		got, err := g.Get(ctx, sc(""), id)
		if err != nil || got.Version != "1.2" || got.RequestsPerSecond != 7.5 || got.ChangeNo != 1 {
			t.Errorf("after a heartbeat: %+v, %v, want its figures and no new change number", got, err)
		}

		// Control 11 changes and is refused; control 10 leaves the bundle; then all is corrected.
		g.in(t, func(ctx context.Context, tx *db.Tx) error {
			if _, _, err := g.publish(ctx, tx, id, "c"); err != nil {
				return err
			}
			if err := g.RecordSent(ctx, tx, id, 4, []Item{{PolicyID: 11, Version: 5}, {PolicyID: 12, Version: 1}}); err != nil {
				return err
			}
			why := []Refusal{{PolicyID: 11, File: "c11.rego", Line: 3, Message: "no"}}
			for _, want := range []bool{true, false} {
				if isNew, err := RecordRefusal(ctx, tx, sc(""), b, 4, why); err != nil || isNew != want {
					t.Errorf("a refusal is new: %t, %v, want %t", isNew, err, want)
				}
			}
			bad, err := RefusalsOf(ctx, tx, 1, 99)
			if err != nil || len(bad) != 1 || bad[0].PolicyID != 11 || bad[0].Line != 3 || bad[0].BouncerID != id {
				t.Errorf("the refusals are %+v, %v, want one of control 11", bad, err)
			}
			return nil
		})
		wantStatus(Failed, 3, Failed, Pending)
		g.in(t, func(ctx context.Context, tx *db.Tx) error {
			if _, _, err := g.publish(ctx, tx, id, "d"); err != nil {
				return err
			}
			if err := g.RecordSent(ctx, tx, id, 5, []Item{{PolicyID: 11, Version: 6}, {PolicyID: 12, Version: 1}}); err != nil {
				return err
			}
			if _, err := g.RecordActivation(ctx, tx, sc(""), b, 5); err != nil {
				return err
			}
			all, err := BundlesIn(ctx, tx, scope.Sandbox)
			if err != nil || len(all) != 1 || all[0].Active != 5 || all[0].Refused != 0 || len(all[0].Errors) != 0 {
				t.Errorf("the bundles are %+v, %v, want 5 active and none refused", all, err)
			}
			return nil
		})
		wantStatus(Synced, 5, Enabled, Enabled)

		// The active bundle is refused, as with another key after a restart, and then activated again.
		g.in(t, func(ctx context.Context, tx *db.Tx) error {
			wantBundle := func(active, refused int64) {
				t.Helper()
				all, err := BundlesIn(ctx, tx, scope.Sandbox)
				if err != nil || len(all) != 1 || all[0].Active != active || all[0].Refused != refused || (refused == 0) != (len(all[0].Errors) == 0) {
					t.Errorf("the bundles are %+v, %v, want %d active and %d refused", all, err, active, refused)
				}
			}
			if _, err := RecordRefusal(ctx, tx, sc(""), b, 5, []Refusal{{Message: "wrong signature"}}); err != nil {
				return err
			}
			wantBundle(0, 5)
			if _, err := g.RecordActivation(ctx, tx, sc(""), b, 5); err != nil {
				return err
			}
			wantBundle(5, 0)
			return nil
		})
	})
}

// OPA reads the configuration that an operator downloads.
func TestOPAConfig(t *testing.T) {
	eachStore(t, func(t *testing.T, ctx context.Context, g *gate) {
		made := g.create(t, Draft{Name: "edge", Configuration: map[string]any{"signing": "signed"}})
		got, err := g.OPAConfig(ctx, sc(""), made.ID)
		want := `# Set GATEHOUSE_BOUNCER_TOKEN in OPA's environment: the token was shown when the bouncer
# was created; POST /bouncers/1/rotate-token gives a new one.
# opa run --server --config-file gatehouse.yaml
services:
  gatehouse:
    url: "https://gate.example/api/v1/bridge"
    credentials:
      bearer:
        token: "${GATEHOUSE_BOUNCER_TOKEN}"
labels:
  bouncer: "1"
  environment: sandbox
status:
  service: gatehouse
discovery:
  service: gatehouse
  resource: "/bundles/1/discovery"
  # The same key, or the path of a file with it, is GATEHOUSE_BOUNCER_VERIFY_KEY of a gatehouse bouncer.
  signing:
    keyid: "k1"
keys:
  "k1":
    algorithm: RS256
    key: |
      -----BEGIN PUBLIC KEY-----
      abc
      -----END PUBLIC KEY-----
`
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		parsed, err := config.ParseConfig([]byte(made.OPAConfig), "opa")
		if err != nil {
			t.Fatalf("OPA does not read it: %v\n%s", err, made.OPAConfig)
		}
		if parsed.Discovery == nil || parsed.Keys == nil || parsed.Labels["bouncer"] != "1" || !strings.Contains(string(parsed.Services), made.Token) {
			t.Errorf("OPA reads %+v, want discovery, keys, label and token", parsed)
		}
	})
}

// wellFormed reports whether s has the form of a bouncer token, checksum included.
func wellFormed(s string) bool {
	head, ok := secret.ParseToken(s)
	return ok && head == tokenHead
}
