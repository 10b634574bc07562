package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// useful are permissions that a key of one environment can use.
var useful = []scope.Permission{"decisions:read", "policies:read", "policies:write", "resources:read", "resources:write", "simulator:read"}

func TestKeyFormat(t *testing.T) {
	for env, prefix := range map[scope.Env]string{scope.Sandbox: "gh_sandbox_", scope.Production: "gh_production_", scope.AnyEnv: "gh_tenant_"} {
		rapid.Check(t, func(t *rapid.T) {
			raw := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "raw")
			key, err := newKey(bytes.NewReader(raw), kindOf(Key{Environment: env}))
			if err != nil || !strings.HasPrefix(key, prefix) || len(key) != len(prefix)+43+1+6 || !wellFormed(key) || !looksLikeKey(key) {
				t.Fatalf("key %q, %v", key, err)
			}
			if h := hint(key); !strings.HasPrefix(h, prefix) || strings.Contains(key, h) || len(h) > len(prefix)+8 {
				t.Fatalf("hint %q of %q", h, key)
			}
			at := rapid.IntRange(0, len(key)-1).Draw(t, "at")
			other := rapid.Byte().Draw(t, "other")
			for _, bad := range []string{key[:at], key + string(rune(other)), key[:at] + key[at+1:], key[:at] + "\x00" + key[at+1:]} {
				if bad != key && wellFormed(bad) {
					t.Fatalf("%q is well-formed", bad)
				}
			}
			if changed := key[:at] + string([]byte{other}) + key[at+1:]; changed != key && wellFormed(changed) && at > len(prefix) {
				t.Fatalf("%q is well-formed: one changed byte must not pass a CRC", changed)
			}
		})
	}
	if _, err := newKey(bytes.NewReader(make([]byte, 31)), "tenant"); err == nil {
		t.Error("a key of 31 bytes")
	}
	for _, bad := range []string{"", "gh_", "gh_tenant", "gh_tenant_", "gh_other_" + strings.Repeat("0", 43) + "_000000", "GH_tenant_"} {
		if wellFormed(bad) {
			t.Errorf("%q is well-formed", bad)
		}
	}
}

// TestKeyAbuse: keys that were altered, revoked or cut are refused.
func TestKeyAbuse(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		k := r.key(scope.DefaultTenant, "policies:read")
		r.want("the key", Credential{APIKey: k.Key}, "ok")
		r.want("the key as bearer", Credential{Bearer: k.Key}, "ok")
		fresh, err := newKey(rand.Reader, "tenant")
		if err != nil {
			t.Fatal(err)
		}
		abuse := map[string]string{
			"short": k.Key[:len(k.Key)-1], "long": k.Key + "0", "upper": strings.ToUpper(k.Key), "lower": strings.ToLower(k.Key),
			"NUL": k.Key + "\x00", "space": k.Key + " ", "other kind": strings.Replace(k.Key, "gh_tenant", "gh_production", 1),
			"unknown": fresh, "digest": k.Digest, "id": k.ID, "hint": k.Hint, "empty": "", "huge": "gh_tenant_" + strings.Repeat("x", 1<<20),
			"bouncer's": strings.Replace(k.Key, "gh_tenant", "gh_bouncer", 1),
		}
		for what, text := range abuse {
			r.want(what, Credential{APIKey: text}, "401")
			r.want(what+" as bearer", Credential{Bearer: text}, "401")
		}
		r.want("two credentials", Credential{APIKey: k.Key, Bearer: k.Key}, "400")
		store, _ := r.Stores.Tenant(context.Background(), scope.DefaultTenant)
		for _, d := range []*db.DB{store, r.Stores.System()} {
			_ = d.Read(context.Background(), func(tx *db.Tx) error {
				n, err := db.One[int64](context.Background(), tx, `SELECT count(*) FROM credentials WHERE digest = $1 OR ref LIKE $2`, k.Key, "%"+k.Key[10:53]+"%")
				if err == nil && n != 0 {
					t.Error("the key is kept in clear")
				}
				return nil
			})
		}
	})
}

