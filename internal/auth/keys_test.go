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
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// useful are permissions that a key of one environment can use.
var useful = []scope.Permission{"decisions:read", "policies:read", "policies:write", "resources:read", "resources:write", "simulator:read"}

// TestKeyFormat: a new key has its prefix, length and checksum, and a changed key is not well-formed.
func TestKeyFormat(t *testing.T) {
	for env, prefix := range map[scope.Env]string{scope.Sandbox: "gh_sandbox_", scope.Production: "gh_production_", scope.AnyEnv: "gh_tenant_"} {
		rapid.Check(t, func(t *rapid.T) {
			raw := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "raw")
			key, err := newKey(bytes.NewReader(raw), kindOf(Key{Environment: env}))
			if err != nil || !strings.HasPrefix(key, prefix) || len(key) != len(prefix)+43+1+6 || !wellFormed(key) || !looksLikeKey(key) {
				t.Fatalf("newKey = %q, %v, want a well-formed key with the prefix %s", key, err, prefix)
			}
			if h := hint(key); !strings.HasPrefix(h, prefix) || strings.Contains(key, h) || len(h) > len(prefix)+8 {
				t.Fatalf("hint(%q) = %q, want the prefix and at most 8 characters, no part of the key", key, h)
			}
			at := rapid.IntRange(0, len(key)-1).Draw(t, "at")
			other := rapid.Byte().Draw(t, "other")
			for _, bad := range []string{key[:at], key + string(rune(other)), key[:at] + key[at+1:], key[:at] + "\x00" + key[at+1:]} {
				if bad != key && wellFormed(bad) {
					t.Fatalf("wellFormed(%q) = true, want false", bad)
				}
			}
			if changed := key[:at] + string([]byte{other}) + key[at+1:]; changed != key && wellFormed(changed) && at > len(prefix) {
				t.Fatalf("wellFormed(%q) = true, want false: a CRC finds one changed byte", changed)
			}
		})
	}
	if _, err := newKey(bytes.NewReader(make([]byte, 31)), "tenant"); err == nil {
		t.Error("newKey with 31 random bytes succeeds, want an error")
	}
	for _, bad := range []string{"", "gh_", "gh_tenant", "gh_tenant_", "gh_other_" + strings.Repeat("0", 43) + "_000000", "GH_tenant_"} {
		if wellFormed(bad) {
			t.Errorf("wellFormed(%q) = true, want false", bad)
		}
	}
}

// TestKeyAbuse: keys that were altered, cut or invented are refused, and the store does not contain a
// key in clear.
func TestKeyAbuse(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		k := r.createKey(scope.DefaultTenant, "policies:read")
		r.want("the key", Credential{APIKey: k.Key}, "ok")
		r.want("the key as bearer", Credential{Bearer: k.Key}, "ok")
		fresh, err := newKey(rand.Reader, "tenant")
		errtest.Must(t, err)
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
		store, err := r.Stores.Tenant(context.Background(), scope.DefaultTenant)
		errtest.Must(t, err)
		for sql, d := range map[string]*db.DB{
			`SELECT digest || ' ' || ref FROM credentials`:                           r.Stores.System(),
			`SELECT id || ' ' || name || ' ' || digest || ' ' || hint FROM api_keys`: store,
		} {
			errtest.Must(t, d.Read(context.Background(), func(tx *db.Tx) error {
				rows, err := db.All[string](context.Background(), tx, sql)
				if text := strings.Join(rows, "\n"); !strings.Contains(text, k.Digest) || strings.Contains(text, k.Key[10:53]) {
					t.Errorf("%s = %q, want the digest of the key and not its text", sql, text)
				}
				return err
			}))
		}
	})
}

