package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestChangeOfAKey: the members that were sent change, the others stay. Cached rights of the key
// end at once on this replica, and within seconds on the others.
func TestChangeOfAKey(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			ctx := context.Background()
			cfg, ck := dbtest.Config(t, backend), newClock()
			here, there := newReplica(t, dbtest.OpenConfig(t, cfg), ck), newReplica(t, dbtest.OpenConfig(t, cfg), ck)
			k := here.key(scope.DefaultTenant, "policies:write", "users:read")
			caller, _ := here.is(Credential{APIKey: k.Key})
			g, err := here.Portal(ctx, caller, nil)
			if err != nil {
				t.Fatal(err)
			}
			may := func(r *replica, what string, p scope.Permission, want bool) {
				t.Helper()
				for _, c := range []Credential{{APIKey: k.Key}, {Bearer: g.AccessToken}} {
					if sc, got := r.is(c); got != "ok" || sc.Permissions.Has(p) != want {
						t.Errorf("%s: %s, %v", what, got, sc.Permissions.List)
					}
				}
			}
			may(here, "before, here", "users:read", true)
			may(there, "before, there", "users:read", true)
			after, err := here.UpdateKey(ctx, root(), k.ID, KeyChange{Scopes: patch.Set([]string{"policies:read"})})
			if err != nil || after.Name != k.Name || fmt.Sprint(after.Scopes) != "[policies:read]" || after.Key != "" {
				t.Fatalf("changed to %+v, %v", after, err)
			}
			may(here, "narrowed, here", "users:read", false)
			may(here, "what was left, here", "policies:read", true)
			ck.pass(softAge)
			may(there, "narrowed, there", "users:read", false)

			end := ck.Now().Add(time.Minute).In(time.FixedZone("", 3600)).Add(789)
			after, err = here.UpdateKey(ctx, root(), k.ID, KeyChange{Name: patch.Set(" cd "), ExpiresAt: patch.Set(end)})
			if err != nil || after.Name != "cd" || !after.ExpiresAt.Equal(end.Truncate(time.Microsecond)) || after.ExpiresAt.Location() != time.UTC {
				t.Fatalf("changed to %+v, %v", after, err)
			}
			if got, err := here.Key(ctx, root(), k.ID); err != nil || fmt.Sprint(got.Scopes, got.Name, got.ExpiresAt) != fmt.Sprint(after.Scopes, after.Name, after.ExpiresAt) {
				t.Errorf("kept %+v, told %+v, %v", got, after, err)
			}
			ck.pass(time.Minute)
			for what, r := range map[string]*replica{"here": here, "there": there} {
				r.want("ended, "+what, Credential{APIKey: k.Key}, "401")
				r.want("its token, "+what, Credential{Bearer: g.AccessToken}, "401")
			}
			_, err = here.UpdateKey(ctx, root(), k.ID, KeyChange{ExpiresAt: patch.Clear[time.Time]()})
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != "key_expired" {
				t.Errorf("a key that ended is brought back: %v", err)
			}
			if _, err = here.RotateKey(ctx, root(), k.ID, time.Hour); !errors.As(err, &f) || f.Code != "key_expired" {
				t.Errorf("a key that ended is replaced: %v", err)
			}
			if _, err = here.Key(ctx, root(), k.ID); err != nil {
				t.Errorf("the key that ended is gone: %v", err)
			}
			told(ctx, t, here, k.ID)
		})
	}
}

// told looks for the changes of a key in the audit.
func told(ctx context.Context, t *testing.T, r *replica, id string) {
	t.Helper()
	var lines []string
	err := r.Stores.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) (err error) {
		lines, err = db.All[string](ctx, tx, `SELECT changes FROM audit_events WHERE type = 'API_KEY_UPDATED' AND object_id = $1 ORDER BY seq`, id)
		return err
	})
	if err != nil || len(lines) != 2 || !strings.Contains(lines[0], "users:read") || strings.Contains(lines[0], "expires_at") || !strings.Contains(lines[1], "expires_at") {
		t.Errorf("the audit says %q, %v", lines, err)
	}
}