func TestLifeOfAKey(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		sc := root()
		end := r.clock.Now().Add(time.Hour)
		k, err := r.CreateKey(ctx, sc, KeyDraft{Name: " ci ", Scopes: []string{"policies:write", "decisions:read"}, ExpiresAt: &end})
		if err != nil || k.Name != "ci" || fmt.Sprint(k.Scopes) != "[decisions:read policies:write]" {
			t.Fatalf("created %+v, %v", k, err)
		}
		got, who, err := r.Authenticate(ctx, Credential{APIKey: k.Key, IP: "192.0.2.1", RequestID: "r1"})
		if err != nil || got.Tenant != scope.DefaultTenant || got.Platform || got.EnvBound || got.Actor.Kind != scope.Key || got.Actor.ID != k.ID ||
			got.Actor.IP != "192.0.2.1" || got.RequestID != "r1" || !got.Permissions.Has("policies:read") || got.Permissions.Has("resources:read") {
			t.Errorf("scope %+v, %v", got, err)
		}
		if who.KeyID != k.ID || !who.RateLimited || who.Plan != "standard" {
			t.Errorf("principal %+v", who)
		}
		if err := r.flush(ctx); err != nil {
			t.Fatal(err)
		}
		p, err := r.Keys(ctx, sc, 0, 10)
		if err != nil || p.Total != 1 || p.Keys[0].Key != "" || p.Keys[0].LastUsedAt == nil || !p.Keys[0].LastUsedAt.Equal(r.clock.Now()) {
			t.Errorf("listed %+v, %v", p, err)
		}
		other := sc
		other.Tenant = dbtest.Second
		if _, err := r.Key(ctx, other, k.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("another tenant sees the key: %v", err)
		}
		fresh, err := r.RotateKey(ctx, sc, k.ID, time.Minute)
		if err != nil || fresh.ID == k.ID || !fresh.ExpiresAt.Equal(end) {
			t.Fatalf("rotated %+v, %v", fresh, err)
		}
		r.want("old within grace", Credential{APIKey: k.Key}, "ok")
		r.want("new", Credential{APIKey: fresh.Key}, "ok")
		r.clock.pass(time.Minute)
		r.want("old after grace", Credential{APIKey: k.Key}, "401")
		last, err := r.RotateKey(ctx, sc, fresh.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.want("old without grace", Credential{APIKey: fresh.Key}, "401")
		if _, who, err := r.Authenticate(ctx, Credential{APIKey: last.Key}); err != nil || who.KeyID != k.ID {
			t.Errorf("after two rotations the requests are counted for %q, not for the first key %q: %v", who.KeyID, k.ID, err)
		}
		as, _ := r.is(Credential{APIKey: last.Key})
		token, err := r.Portal(ctx, as, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, who, err := r.Authenticate(ctx, Credential{Bearer: token.AccessToken}); err != nil || who.KeyID != k.ID {
			t.Errorf("the requests of a rotated key's token are counted for %q: %v", who.KeyID, err)
		}
		if _, err := r.RevokeKey(ctx, sc, last.ID); err != nil {
			t.Fatal(err)
		}
		r.want("revoked", Credential{APIKey: last.Key}, "401")
		if _, err := r.RevokeKey(ctx, sc, last.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("revoked twice: %v", err)
		}
		short := r.clock.Now().Add(time.Second)
		k, _ = r.CreateKey(ctx, sc, KeyDraft{Name: "short", Scopes: []string{"policies:read"}, ExpiresAt: &short})
		r.want("before its end", Credential{APIKey: k.Key}, "ok")
		r.clock.pass(time.Second)
		r.want("at its end", Credential{APIKey: k.Key}, "401")
	})
}