// TestLifeOfAKey follows a key from its creation over two rotations to its revocation.
func TestLifeOfAKey(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		sc := root()
		end := r.clock.Now().Add(time.Hour)
		k, err := r.CreateKey(ctx, sc, KeyDraft{Name: " ci ", Scopes: []string{"policies:write", "decisions:read"}, ExpiresAt: &end})
		if err != nil || k.Name != "ci" || fmt.Sprint(k.Scopes) != "[decisions:read policies:write]" {
			t.Fatalf("CreateKey = %+v, %v", k, err)
		}
		got, who, err := r.Authenticate(ctx, Credential{APIKey: k.Key, IP: "192.0.2.1", RequestID: "r1"})
		if err != nil || got.Tenant != scope.DefaultTenant || got.Platform || got.EnvBound || got.Actor.Kind != scope.Key || got.Actor.ID != k.ID ||
			got.Actor.IP != "192.0.2.1" || got.RequestID != "r1" || !got.Permissions.Has("policies:read") || got.Permissions.Has("resources:read") {
			t.Errorf("Authenticate with the key = %+v, %v", got, err)
		}
		if who.KeyID != k.ID || !who.RateLimited || who.Plan != "standard" {
			t.Errorf("principal of the key = %+v", who)
		}
		errtest.Must(t, r.flush(ctx))
		p, err := r.Keys(ctx, sc, 0, 10)
		if err != nil || p.Total != 1 || p.Keys[0].Key != "" || p.Keys[0].LastUsedAt == nil || !p.Keys[0].LastUsedAt.Equal(r.clock.Now()) {
			t.Errorf("Keys = %+v, %v, want one key without its text, used now", p, err)
		}
		other := sc
		other.Tenant = dbtest.Second
		if _, err := r.Key(ctx, other, k.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("Key from another tenant: got %v, want not found", err)
		}
		fresh, err := r.RotateKey(ctx, sc, k.ID, time.Minute)
		if err != nil || fresh.ID == k.ID || !fresh.ExpiresAt.Equal(end) {
			t.Fatalf("RotateKey = %+v, %v, want a new key with the end %s", fresh, err, end)
		}
		r.want("old within grace", Credential{APIKey: k.Key}, "ok")
		r.want("new", Credential{APIKey: fresh.Key}, "ok")
		r.clock.Move(time.Minute)
		r.want("old after grace", Credential{APIKey: k.Key}, "401")
		last, err := r.RotateKey(ctx, sc, fresh.ID, 0)
		errtest.Must(t, err)
		r.want("old without grace", Credential{APIKey: fresh.Key}, "401")
		if _, who, err := r.Authenticate(ctx, Credential{APIKey: last.Key}); err != nil || who.KeyID != k.ID {
			t.Errorf("after two rotations the requests count for key %q, %v, want %q", who.KeyID, err, k.ID)
		}
		as, _ := r.try(Credential{APIKey: last.Key})
		token, err := r.IssuePortalToken(ctx, as, nil)
		errtest.Must(t, err)
		if _, who, err := r.Authenticate(ctx, Credential{Bearer: token.AccessToken}); err != nil || who.KeyID != k.ID {
			t.Errorf("requests of a rotated key's token count for key %q, %v, want %q", who.KeyID, err, k.ID)
		}
		errtest.Must(t, errtest.Of(r.RevokeKey(ctx, sc, last.ID)))
		r.want("revoked", Credential{APIKey: last.Key}, "401")
		if _, err := r.RevokeKey(ctx, sc, last.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("RevokeKey of a revoked key: got %v, want not found", err)
		}
		short := r.clock.Now().Add(time.Second)
		k, _ = r.CreateKey(ctx, sc, KeyDraft{Name: "short", Scopes: []string{"policies:read"}, ExpiresAt: &short})
		r.want("before its end", Credential{APIKey: k.Key}, "ok")
		r.clock.Move(time.Second)
		r.want("at its end", Credential{APIKey: k.Key}, "401")
	})
}

