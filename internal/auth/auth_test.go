package auth

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestTenantOfARequest: a credential is valid only in its own tenant, whatever tenant the request
// names. Only a platform administrator can work in another tenant.
func TestTenantOfARequest(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		r.createUser(scope.DefaultTenant, "root", user.RolePlatformAdmin)
		r.createUser(scope.DefaultTenant, "admin", user.RoleAdmin)
		r.createUser(dbtest.Second, "admin", user.RoleAdmin, user.RolePlatformAdmin)
		platform, plain, other := r.signIn(scope.DefaultTenant, "root"), r.signIn(scope.DefaultTenant, "admin"), r.signIn(dbtest.Second, "admin")
		k := r.createKey(dbtest.Second, "policies:read")
		for what, c := range map[string]struct {
			c          Credential
			want, code string
		}{
			"own tenant by name":              {Credential{Bearer: other, TenantHint: dbtest.Second}, "ok", ""},
			"foreign":                         {Credential{Bearer: other, TenantHint: scope.DefaultTenant}, "403", "tenant_access_denied"},
			"foreign to an admin of default":  {Credential{Bearer: plain, TenantHint: dbtest.Second}, "403", "tenant_access_denied"},
			"unknown":                         {Credential{Bearer: other, TenantHint: "nowhere"}, "403", "tenant_access_denied"},
			"key, foreign":                    {Credential{APIKey: k.Key, TenantHint: scope.DefaultTenant}, "403", "tenant_access_denied"},
			"key, unknown":                    {Credential{APIKey: k.Key, TenantHint: "nowhere"}, "403", "tenant_access_denied"},
			"bad credential, foreign":         {Credential{APIKey: k.Key + "x", TenantHint: scope.DefaultTenant}, "401", "invalid_credentials"},
			"bad credential, unknown":         {Credential{APIKey: k.Key + "x", TenantHint: "nowhere"}, "401", "invalid_credentials"},
			"platform administrator, foreign": {Credential{Bearer: platform, TenantHint: dbtest.Second}, "ok", ""},
			"platform administrator, unknown": {Credential{Bearer: platform, TenantHint: "nowhere"}, "404", "tenant_not_found"},
		} {
			sc, who, err := r.Authenticate(context.Background(), c.c)
			if key := c.c.APIKey == k.Key; key != (who.KeyID == k.ID && who.RateLimited && who.Tenant == dbtest.Second) {
				t.Errorf("%s: principal %+v, want the key's: %t", what, who, key)
			}
			f, ok := errors.AsType[*fault.Error](err)
			if got := code(err); got != c.want || (ok && f.Code != c.code) {
				t.Errorf("%s: got %s (%v), want %s %s", what, got, err, c.want, c.code)
			}
			if err == nil && c.c.TenantHint != sc.Tenant {
				t.Errorf("%s: works in tenant %s, want %s", what, sc.Tenant, c.c.TenantHint)
			}
			if f != nil && c.want != "401" && f.Fields["tenant_id"] != string(c.c.TenantHint) {
				t.Errorf("%s: error names %v, want tenant %s", what, f.Fields, c.c.TenantHint)
			}
		}
	})
}

// TestTenantStops: the credentials of a suspended or deleted tenant are refused at once.
func TestTenantStops(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		made, err := r.Tenants.Create(ctx, root(), tenant.Draft{Name: "Acme"})
		errtest.Must(t, err)
		r.createUser(made.ID, "alice", user.RoleAdmin)
		jwt, k := r.signIn(made.ID, "alice"), r.createKey(made.ID, "policies:read")
		all := func(what, want string) {
			t.Helper()
			r.want("token, "+what, Credential{Bearer: jwt}, want)
			r.want("key, "+what, Credential{APIKey: k.Key}, want)
			_, err := r.Login(ctx, anonymous(made.ID), "alice", password)
			if (err == nil) != (want == "ok") {
				t.Errorf("login, %s: got %v, want %s", what, err, want)
			}
		}
		all("active", "ok")
		errtest.Must(t, errtest.Of(r.Tenants.Update(ctx, root(), made.ID, tenant.Change{Status: patch.Set(tenant.Suspended)})))
		all("suspended", "403")
		errtest.Must(t, errtest.Of(r.Tenants.Update(ctx, root(), made.ID, tenant.Change{Status: patch.Set(tenant.Active), PlanType: patch.Set("pro")})))
		all("active again", "ok")
		if _, who, _ := r.Authenticate(ctx, Credential{APIKey: k.Key}); who.Plan != "pro" {
			t.Errorf("plan of the key = %q, want pro", who.Plan)
		}
		errtest.Must(t, errtest.Of(r.Tenants.Delete(ctx, root(), made.ID, false)))
		all("deleted", "401")
		if _, err := r.InTenant(ctx, root(), made.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("work in a deleted tenant: got %v, want not found", err)
		}
		errtest.Must(t, errtest.Of(r.Tenants.Delete(ctx, root(), made.ID, true)))
		all("purged", "401")
	})
}

