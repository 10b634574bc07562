package auth

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestOneAnswer is hardening A4: whatever is wrong with a sign-in, it looks the same.
func TestOneAnswer(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.person(scope.DefaultTenant, "alice")
		off := r.person(scope.DefaultTenant, "off")
		if _, err := r.Users.Update(ctx, root(), off.ID, user.Change{Status: patch.Set(user.Disabled)}); err != nil {
			t.Fatal(err)
		}
		sso := root()
		if _, err := r.Users.Create(ctx, sso, user.Draft{Username: "sso", Email: "sso@example.com"}); err != nil {
			t.Fatal(err)
		}
		r.person(scope.DefaultTenant, "locked")
		for range accountGuesses {
			_, _ = r.Login(ctx, stranger(scope.DefaultTenant), "locked", "wrong")
		}
		seen := map[string]string{}
		for what, c := range map[string]struct {
			tenant     scope.TenantID
			name, pass string
		}{
			"unknown": {scope.DefaultTenant, "nobody", password}, "wrong": {scope.DefaultTenant, "alice", "wrong password"},
			"empty": {scope.DefaultTenant, "alice", ""}, "both empty": {scope.DefaultTenant, "", ""}, "disabled": {scope.DefaultTenant, "off", password},
			"locked": {scope.DefaultTenant, "locked", password}, "no password": {scope.DefaultTenant, "sso", ""}, "no password, guessed": {scope.DefaultTenant, "sso", password},
			"other tenant": {dbtest.Second, "alice", password}, "unknown tenant": {"nowhere", "alice", password}, "odd tenant": {"../x", "alice", password},
			"long": {scope.DefaultTenant, "alice", password + string(make([]byte, 5000))}, "NUL": {scope.DefaultTenant, "alice\x00", password},
		} {
			_, err := r.Login(ctx, stranger(c.tenant), c.name, c.pass)
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Unauthenticated {
				t.Errorf("%s: %v", what, err)
				continue
			}
			seen[fmt.Sprint(f.Code, f.Message, f.Fields, f.Details, f.RetryAfter)] = what
		}
		if len(seen) != 1 {
			t.Errorf("%d different answers: %v", len(seen), seen)
		}
		if _, err := r.Login(ctx, stranger(scope.DefaultTenant), "ALICE@example.com ", password); err != nil {
			t.Errorf("by e-mail: %v", err)
		}
	})
}

// TestLock is hardening A5.
func TestLock(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		alice := r.person(scope.DefaultTenant, "alice")
		names := []string{"alice", "ALICE", "alice@example.com", "Alice@Example.COM", "ａｌｉｃｅ"}
		from := func(i int) scope.Scope {
			sc := stranger(scope.DefaultTenant)
			sc.Actor.IP = fmt.Sprintf("198.51.100.%d", i)
			return sc
		}
		done := make(chan error)
		for i := range 50 {
			go func() {
				_, err := r.Login(ctx, from(i), names[i%len(names)], "wrong")
				done <- err
			}()
		}
		for range 50 {
			if err := <-done; !fault.Is(err, fault.Unauthenticated) {
				t.Error(err)
			}
		}
		a := attemptOf(t, r, "account:"+alice.ID)
		if a.Failures != accountGuesses || a.Refused < 40 {
			t.Errorf("checked %d guesses, refused %d", a.Failures, a.Refused)
		}
		right := func() error { _, err := r.Login(ctx, from(200), "alice", password); return err }
		if right() == nil {
			t.Error("the right password opens a locked account")
		}
		r.clock.pass(lockTime - time.Second)
		if right() == nil {
			t.Error("the lock ends early")
		}
		r.clock.pass(time.Second)
		if err := right(); err != nil {
			t.Errorf("locked for longer than 15 minutes: %v", err)
		}
		for range accountGuesses - 1 {
			_, _ = r.Login(ctx, from(1), "alice", "wrong")
		}
		if err := right(); err != nil {
			t.Errorf("nine wrong, then the right one: %v", err)
		}
		if a := attemptOf(t, r, "account:"+alice.ID); a.Failures != 0 {
			t.Errorf("a sign-in does not clear the count: %+v", a)
		}
		if n := count(t, r, `SELECT count(*) FROM events WHERE type = '`+FailedLogins+`'`); n < 2 {
			t.Errorf("%d alerts", n)
		}
	})
}

// TestLockOfAddress: many accounts from one address, and from one IPv6 network.
func TestLockOfAddress(t *testing.T) {
	r := one(t)
	ctx := context.Background()
	r.person(scope.DefaultTenant, "alice")
	sc := stranger(scope.DefaultTenant)
	for i := range addressGuesses {
		sc.Actor.IP = fmt.Sprintf("2001:db8::%x", i+1)
		_, _ = r.Login(ctx, sc, fmt.Sprintf("user%d", i), "wrong")
	}
	if _, err := r.Login(ctx, sc, "alice", password); err == nil {
		t.Error("the network is not locked")
	}
	sc.Actor.IP = "2001:db8:0:1::1"
	if _, err := r.Login(ctx, sc, "alice", password); err != nil {
		t.Errorf("another network is locked: %v", err)
	}
}

