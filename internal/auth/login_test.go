package auth

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/guess"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestOneAnswer: all failed sign-ins look the same.
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
		seen := map[string]string{}
		for what, c := range map[string]struct {
			tenant     scope.TenantID
			name, pass string
		}{
			"unknown": {scope.DefaultTenant, "nobody", password}, "wrong": {scope.DefaultTenant, "alice", "wrong password"},
			"empty": {scope.DefaultTenant, "alice", ""}, "both empty": {scope.DefaultTenant, "", ""}, "disabled": {scope.DefaultTenant, "off", password},
			"no password": {scope.DefaultTenant, "sso", ""}, "no password, guessed": {scope.DefaultTenant, "sso", password},
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

// TestLock: ten guesses at one account from one network lock this pair, whether the account exists
// or not, and no other.
func TestLock(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		alice := r.person(scope.DefaultTenant, "alice")
		from := func(i int) scope.Scope {
			sc := stranger(scope.DefaultTenant)
			sc.Actor.IP = fmt.Sprintf("198.51.100.%d", i)
			return sc
		}
		for what, names := range map[string][]string{
			"known": {"alice", "ALICE", "alice@example.com", "Alice@Example.COM", "ａｌｉｃｅ"}, "unknown": {"nobody", "NOBODY", "ｎｏｂｏｄｙ"},
		} {
			done := make(chan error)
			for i := range 50 {
				go func() {
					_, err := r.Login(ctx, from(1), names[i%len(names)], "wrong")
					done <- err
				}()
			}
			checked, refused := 0, 0
			for range 50 {
				switch err := <-done; {
				case fault.Is(err, fault.Unauthenticated):
					checked++
				case fault.Is(err, fault.RateLimited):
					refused++
				default:
					t.Error(err)
				}
			}
			if checked != guess.PairGuesses || refused != 50-guess.PairGuesses {
				t.Errorf("%s: checked %d guesses, refused %d", what, checked, refused)
			}
		}
		var f *fault.Error
		if _, err := r.Login(ctx, from(1), "alice", password); !errors.As(err, &f) || f.Code != "locked" || f.RetryAfter != guess.LockTime {
			t.Errorf("the right password from a locked address: %v", err)
		}
		if _, err := r.Login(ctx, from(2), "alice", password); err != nil {
			t.Errorf("another address is locked out: %v", err)
		}
		if _, err := r.Login(ctx, from(1), "bob", "wrong"); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("another account is locked: %v", err)
		}
		r.clock.pass(guess.LockTime - time.Second)
		if _, err := r.Login(ctx, from(1), "alice", password); !errors.As(err, &f) || f.RetryAfter != time.Second {
			t.Errorf("the lock ends early: %v", err)
		}
		r.clock.pass(time.Second)
		if _, err := r.Login(ctx, from(1), "alice", password); err != nil {
			t.Errorf("locked for longer than 15 minutes: %v", err)
		}
		for range guess.PairGuesses - 1 {
			_, _ = r.Login(ctx, from(1), "alice", "wrong")
		}
		if _, err := r.Login(ctx, from(1), "alice", password); err != nil {
			t.Errorf("nine wrong, then the right one: %v", err)
		}
		if a := attemptOf(t, r, "account:"+alice.ID+"@198.51.100.1"); a.Failures != 0 {
			t.Errorf("a sign-in does not clear the count: %+v", a)
		}
		if n := count(t, r, `SELECT count(*) FROM events WHERE type = '`+event.FailedLogins+`'`); n < 2 {
			t.Errorf("%d alerts", n)
		}
	})
}