// TestKeyGrants: nobody can give a key scopes that they do not hold, a later end than their own, or an
// environment that is not theirs.
func TestKeyGrants(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.createUser(scope.DefaultTenant, "author", user.RolePolicyAuthor)
		r.createUser(scope.DefaultTenant, "admin", user.RoleAdmin)
		author, admin := r.signedIn(scope.DefaultTenant, "author"), r.signedIn(scope.DefaultTenant, "admin")
		hour, twoHours := r.clock.Now().Add(time.Hour), r.clock.Now().Add(2*time.Hour)
		boss, _ := r.CreateKey(ctx, admin, KeyDraft{Name: "boss", Scopes: []string{"tenants:write", "policies:write"}, ExpiresAt: &hour})
		bossKey, _, _ := r.Authenticate(ctx, Credential{APIKey: boss.Key})
		mine, err := r.GenerateKey(ctx, author, scope.Sandbox, useful, PortalDraft{})
		if err != nil || mine.Environment != scope.Sandbox || mine.Owner != author.Actor.ID || fmt.Sprint(mine.Scopes) != "[policies:read resources:read]" {
			t.Fatalf("GenerateKey = %+v, %v", mine, err)
		}
		mineKey, _, err := r.Authenticate(ctx, Credential{APIKey: mine.Key})
		if err != nil || !mineKey.EnvBound || mineKey.Env != scope.Sandbox {
			t.Errorf("scope of a sandbox key = %+v, %v", mineKey, err)
		}
		r.want("sandbox key, asked for sandbox", Credential{APIKey: mine.Key, EnvHint: scope.Sandbox}, "ok")
		r.want("sandbox key, asked for production", Credential{APIKey: mine.Key, EnvHint: scope.Production}, "403")
		r.want("tenant key, asked for production", Credential{APIKey: boss.Key, EnvHint: scope.Production}, "ok")
		generate := func(sc scope.Scope, env scope.Env, d PortalDraft) error {
			return errtest.Of(r.GenerateKey(ctx, sc, env, useful, d))
		}
		create := func(sc scope.Scope, d KeyDraft) error { return errtest.Of(r.CreateKey(ctx, sc, d)) }
		past := r.clock.Now()
		bound := bossKey
		bound.Env, bound.EnvBound = scope.Sandbox, true
		for what, c := range map[string]struct {
			err  error
			want string
		}{
			"wider scope":                        {generate(author, scope.Sandbox, PortalDraft{Scopes: []string{"users:read"}}), "403"},
			"wider verb":                         {generate(author, scope.Sandbox, PortalDraft{Scopes: []string{"resources:write"}}), "403"},
			"star":                               {generate(author, scope.Sandbox, PortalDraft{Scopes: []string{"*"}}), "422"},
			"unknown":                            {create(admin, KeyDraft{Name: "x", Scopes: []string{"policies:admin"}}), "422"},
			"no scopes":                          {create(admin, KeyDraft{Name: "x"}), "422"},
			"no name":                            {create(admin, KeyDraft{Name: " ", Scopes: []string{"policies:read"}}), "422"},
			"in the past":                        {create(admin, KeyDraft{Name: "x", Scopes: []string{"policies:read"}, ExpiresAt: &past}), "422"},
			"unknown environment":                {generate(author, "staging", PortalDraft{}), "404"},
			"a key makes a person's key":         {generate(mineKey, scope.Sandbox, PortalDraft{}), "403"},
			"a key makes a key with a later end": {create(bossKey, KeyDraft{Name: "x", Scopes: []string{"policies:read"}, ExpiresAt: &twoHours}), "403"},
			"a key makes an endless key":         {create(bossKey, KeyDraft{Name: "x", Scopes: []string{"policies:read"}}), "403"},
			"a key makes a wider key":            {create(bossKey, KeyDraft{Name: "x", Scopes: []string{"users:read"}, ExpiresAt: &hour}), "403"},
			"a bound key makes an unbound one":   {create(bound, KeyDraft{Name: "x", Scopes: []string{"policies:read"}, ExpiresAt: &hour}), "403"},
			"a bound key makes one of another environment": {generate(bound, scope.Production, PortalDraft{Scopes: []string{"policies:read"}, ExpiresAt: &hour}), "403"},
			"a key makes a key like itself":                {create(bossKey, KeyDraft{Name: "x", Scopes: []string{"policies:write"}, ExpiresAt: &hour}), "ok"},
		} {
			if got := code(c.err); got != c.want {
				t.Errorf("%s: got %s, want %s", what, got, c.want)
			}
		}
		if _, err := r.RotateKey(ctx, author, boss.ID, 0); !fault.Is(err, fault.Forbidden) {
			t.Errorf("RotateKey by a person with fewer permissions: got %v, want forbidden", err)
		}
		checkOwnedKey(ctx, t, r, mine)
	})
}

// checkOwnedKey checks that a person's key never does more than the person, and ends with them.
func checkOwnedKey(ctx context.Context, t *testing.T, r *replica, k Key) {
	t.Helper()
	errtest.Must(t, errtest.Of(r.Users.SetRoles(ctx, root(), k.Owner, user.RolesChange{Roles: []string{user.RoleResourceManager}})))
	sc, got := r.try(Credential{APIKey: k.Key})
	if got != "ok" || sc.Permissions.Has("policies:read") || !sc.Permissions.Has("resources:read") || sc.Permissions.Has("resources:write") {
		t.Errorf("the key after its owner's roles changed: got %s with %v, want only resources:read", got, sc.Permissions)
	}
	for _, status := range []string{user.Disabled, user.Active} {
		errtest.Must(t, errtest.Of(r.Users.Update(ctx, root(), k.Owner, user.Change{Status: patch.Set(status)})))
		r.want("owner "+status, Credential{APIKey: k.Key}, map[string]string{user.Disabled: "401", user.Active: "ok"}[status])
	}
	errtest.Must(t, errtest.Of(r.Users.Delete(ctx, root(), k.Owner)))
	r.want("owner deleted", Credential{APIKey: k.Key}, "401")
	if _, err := r.Key(ctx, root(), k.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("Key of a deleted owner: got %v, want not found", err)
	}
}