func TestReserve(t *testing.T) {
	now := time.Unix(1e9, 0)
	var a attempt
	for i := range 10 {
		var locked bool
		if a, locked = a.reserve(now.Add(time.Duration(i)*time.Minute), 10); locked {
			t.Fatalf("locked at guess %d", i+1)
		}
	}
	end := now.Add(9*time.Minute + lockTime)
	if _, locked := a.reserve(end.Add(-1), 10); !locked {
		t.Error("not locked after ten")
	}
	if a, _ = a.reserve(end.Add(-1), 10); !a.LockedUntil.Equal(end) {
		t.Error("trying while locked makes the lock longer")
	}
	if a, locked := a.reserve(end, 10); locked || a.Failures != 1 {
		t.Errorf("after the lock: %+v, %v", a, locked)
	}
	a = attempt{Failures: 9, Since: now}
	if a, _ := a.reserve(now.Add(guessWindow), 10); a.Failures != 1 {
		t.Errorf("after the window: %+v", a)
	}
}

func TestFirstAdministrator(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		made, err := r.EnsureAdmin(ctx, "")
		if err != nil || len(made) != 22 {
			t.Fatalf("password %q, %v", made, err)
		}
		if again, err := r.EnsureAdmin(ctx, ""); err != nil || again != "" {
			t.Errorf("a second start: %q, %v", again, err)
		}
		g, err := r.Login(ctx, stranger(scope.DefaultTenant), "admin", made)
		if err != nil {
			t.Fatal(err)
		}
		sc, _ := r.is(Credential{Bearer: g.AccessToken})
		if !sc.Platform || !sc.Permissions.All {
			t.Errorf("scope %+v", sc)
		}
		me, err := r.Me(ctx, sc)
		if err != nil || me.Username != "admin" || len(me.Permissions) != 35 {
			t.Errorf("me %+v, %v", me, err)
		}
		for range accountGuesses {
			_, _ = r.Login(ctx, stranger(scope.DefaultTenant), "admin", "wrong")
		}
		fresh, err := r.ResetPassword(ctx, scope.DefaultTenant, "Admin", "")
		if err != nil || fresh == made {
			t.Fatalf("reset to %q, %v", fresh, err)
		}
		r.want("session from before the reset", Credential{Bearer: g.AccessToken}, "401")
		if _, err := r.Login(ctx, stranger(scope.DefaultTenant), "admin", fresh); err != nil {
			t.Errorf("after the reset, lock and all: %v", err)
		}
		if _, err := r.ResetPassword(ctx, scope.DefaultTenant, "nobody", ""); !fault.Is(err, fault.NotFound) {
			t.Errorf("reset of nobody: %v", err)
		}
	})
}

func TestTokenEndpoint(t *testing.T) {
	r := one(t)
	ctx := context.Background()
	r.person(scope.DefaultTenant, "alice", user.RoleViewer)
	k := r.key(scope.DefaultTenant, "policies:read")
	for what, c := range map[string]struct {
		req  TokenRequest
		want string
	}{
		"password":          {TokenRequest{GrantType: "password", Username: "alice", Password: password}, ""},
		"narrow":            {TokenRequest{GrantType: "password", Username: "alice", Password: password, Scope: "policies:read"}, ""},
		"wrong password":    {TokenRequest{GrantType: "password", Username: "alice", Password: "x"}, "invalid_grant"},
		"key":               {TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key}, ""},
		"no key":            {TokenRequest{GrantType: "client_credentials"}, "invalid_client"},
		"wrong key":         {TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key + "x"}, "invalid_client"},
		"wider than key":    {TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key, Scope: "policies:write"}, "invalid_scope"},
		"unknown scope":     {TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key, Scope: "x"}, "invalid_scope"},
		"no grant":          {TokenRequest{}, "invalid_request"},
		"unknown grant":     {TokenRequest{GrantType: "implicit"}, "unsupported_grant_type"},
		"token as a secret": {TokenRequest{GrantType: "client_credentials", ClientSecret: r.token(scope.DefaultTenant, "alice")}, "invalid_client"},
	} {
		_, err := r.Token(ctx, stranger(scope.DefaultTenant), c.req)
		var f *fault.Error
		if got := ""; errors.As(err, &f) || c.want != got {
			if f != nil {
				got = f.Code
			}
			if got != c.want {
				t.Errorf("%s: %q, want %q (%v)", what, got, c.want, err)
			}
		}
	}
}

// TestTokenOfAnotherTenant: a key is refused where the request names a tenant
// that is not the key's, the default one no less than any other.
func TestTokenOfAnotherTenant(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		k := r.key(dbtest.Second, "policies:read")
		for named, want := range map[scope.TenantID]string{"": "ok", dbtest.Second: "ok", scope.DefaultTenant: "403", "nowhere": "403"} {
			in := named
			if in == "" {
				in = scope.DefaultTenant
			}
			_, err := r.Token(context.Background(), stranger(in), TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key, Named: named})
			if got := code(err); got != want {
				t.Errorf("%q: %s, want %s", named, got, want)
			}
			var f *fault.Error
			if errors.As(err, &f) && f.Code != "tenant_access_denied" {
				t.Errorf("%q: %s", named, f.Code)
			}
		}
	})
}

func attemptOf(t *testing.T, r *replica, subject string) (a attempt) {
	t.Helper()
	store, err := r.Stores.Tenant(context.Background(), scope.DefaultTenant)
	if err == nil {
		err = store.Write(context.Background(), func(tx *db.Tx) (err error) {
			a, err = lockAttempt(context.Background(), tx, subject)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func count(t *testing.T, r *replica, sql string) (n int64) {
	t.Helper()
	store, err := r.Stores.Tenant(context.Background(), scope.DefaultTenant)
	if err == nil {
		err = store.Read(context.Background(), func(tx *db.Tx) (err error) {
			n, err = db.One[int64](context.Background(), tx, sql)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