// TestRevocation: a revoked credential ends at once on this replica, and within five seconds on the
// others. On SQLite the other replica gets no notifications, as if they were lost, so it polls.
func TestRevocation(t *testing.T) {
	eachPair(t, dbtest.Backends(), func(t *testing.T, here, there *replica) {
		ctx := context.Background()
		for what, revoke := range map[string]func(u user.User, tok string, k Key) error{
			"logout": func(_ user.User, tok string, k Key) error {
				sc, _, _ := here.Authenticate(ctx, Credential{Bearer: tok})
				_, err := here.RevokeKey(ctx, root(), k.ID)
				return errors.Join(err, signOut(here, sc))
			},
			"password": func(u user.User, _ string, k Key) error {
				_, err := here.RotateKey(ctx, root(), k.ID, 0)
				return errors.Join(err, errtest.Of(here.Users.Update(ctx, root(), u.ID, user.Change{Password: patch.Set("a new password")})))
			},
			"roles": func(u user.User, _ string, k Key) error {
				_, err := here.RevokeKey(ctx, root(), k.ID)
				return errors.Join(err, errtest.Of(here.Users.SetRoles(ctx, root(), u.ID, user.RolesChange{Roles: []string{}})))
			},
			"disable": func(u user.User, _ string, _ Key) error {
				return errtest.Of(here.Users.Update(ctx, root(), u.ID, user.Change{Status: patch.Set(user.Disabled)}))
			},
			"delete": func(u user.User, _ string, _ Key) error { return errtest.Of(here.Users.Delete(ctx, root(), u.ID)) },
		} {
			u := here.createUser(scope.DefaultTenant, what, user.RolePolicyAuthor)
			tok := here.signIn(scope.DefaultTenant, what)
			sc, _ := here.try(Credential{Bearer: tok})
			k, err := here.GenerateKey(ctx, sc, scope.Production, useful, PortalDraft{})
			errtest.Must(t, err)
			for _, r := range []*replica{here, there} {
				r.want(what+": token", Credential{Bearer: tok}, "ok")
				r.want(what+": key", Credential{APIKey: k.Key}, "ok")
			}
			if err := revoke(u, tok, k); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			here.want(what+": token, here", Credential{Bearer: tok}, "401")
			here.want(what+": key, here", Credential{APIKey: k.Key}, "401")
			here.clock.Move(softAge)
			there.want(what+": token, there", Credential{Bearer: tok}, "401")
			there.want(what+": key, there", Credential{APIKey: k.Key}, "401")
		}
	})
}

// TestStoreDown: cached credentials stay valid for a while if the store does not answer.
func TestStoreDown(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	r := newReplica(t, c, newClock())
	k, unseen := r.createKey(scope.DefaultTenant, "policies:read"), r.createKey(scope.DefaultTenant, "policies:read")
	r.want("up", Credential{APIKey: k.Key}, "ok")
	errtest.Must(t, c.Close())
	for range 5 {
		r.clock.Move(hardAge)
		r.want("down", Credential{APIKey: k.Key}, "ok")
	}
	if _, got := r.try(Credential{APIKey: unseen.Key}); got == "ok" || got == "401" {
		t.Errorf("an unknown key while the store is down: got %s, want an error that is no refusal", got)
	}
	r.clock.Move(r.Blind)
	for range 3 {
		if _, got := r.try(Credential{APIKey: k.Key}); got == "ok" || got == "401" {
			t.Errorf("a cached key when the store is down for longer than Blind: got %s, want an error that is no refusal", got)
		}
	}
}

