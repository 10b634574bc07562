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
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestChangeOfAKey: the members that were sent change, the others stay. Cached rights of the key
// end at once on this replica, and within seconds on the others.
func TestChangeOfAKey(t *testing.T) {
	eachPair(t, dbtest.Backends(), func(t *testing.T, here, there *replica) {
		ctx := context.Background()
		clk := here.clock
		k := here.createKey(scope.DefaultTenant, "policies:write", "users:read")
		caller, _ := here.try(Credential{APIKey: k.Key})
		g, err := here.IssuePortalToken(ctx, caller, nil)
		errtest.Must(t, err)
		may := func(r *replica, what string, p scope.Permission, want bool) {
			t.Helper()
			for _, c := range []Credential{{APIKey: k.Key}, {Bearer: g.AccessToken}} {
				if sc, got := r.try(c); got != "ok" || sc.Permissions.Has(p) != want {
					t.Errorf("%s: got %s with the permissions %v, want %s: %t", what, got, sc.Permissions.List, p, want)
				}
			}
		}
		may(here, "before, here", "users:read", true)
		may(there, "before, there", "users:read", true)
		after, err := here.UpdateKey(ctx, root(), k.ID, KeyChange{Scopes: patch.Set([]string{"policies:read"})})
		if err != nil || after.Name != k.Name || fmt.Sprint(after.Scopes) != "[policies:read]" || after.Key != "" {
			t.Fatalf("UpdateKey of the scopes = %+v, %v", after, err)
		}
		may(here, "narrowed, here", "users:read", false)
		may(here, "narrowed to it, here", "policies:read", true)
		clk.Move(softAge)
		may(there, "narrowed, there", "users:read", false)

		end := clk.Now().Add(time.Minute).In(time.FixedZone("", 3600)).Add(789)
		after, err = here.UpdateKey(ctx, root(), k.ID, KeyChange{Name: patch.Set(" cd "), ExpiresAt: patch.Set(end)})
		if err != nil || after.Name != "cd" || !after.ExpiresAt.Equal(end.Truncate(time.Microsecond)) || after.ExpiresAt.Location() != time.UTC {
			t.Fatalf("UpdateKey of name and end = %+v, %v, want cd until %s in UTC", after, err, end)
		}
		if got, err := here.Key(ctx, root(), k.ID); err != nil || fmt.Sprint(got.Scopes, got.Name, got.ExpiresAt) != fmt.Sprint(after.Scopes, after.Name, after.ExpiresAt) {
			t.Errorf("Key = %+v, %v, want %+v", got, err, after)
		}
		clk.Move(time.Minute)
		for what, r := range map[string]*replica{"here": here, "there": there} {
			r.want("expired, "+what, Credential{APIKey: k.Key}, "401")
			r.want("its token, "+what, Credential{Bearer: g.AccessToken}, "401")
		}
		_, err = here.UpdateKey(ctx, root(), k.ID, KeyChange{ExpiresAt: patch.Clear[time.Time]()})
		wantCode(t, "UpdateKey of an expired key", err, "key_expired")
		_, err = here.RotateKey(ctx, root(), k.ID, time.Hour)
		wantCode(t, "RotateKey of an expired key", err, "key_expired")
		if _, err = here.Key(ctx, root(), k.ID); err != nil {
			t.Errorf("Key of an expired key: %v", err)
		}
		wantKeyAudit(ctx, t, here, k.ID)
	})
}

// wantKeyAudit fails unless the audit has two changes of a key: of the scopes, then of the end.
func wantKeyAudit(ctx context.Context, t *testing.T, r *replica, id string) {
	t.Helper()
	var lines []string
	err := r.Stores.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) (err error) {
		lines, err = db.All[string](ctx, tx, `SELECT changes FROM audit_events WHERE type = 'API_KEY_UPDATED' AND object_id = $1 ORDER BY seq`, id)
		return err
	})
	if err != nil || len(lines) != 2 || !strings.Contains(lines[0], "users:read") || strings.Contains(lines[0], "expires_at") || !strings.Contains(lines[1], "expires_at") {
		t.Errorf("audit of the key = %q, %v, want a change of the scopes, then one of the end", lines, err)
	}
}