// TestKeyGrants: nobody can give a key scopes that they do not hold, or an environment that is not
// theirs.
func TestKeyGrants(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.person(scope.DefaultTenant, "author", user.RolePolicyAuthor)
		r.person(scope.DefaultTenant, "admin", user.RoleAdmin)
		author, admin := r.signedIn(scope.DefaultTenant, "author"), r.signedIn(scope.DefaultTenant, "admin")
		soon, late := r.clock.Now().Add(time.Hour), r.clock.Now().Add(2*time.Hour)
		boss, _ := r.CreateKey(ctx, admin, KeyDraft{Name: "boss", Scopes: []string{"tenants:write", "policies:write"}, ExpiresAt: &soon})
		bossKey, _, _ := r.Authenticate(ctx, Credential{APIKey: boss.Key})
		mine, err := r.GenerateKey(ctx, author, scope.Sandbox, useful, PortalDraft{})
		if err != nil || mine.Environment != scope.Sandbox || mine.Owner != author.Actor.ID || fmt.Sprint(mine.Scopes) != "[policies:read resources:read]" {
			t.Fatalf("generated %+v, %v", mine, err)
		}
		mineKey, _, err := r.Authenticate(ctx, Credential{APIKey: mine.Key})
		if err != nil || !mineKey.EnvBound || mineKey.Env != scope.Sandbox {
			t.Errorf("bound scope %+v, %v", mineKey, err)
		}
		r.want("sandbox key, asked for sandbox", Credential{APIKey: mine.Key, EnvHint: scope.Sandbox}, "ok")
		r.want("sandbox key, asked for production", Credential{APIKey: mine.Key, EnvHint: scope.Production}, "403")
		r.want("tenant key, asked for production", Credential{APIKey: boss.Key, EnvHint: scope.Production}, "ok")
		gen := func(sc scope.Scope, env scope.Env, d PortalDraft) error {
			_, err := r.GenerateKey(ctx, sc, env, useful, d)
			return err
		}
		mk := func(sc scope.Scope, d KeyDraft) error { _, err := r.CreateKey(ctx, sc, d); return err }
		past := r.clock.Now()
		bound := bossKey
		bound.Env, bound.EnvBound = scope.Sandbox, true
		for what, c := range map[string]struct {
			err  error
			want string
		}{
			"wider scope":             {gen(author, scope.Sandbox, PortalDraft{Scopes: []string{"users:read"}}), "403"},
			"wider verb":              {gen(author, scope.Sandbox, PortalDraft{Scopes: []string{"resources:write"}}), "403"},
			"star":                    {gen(author, scope.Sandbox, PortalDraft{Scopes: []string{"*"}}), "422"},
			"unknown":                 {mk(admin, KeyDraft{Name: "x", Scopes: []string{"policies:admin"}}), "422"},
			"no scopes":               {mk(admin, KeyDraft{Name: "x"}), "422"},
			"no name":                 {mk(admin, KeyDraft{Name: " ", Scopes: []string{"policies:read"}}), "422"},
			"in the past":             {mk(admin, KeyDraft{Name: "x", Scopes: []string{"policies:read"}, ExpiresAt: &past}), "422"},
			"unknown environment":     {gen(author, "staging", PortalDraft{}), "404"},
			"a key makes another":     {gen(mineKey, scope.Sandbox, PortalDraft{}), "403"},
			"a key makes a later one": {mk(bossKey, KeyDraft{Name: "x", Scopes: []string{"policies:read"}, ExpiresAt: &late}), "403"},
			"a key makes an endless":  {mk(bossKey, KeyDraft{Name: "x", Scopes: []string{"policies:read"}}), "403"},
			"a key makes a wider":     {mk(bossKey, KeyDraft{Name: "x", Scopes: []string{"users:read"}, ExpiresAt: &soon}), "403"},
			"bound makes unbound":     {mk(bound, KeyDraft{Name: "x", Scopes: []string{"policies:read"}, ExpiresAt: &soon}), "403"},
			"bound makes the other":   {gen(bound, scope.Production, PortalDraft{Scopes: []string{"policies:read"}, ExpiresAt: &soon}), "403"},
			"a key makes a like one":  {mk(bossKey, KeyDraft{Name: "x", Scopes: []string{"policies:write"}, ExpiresAt: &soon}), "ok"},
		} {
			if got := code(c.err); got != c.want {
				t.Errorf("%s: %s, want %s", what, got, c.want)
			}
		}
		if _, err := r.RotateKey(ctx, author, boss.ID, 0); !fault.Is(err, fault.Forbidden) {
			t.Errorf("whoever may less rotates the key: %v", err)
		}
		owned(ctx, t, r, mine)
	})
}

// owned checks a person's key through changes of the person.
func owned(ctx context.Context, t *testing.T, r *replica, k Key) {
	t.Helper()
	if _, err := r.Users.SetRoles(ctx, root(), k.Owner, user.RolesChange{Roles: []string{user.RoleResourceManager}}); err != nil {
		t.Fatal(err)
	}
	sc, got := r.is(Credential{APIKey: k.Key})
	if got != "ok" || sc.Permissions.Has("policies:read") || !sc.Permissions.Has("resources:read") || sc.Permissions.Has("resources:write") {
		t.Errorf("the key does more than its owner or itself: %v", sc.Permissions)
	}
	for status, want := range map[string]string{user.Disabled: "401", user.Active: "ok"} {
		if _, err := r.Users.Update(ctx, root(), k.Owner, user.Change{Status: patch.Set(status)}); err != nil {
			t.Fatal(err)
		}
		r.want("owner "+status, Credential{APIKey: k.Key}, want)
	}
	if _, err := r.Users.Delete(ctx, root(), k.Owner); err != nil {
		t.Fatal(err)
	}
	r.want("owner gone", Credential{APIKey: k.Key}, "401")
	if _, err := r.Key(ctx, root(), k.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("the key of somebody gone is still listed: %v", err)
	}
}