// TestStoreDownAtOnce: with a negative Blind, cached credentials are refused when the store does
// not answer.
func TestStoreDownAtOnce(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	r := newReplica(t, c, newClock())
	r.tenantCache.cfg.Blind = -1
	k := r.createKey(scope.DefaultTenant, "policies:read")
	r.want("up", Credential{APIKey: k.Key}, "ok")
	errtest.Must(t, c.Close())
	r.clock.Move(hardAge)
	if _, got := r.try(Credential{APIKey: k.Key}); got == "ok" || got == "401" {
		t.Errorf("a cached key while the store is down: got %s, want an error that is no refusal", got)
	}
}

// TestBouncersToken: a bouncer's token works in its own environment only, without permissions, and
// cannot be exchanged.
func TestBouncersToken(t *testing.T) {
	r := newSQLite(t)
	ctx := context.Background()
	text, err := secret.NewToken(rand.Reader, "gh_bouncer")
	errtest.Must(t, err)
	err = r.Stores.System().Write(ctx, func(tx *db.Tx) error {
		return putCredential(ctx, tx, secret.DigestOf(text), dbtest.Second, credentialBouncer, secret.DigestOf(text))
	})
	errtest.Must(t, err)
	r.want("without bouncers", Credential{Bearer: text}, "401")
	r.Bouncer = func(_ context.Context, _ *db.Tx, digest string) (BouncerIdentity, error) {
		if digest != secret.DigestOf(text) {
			return BouncerIdentity{}, fault.NotFoundf("no such bouncer")
		}
		return BouncerIdentity{ID: "7", Name: "edge", Env: scope.Sandbox}, nil
	}
	sc, who, err := r.Authenticate(ctx, Credential{Bearer: text})
	if err != nil || sc.Tenant != dbtest.Second || sc.Actor.Kind != scope.Bouncer || sc.Actor.ID != "7" || !sc.EnvBound || who.RateLimited || len(sc.Permissions.List) != 0 || sc.Permissions.All {
		t.Errorf("Authenticate of bouncer 7 = %+v, %+v, %v", sc, who, err)
	}
	r.want("the other environment", Credential{Bearer: text, EnvHint: scope.Production}, "403")
	r.BouncerTimes = func(_ context.Context, _ *db.Tx, id string) (made, changed time.Time, err error) {
		if id != "7" {
			return made, changed, fault.NotFoundf("no such bouncer")
		}
		return time.Unix(1e9, 0), time.Unix(2e9, 0), nil
	}
	if me, err := r.Me(ctx, sc); err != nil || me.CreatedAt.Unix() != 1e9 || me.UpdatedAt.Unix() != 2e9 || me.Permissions == nil {
		t.Errorf("Me of bouncer 7 = %+v, %v, want its two times and no permissions", me, err)
	}
	if _, err := r.IssuePortalToken(ctx, sc, nil); !fault.Is(err, fault.Forbidden) {
		t.Errorf("Portal for a bouncer: got %v, want forbidden", err)
	}
}

// TestRun: Run stores the last use of credentials when it ends.
func TestRun(t *testing.T) {
	r := newSQLite(t)
	k := r.createKey(scope.DefaultTenant, "policies:read")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, func(err error) { t.Error(err) })
	}()
	r.want("key", Credential{APIKey: k.Key}, "ok")
	cancel()
	<-done
	if got, _ := r.Key(context.Background(), root(), k.ID); got.LastUsedAt == nil {
		t.Error("the key has no last use after Run ended")
	}
}

func BenchmarkAuthenticateKey(b *testing.B) {
	r := newSQLite(b)
	r.Now = time.Now // the benchmark includes the cost of the real clock
	k := r.createKey(scope.DefaultTenant, "policies:read", "decisions:read")
	c := Credential{APIKey: k.Key, IP: "192.0.2.1", RequestID: "0123456789", EnvHint: scope.Production}
	ctx := context.Background()
	if _, _, err := r.Authenticate(ctx, c); err != nil {
		b.Fatal(err)
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := r.Authenticate(ctx, c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, _, err := r.Authenticate(ctx, c); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

func BenchmarkAuthenticateToken(b *testing.B) {
	r := newSQLite(b)
	r.createUser(scope.DefaultTenant, "alice", user.RoleViewer)
	c := Credential{Bearer: r.signIn(scope.DefaultTenant, "alice")}
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := r.Authenticate(context.Background(), c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.entries.InvalidateAll()
			if _, _, err := r.Authenticate(context.Background(), c); err != nil {
				b.Fatal(err)
			}
		}
	})
}