// TestKeyChangeGrants: a changed key is one that the caller could have created.
func TestKeyChangeGrants(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.person(scope.DefaultTenant, "admin", user.RoleAdmin)
		admin := r.signedIn(scope.DefaultTenant, "admin")
		soon, late := r.clock.Now().Add(time.Hour), r.clock.Now().Add(2*time.Hour)
		mk := func(d KeyDraft) (Key, scope.Scope) {
			t.Helper()
			k, err := r.CreateKey(ctx, admin, d)
			if err != nil {
				t.Fatal(err)
			}
			sc, _ := r.is(Credential{APIKey: k.Key})
			return k, sc
		}
		boss, bossKey := mk(KeyDraft{Name: "boss", Scopes: []string{"tenants:write", "policies:read"}, ExpiresAt: &soon})
		wide, _ := mk(KeyDraft{Name: "wide", Scopes: []string{"policies:write", "users:write"}, ExpiresAt: &soon})
		endless, _ := mk(KeyDraft{Name: "endless", Scopes: []string{"policies:read"}})
		plain, _ := mk(KeyDraft{Name: "plain", Scopes: []string{"policies:read"}, ExpiresAt: &soon})
		bound, boundKey := mk(KeyDraft{Name: "bound", Scopes: []string{"tenants:write", "policies:read"}, Environment: scope.Sandbox})
		other := admin
		other.Tenant = dbtest.Second
		up := func(sc scope.Scope, id string, ch KeyChange) string {
			return code(second(r.UpdateKey(ctx, sc, id, ch)))
		}
		past := r.clock.Now()
		scopes := func(s ...string) KeyChange { return KeyChange{Scopes: patch.Set(s)} }
		for _, c := range []struct{ what, got, want string }{
			{"nothing", up(bossKey, plain.ID, KeyChange{}), "ok"},
			{"wider than the caller", up(bossKey, plain.ID, scopes("users:read")), "403"},
			{"its own", up(bossKey, boss.ID, scopes("tenants:write", "policies:write")), "403"},
			{"its own end", up(bossKey, boss.ID, KeyChange{ExpiresAt: patch.Set(late)}), "403"},
			{"its own end away", up(bossKey, boss.ID, KeyChange{ExpiresAt: patch.Clear[time.Time]()}), "403"},
			{"a later end", up(bossKey, plain.ID, KeyChange{ExpiresAt: patch.Set(late)}), "403"},
			{"no end", up(bossKey, plain.ID, KeyChange{ExpiresAt: patch.Clear[time.Time]()}), "403"},
			{"a wider key's end", up(bossKey, wide.ID, KeyChange{ExpiresAt: patch.Set(soon)}), "403"},
			{"a wider key's scopes", up(bossKey, wide.ID, scopes("policies:read")), "ok"},
			{"an endless key's scopes", up(bossKey, endless.ID, scopes("policies:read", "tenants:read")), "403"},
			{"the other environment's", up(boundKey, plain.ID, KeyChange{Name: patch.Set("x")}), "403"},
			{"its own environment's", up(boundKey, bound.ID, KeyChange{Name: patch.Set("x")}), "ok"},
			{"another tenant's", up(other, plain.ID, KeyChange{Name: patch.Set("x")}), "404"},
			{"unknown", up(admin, "nobody", KeyChange{Name: patch.Set("x")}), "404"},
			{"no name", up(admin, plain.ID, KeyChange{Name: patch.Clear[string]()}), "422"},
			{"no scopes", up(admin, plain.ID, KeyChange{Scopes: patch.Clear[[]string]()}), "422"},
			{"in the past", up(admin, plain.ID, KeyChange{ExpiresAt: patch.Set(past)}), "422"},
			{"for ever", up(admin, plain.ID, KeyChange{ExpiresAt: patch.Clear[time.Time]()}), "ok"},
		} {
			if c.got != c.want {
				t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
			}
		}
		if got, _ := r.Key(ctx, admin, plain.ID); got.ExpiresAt != nil || fmt.Sprint(got.Scopes) != "[policies:read]" {
			t.Errorf("in the end %+v", got)
		}
		if _, err := r.RevokeKey(ctx, admin, plain.ID); err != nil {
			t.Fatal(err)
		}
		if got := up(admin, plain.ID, KeyChange{Name: patch.Set("x")}); got != "404" {
			t.Errorf("revoked: %s", got)
		}
	})
}

// TestRotationOfAChangedKey: scopes that a concurrent change removed are not in the rotated key.
func TestRotationOfAChangedKey(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		k := r.key(scope.DefaultTenant, "policies:write", "users:read")
		draw := r.NewID
		r.NewID = func() string { // between the reading of the old key and the writing of the new one
			r.NewID = draw
			if _, err := r.UpdateKey(ctx, root(), k.ID, KeyChange{Scopes: patch.Set([]string{"policies:read"})}); err != nil {
				t.Error(err)
			}
			return draw()
		}
		if _, err := r.RotateKey(ctx, root(), k.ID, 0); !fault.Is(err, fault.Conflict) {
			t.Errorf("rotated: %v", err)
		}
		if p, err := r.Keys(ctx, root(), 0, 10); err != nil || p.Total != 1 || fmt.Sprint(p.Keys[0].Scopes) != "[policies:read]" {
			t.Errorf("left %+v, %v", p, err)
		}
		r.want("the key", Credential{APIKey: k.Key}, "ok")
		if _, err := r.RotateKey(ctx, root(), k.ID, 0); err != nil {
			t.Errorf("asked again: %v", err)
		}
	})
}

// TestEveryOffenceOfAKey: a refusal names every error.
func TestEveryOffenceOfAKey(t *testing.T) {
	r := one(t)
	ctx, sc := context.Background(), root()
	past := r.clock.Now().Add(-time.Hour)
	k := r.key(scope.DefaultTenant, "policies:read")
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"create":   {second(r.CreateKey(ctx, sc, KeyDraft{Name: "  ", Scopes: []string{"zzz", "policies:read", "x"}, ExpiresAt: &past})), "[/name /scopes/0 /scopes/2 /expires_at]"},
		"generate": {second(r.GenerateKey(ctx, sc, scope.Sandbox, useful, PortalDraft{Scopes: []string{"zzz"}, ExpiresAt: &past})), "[/scopes/0 /expires_at]"},
		"change":   {second(r.UpdateKey(ctx, sc, k.ID, KeyChange{Name: patch.Set(" "), Scopes: patch.Set([]string{}), ExpiresAt: patch.Set(past)})), "[/name /scopes /expires_at]"},
	} {
		var f *fault.Error
		var at []string
		if errors.As(c.err, &f) {
			for _, d := range f.Details {
				at = append(at, d.Pointer)
			}
		}
		if fmt.Sprint(at) != c.want {
			t.Errorf("%s names %v, want %s: %v", what, at, c.want, c.err)
		}
	}
}