// TestNobodyLocksOut: guesses at one account from many addresses, or at many accounts from one,
// lock nobody out. They are slowed down, except for people who signed in from the same place
// before.
func TestNobodyLocksOut(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		var mu sync.Mutex
		var waited time.Duration
		r.Pause = func(_ context.Context, d time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			waited = d
			return nil
		}
		from := func(ip string) scope.Scope {
			sc := stranger(scope.DefaultTenant)
			sc.Actor.IP = ip
			return sc
		}
		signIn := func(what, ip, name string, pace time.Duration) {
			t.Helper()
			waited = 0
			if _, err := r.Login(ctx, from(ip), name, password); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if waited != pace {
				t.Errorf("%s: waited %s, not %s", what, waited, pace)
			}
		}
		for _, name := range []string{"alice", "bob", "carol"} {
			r.person(scope.DefaultTenant, name)
		}
		signIn("the first time", "203.0.113.1", "alice", 0)
		for i := range 200 {
			_, _ = r.Login(ctx, from(fmt.Sprintf("198.51.100.%d", i%100)), "alice", "wrong")
		}
		signIn("from where she signed in before", "203.0.113.1", "alice", 0)
		signIn("from elsewhere", "203.0.113.77", "alice", guess.LongestPause)
		signIn("and again", "203.0.113.77", "alice", 0)
		signIn("another person", "203.0.113.78", "bob", 0)

		for i := range guess.AddressGuesses + 50 {
			_, _ = r.Login(ctx, from(fmt.Sprintf("2001:db8::%x", i+1)), fmt.Sprintf("user%d", i), "wrong")
		}
		signIn("behind the same address", "2001:db8::ffff", "carol", guess.LongestPause)
		signIn("and again", "2001:db8::1", "carol", 0)
		signIn("another network", "2001:db8:0:1::1", "bob", 0)
		r.clock.pass(guess.Window)
		signIn("a window later", "203.0.113.79", "alice", 0)
		if n := count(t, r, `SELECT count(*) FROM audit_events WHERE type = 'LOGIN_FAILED'`); n > 170 {
			t.Errorf("a flood of guesses wrote %d entries", n)
		}
	})
}

// TestCrowd: the number of concurrent sign-ins from one network is limited; other networks are not
// affected.
func TestCrowd(t *testing.T) {
	r := one(t)
	ctx := context.Background()
	r.person(scope.DefaultTenant, "alice")
	held := make(chan struct{})
	r.Pause = func(context.Context, time.Duration) error { <-held; return nil }
	crowd := stranger(scope.DefaultTenant)
	crowd.Actor.IP = "198.51.100.1"
	var all sync.WaitGroup
	for i := range guess.SeatsNetwork {
		all.Go(func() { _, _ = r.Login(ctx, crowd, fmt.Sprintf("user%d", i), "wrong") })
	}
	for r.lobby.InUse() < guess.SeatsNetwork {
		runtime.Gosched()
	}
	var f *fault.Error
	if _, err := r.Login(ctx, crowd, "alice", password); !errors.As(err, &f) || f.Code != "too_many_sign_ins" || f.RetryAfter <= 0 {
		t.Errorf("one more of a crowd: %v", err)
	}
	other := make(chan error)
	go func() {
		sc := stranger(scope.DefaultTenant)
		sc.Actor.IP = "198.51.100.2"
		_, err := r.Login(ctx, sc, "alice", password)
		other <- err
	}()
	close(held)
	if err := <-other; err != nil {
		t.Errorf("somebody else: %v", err)
	}
	all.Wait()
	if taken := r.lobby.InUse(); taken != 0 {
		t.Errorf("the lobby is not empty: %d", taken)
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
		for range guess.PairGuesses {
			_, _ = r.Login(ctx, stranger(scope.DefaultTenant), "admin", "wrong")
		}
		fresh, err := r.ResetPassword(ctx, scope.DefaultTenant, "Admin", "", false)
		if err != nil || fresh == made {
			t.Fatalf("reset to %q, %v", fresh, err)
		}
		r.want("session from before the reset", Credential{Bearer: g.AccessToken}, "401")
		if _, err := r.Login(ctx, stranger(scope.DefaultTenant), "admin", fresh); err != nil {
			t.Errorf("after the reset, lock and all: %v", err)
		}
		if _, err := r.ResetPassword(ctx, scope.DefaultTenant, "nobody", "", false); !fault.Is(err, fault.NotFound) {
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

// TestTokenOfAnotherTenant: a key is refused if the request names another tenant, including the
// default one.
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

func attemptOf(t *testing.T, r *replica, subject string) (a guess.Attempt) {
	t.Helper()
	store, err := r.Stores.Tenant(context.Background(), scope.DefaultTenant)
	if err == nil {
		err = store.Write(context.Background(), func(tx *db.Tx) (err error) {
			a, err = db.One[guess.Attempt](context.Background(), tx, `SELECT subject, failures, refused, since, locked_until FROM login_attempts WHERE subject = $1`, subject)
			if errors.Is(err, db.ErrNoRows) { // nothing was counted
				return nil
			}
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