// TestKeyChangeGrants: a changed key is one that the caller could have created.
func TestKeyChangeGrants(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.createUser(scope.DefaultTenant, "admin", user.RoleAdmin)
		admin := r.signedIn(scope.DefaultTenant, "admin")
		hour, twoHours := r.clock.Now().Add(time.Hour), r.clock.Now().Add(2*time.Hour)
		create := func(d KeyDraft) (Key, scope.Scope) {
			t.Helper()
			k, err := r.CreateKey(ctx, admin, d)
			errtest.Must(t, err)
			sc, _ := r.try(Credential{APIKey: k.Key})
			return k, sc
		}
		boss, bossKey := create(KeyDraft{Name: "boss", Scopes: []string{"tenants:write", "policies:read"}, ExpiresAt: &hour})
		wide, _ := create(KeyDraft{Name: "wide", Scopes: []string{"policies:write", "users:write"}, ExpiresAt: &hour})
		endless, _ := create(KeyDraft{Name: "endless", Scopes: []string{"policies:read"}})
		plain, _ := create(KeyDraft{Name: "plain", Scopes: []string{"policies:read"}, ExpiresAt: &hour})
		bound, boundKey := create(KeyDraft{Name: "bound", Scopes: []string{"tenants:write", "policies:read"}, Environment: scope.Sandbox})
		other := admin
		other.Tenant = dbtest.Second
		update := func(sc scope.Scope, id string, ch KeyChange) string {
			return code(errtest.Of(r.UpdateKey(ctx, sc, id, ch)))
		}
		past := r.clock.Now()
		scopes := func(s ...string) KeyChange { return KeyChange{Scopes: patch.Set(s)} }
		for _, c := range []struct{ what, got, want string }{
			{"no change", update(bossKey, plain.ID, KeyChange{}), "ok"},
			{"scopes that the caller does not hold", update(bossKey, plain.ID, scopes("users:read")), "403"},
			{"the caller's own scopes", update(bossKey, boss.ID, scopes("tenants:write", "policies:write")), "403"},
			{"the caller's own end", update(bossKey, boss.ID, KeyChange{ExpiresAt: patch.Set(twoHours)}), "403"},
			{"no end for the caller itself", update(bossKey, boss.ID, KeyChange{ExpiresAt: patch.Clear[time.Time]()}), "403"},
			{"an end after the caller's", update(bossKey, plain.ID, KeyChange{ExpiresAt: patch.Set(twoHours)}), "403"},
			{"no end", update(bossKey, plain.ID, KeyChange{ExpiresAt: patch.Clear[time.Time]()}), "403"},
			{"the end of a wider key", update(bossKey, wide.ID, KeyChange{ExpiresAt: patch.Set(hour)}), "403"},
			{"narrower scopes of a wider key", update(bossKey, wide.ID, scopes("policies:read")), "ok"},
			{"the scopes of an endless key", update(bossKey, endless.ID, scopes("policies:read", "tenants:read")), "403"},
			{"a key of the whole tenant, by a key of one environment", update(boundKey, plain.ID, KeyChange{Name: patch.Set("x")}), "403"},
			{"a key of the caller's environment", update(boundKey, bound.ID, KeyChange{Name: patch.Set("x")}), "ok"},
			{"a key of another tenant", update(other, plain.ID, KeyChange{Name: patch.Set("x")}), "404"},
			{"an unknown key", update(admin, "nobody", KeyChange{Name: patch.Set("x")}), "404"},
			{"no name", update(admin, plain.ID, KeyChange{Name: patch.Clear[string]()}), "422"},
			{"no scopes", update(admin, plain.ID, KeyChange{Scopes: patch.Clear[[]string]()}), "422"},
			{"an end in the past", update(admin, plain.ID, KeyChange{ExpiresAt: patch.Set(past)}), "422"},
			{"no end, by a person", update(admin, plain.ID, KeyChange{ExpiresAt: patch.Clear[time.Time]()}), "ok"},
		} {
			if c.got != c.want {
				t.Errorf("change of %s: got %s, want %s", c.what, c.got, c.want)
			}
		}
		if got, _ := r.Key(ctx, admin, plain.ID); got.ExpiresAt != nil || fmt.Sprint(got.Scopes) != "[policies:read]" {
			t.Errorf("the key after all changes = %+v, want no end and [policies:read]", got)
		}
		errtest.Must(t, errtest.Of(r.RevokeKey(ctx, admin, plain.ID)))
		if got := update(admin, plain.ID, KeyChange{Name: patch.Set("x")}); got != "404" {
			t.Errorf("change of a revoked key: got %s, want 404", got)
		}
	})
}

// TestRotationOfAChangedKey: a rotation fails if the key changes meanwhile, so that a rotated key has
// no scope that the change removed.
func TestRotationOfAChangedKey(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		k := r.createKey(scope.DefaultTenant, "policies:write", "users:read")
		draw := r.NewID
		r.NewID = func() string { // RotateKey calls it between reading the old key and writing the new one
			r.NewID = draw
			if _, err := r.UpdateKey(ctx, root(), k.ID, KeyChange{Scopes: patch.Set([]string{"policies:read"})}); err != nil {
				t.Error(err)
			}
			return draw()
		}
		if _, err := r.RotateKey(ctx, root(), k.ID, 0); !fault.Is(err, fault.Conflict) {
			t.Errorf("RotateKey of a key that changes meanwhile: got %v, want a conflict", err)
		}
		if p, err := r.Keys(ctx, root(), 0, 10); err != nil || p.Total != 1 || fmt.Sprint(p.Keys[0].Scopes) != "[policies:read]" {
			t.Errorf("keys after the conflict = %+v, %v, want one with [policies:read]", p, err)
		}
		r.want("the key", Credential{APIKey: k.Key}, "ok")
		if _, err := r.RotateKey(ctx, root(), k.ID, 0); err != nil {
			t.Errorf("RotateKey again: %v", err)
		}
	})
}

// TestEveryOffenceOfAKey: a refusal names every member that is wrong.
func TestEveryOffenceOfAKey(t *testing.T) {
	r := newSQLite(t)
	ctx, sc := context.Background(), root()
	past := r.clock.Now().Add(-time.Hour)
	k := r.createKey(scope.DefaultTenant, "policies:read")
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"create":   {errtest.Of(r.CreateKey(ctx, sc, KeyDraft{Name: "  ", Scopes: []string{"zzz", "policies:read", "x"}, ExpiresAt: &past})), "[/name /scopes/0 /scopes/2 /expires_at]"},
		"generate": {errtest.Of(r.GenerateKey(ctx, sc, scope.Sandbox, useful, PortalDraft{Scopes: []string{"zzz"}, ExpiresAt: &past})), "[/scopes/0 /expires_at]"},
		"change":   {errtest.Of(r.UpdateKey(ctx, sc, k.ID, KeyChange{Name: patch.Set(" "), Scopes: patch.Set([]string{}), ExpiresAt: patch.Set(past)})), "[/name /scopes /expires_at]"},
	} {
		var at []string
		if f, ok := errors.AsType[*fault.Error](c.err); ok {
			for _, d := range f.Details {
				at = append(at, d.Pointer)
			}
		}
		if fmt.Sprint(at) != c.want {
			t.Errorf("%s: the error names %v, want %s: %v", what, at, c.want, c.err)
		}
	}
}
