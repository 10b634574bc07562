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
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/lockout"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestOneAnswer: all failed sign-ins get the same answer.
func TestOneAnswer(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.createUser(scope.DefaultTenant, "alice")
		off := r.createUser(scope.DefaultTenant, "off")
		errtest.Must(t, errtest.Of(r.Users.Update(ctx, root(), off.ID, user.Change{Status: patch.Set(user.Disabled)})))
		sso := root()
		errtest.Must(t, errtest.Of(r.Users.Create(ctx, sso, user.Draft{Username: "sso", Email: "sso@example.com"})))
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
			_, err := r.Login(ctx, anonymous(c.tenant), c.name, c.pass)
			f, ok := errors.AsType[*fault.Error](err)
			if !ok || f.Kind != fault.Unauthenticated {
				t.Errorf("%s: got %v, want unauthenticated", what, err)
				continue
			}
			seen[fmt.Sprint(f.Code, f.Message, f.Fields, f.Details, f.RetryAfter)] = what
		}
		if len(seen) != 1 {
			t.Errorf("%d different answers, want 1: %v", len(seen), seen)
		}
		if _, err := r.Login(ctx, anonymous(scope.DefaultTenant), "ALICE@example.com ", password); err != nil {
			t.Errorf("login by e-mail address: %v", err)
		}
	})
}

// TestLock: ten guesses at one account from one network lock this pair and no other, whether the
// account exists or not.
func TestLock(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		alice := r.createUser(scope.DefaultTenant, "alice")
		guesser, elsewhere := fromAddress("198.51.100.1"), fromAddress("198.51.100.2")
		for what, names := range map[string][]string{
			"known": {"alice", "ALICE", "alice@example.com", "Alice@Example.COM", "ａｌｉｃｅ"}, "unknown": {"nobody", "NOBODY", "ｎｏｂｏｄｙ"},
		} {
			done := make(chan error)
			for i := range 50 {
				go func() {
					done <- errtest.Of(r.Login(ctx, guesser, names[i%len(names)], "wrong"))
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
					t.Errorf("%s: %v", what, err)
				}
			}
			if checked != lockout.PairGuesses || refused != 50-lockout.PairGuesses {
				t.Errorf("%s: %d guesses checked and %d refused, want %d and %d", what, checked, refused, lockout.PairGuesses, 50-lockout.PairGuesses)
			}
		}
		_, err := r.Login(ctx, guesser, "alice", password)
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "locked" || f.RetryAfter != lockout.LockTime {
			t.Errorf("the right password from a locked address: got %v, want locked for %s", err, lockout.LockTime)
		}
		if _, err := r.Login(ctx, elsewhere, "alice", password); err != nil {
			t.Errorf("the right password from another address: %v", err)
		}
		if _, err := r.Login(ctx, guesser, "bob", "wrong"); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("another account from the locked address: got %v, want unauthenticated", err)
		}
		r.clock.Move(lockout.LockTime - time.Second)
		_, err = r.Login(ctx, guesser, "alice", password)
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.RetryAfter != time.Second {
			t.Errorf("a second before the end of the lock: got %v, want one second more", err)
		}
		r.clock.Move(time.Second)
		if _, err := r.Login(ctx, guesser, "alice", password); err != nil {
			t.Errorf("after the lock: %v", err)
		}
		for range lockout.PairGuesses - 1 {
			_, _ = r.Login(ctx, guesser, "alice", "wrong")
		}
		if _, err := r.Login(ctx, guesser, "alice", password); err != nil {
			t.Errorf("the right password after nine wrong ones: %v", err)
		}
		if a := attemptOf(t, r, "account:"+alice.ID+"@198.51.100.1"); a.Failures != 0 {
			t.Errorf("attempts after a sign-in = %+v, want no failures", a)
		}
		if n := count(t, r, `SELECT count(*) FROM events WHERE type = '`+event.FailedLogins+`'`); n < 2 {
			t.Errorf("%d alerts about failed logins, want at least 2", n)
		}
	})
}

// TestNobodyLocksOut: guesses at one account from many addresses, or at many accounts from one,
// lock nobody out. They slow people down, except those who signed in from the same place before.
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
		signIn := func(what, ip, name string, pace time.Duration) {
			t.Helper()
			waited = 0
			if _, err := r.Login(ctx, fromAddress(ip), name, password); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if waited != pace {
				t.Errorf("%s: the sign-in waits %s, want %s", what, waited, pace)
			}
		}
		for _, name := range []string{"alice", "bob", "carol"} {
			r.createUser(scope.DefaultTenant, name)
		}
		signIn("the first time", "203.0.113.1", "alice", 0)
		for i := range 200 {
			_, _ = r.Login(ctx, fromAddress(fmt.Sprintf("198.51.100.%d", i%100)), "alice", "wrong")
		}
		signIn("from a place of an earlier sign-in", "203.0.113.1", "alice", 0)
		signIn("from a new place", "203.0.113.77", "alice", lockout.LongestPause)
		signIn("from the new place again", "203.0.113.77", "alice", 0)
		signIn("another person", "203.0.113.78", "bob", 0)

		for i := range lockout.AddressGuesses + 50 {
			_, _ = r.Login(ctx, fromAddress(fmt.Sprintf("2001:db8::%x", i+1)), fmt.Sprintf("user%d", i), "wrong")
		}
		signIn("from the guesser's network", "2001:db8::ffff", "carol", lockout.LongestPause)
		signIn("from the guesser's network again", "2001:db8::1", "carol", 0)
		signIn("from another network", "2001:db8:0:1::1", "bob", 0)
		r.clock.Move(lockout.Window)
		signIn("a window later", "203.0.113.79", "alice", 0)
		if n := count(t, r, `SELECT count(*) FROM audit_events WHERE type = 'LOGIN_FAILED'`); n > 170 {
			t.Errorf("a flood of guesses writes %d audit entries, want at most 170", n)
		}
	})
}

// TestCrowd: the number of concurrent sign-ins from one network is limited; other networks are not
// affected.
func TestCrowd(t *testing.T) {
	r := newSQLite(t)
	ctx := context.Background()
	r.createUser(scope.DefaultTenant, "alice")
	held := make(chan struct{})
	r.Pause = func(context.Context, time.Duration) error { <-held; return nil }
	crowd := fromAddress("198.51.100.1")
	var all sync.WaitGroup
	for i := range lockout.MaxInNetwork {
		all.Go(func() { _, _ = r.Login(ctx, crowd, fmt.Sprintf("user%d", i), "wrong") })
	}
	for r.lobby.InUse() < lockout.MaxInNetwork {
		runtime.Gosched()
	}
	_, err := r.Login(ctx, crowd, "alice", password)
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "too_many_sign_ins" || f.RetryAfter <= 0 {
		t.Errorf("one sign-in more than the network may have: got %v, want too_many_sign_ins", err)
	}
	other := make(chan error)
	go func() {
		other <- errtest.Of(r.Login(ctx, fromAddress("198.51.100.2"), "alice", password))
	}()
	close(held)
	if err := <-other; err != nil {
		t.Errorf("a sign-in from another network: %v", err)
	}
	all.Wait()
	if taken := r.lobby.InUse(); taken != 0 {
		t.Errorf("%d seats are taken in the end, want none", taken)
	}
}

// TestFirstAdministrator: the first start creates the administrator, and a reset of the password ends
// the sessions and the lock.
func TestFirstAdministrator(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		made, err := r.EnsureAdmin(ctx, "")
		if err != nil || len(made) != 22 {
			t.Fatalf("EnsureAdmin = %q, %v, want a password of 22 characters", made, err)
		}
		if again, err := r.EnsureAdmin(ctx, ""); err != nil || again != "" {
			t.Errorf("EnsureAdmin at the second start = %q, %v, want nothing", again, err)
		}
		g, err := r.Login(ctx, anonymous(scope.DefaultTenant), "admin", made)
		errtest.Must(t, err)
		sc, _ := r.try(Credential{Bearer: g.AccessToken})
		if !sc.Platform || !sc.Permissions.All {
			t.Errorf("scope of the administrator = %+v, want the platform and all permissions", sc)
		}
		me, err := r.Me(ctx, sc)
		if err != nil || me.Username != "admin" || len(me.Permissions) != 35 {
			t.Errorf("Me = %+v, %v, want admin with 35 permissions", me, err)
		}
		for range lockout.PairGuesses {
			_, _ = r.Login(ctx, anonymous(scope.DefaultTenant), "admin", "wrong")
		}
		fresh, err := r.ResetPassword(ctx, scope.DefaultTenant, "Admin", "", false)
		if err != nil || fresh == made {
			t.Fatalf("ResetPassword = %q, %v, want a new password", fresh, err)
		}
		r.want("a session from before the reset", Credential{Bearer: g.AccessToken}, "401")
		if _, err := r.Login(ctx, anonymous(scope.DefaultTenant), "admin", fresh); err != nil {
			t.Errorf("login of a locked account after the reset: %v", err)
		}
		if _, err := r.ResetPassword(ctx, scope.DefaultTenant, "nobody", "", false); !fault.Is(err, fault.NotFound) {
			t.Errorf("ResetPassword of nobody: got %v, want not found", err)
		}
	})
}

// TestTokenEndpoint: a failed request gets the OAuth 2.0 error code of its fault.
func TestTokenEndpoint(t *testing.T) {
	r := newSQLite(t)
	ctx := context.Background()
	r.createUser(scope.DefaultTenant, "alice", user.RoleViewer)
	k := r.createKey(scope.DefaultTenant, "policies:read")
	for what, c := range map[string]struct {
		req  TokenRequest
		want string
	}{
		"password":          {TokenRequest{GrantType: "password", Username: "alice", Password: password}, okay},
		"narrow":            {TokenRequest{GrantType: "password", Username: "alice", Password: password, Scope: "policies:read"}, okay},
		"wrong password":    {TokenRequest{GrantType: "password", Username: "alice", Password: "x"}, "invalid_grant"},
		"key":               {TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key}, okay},
		"no key":            {TokenRequest{GrantType: "client_credentials"}, "invalid_client"},
		"wrong key":         {TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key + "x"}, "invalid_client"},
		"wider than key":    {TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key, Scope: "policies:write"}, "invalid_scope"},
		"unknown scope":     {TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key, Scope: "x"}, "invalid_scope"},
		"no grant":          {TokenRequest{}, "invalid_request"},
		"unknown grant":     {TokenRequest{GrantType: "implicit"}, "unsupported_grant_type"},
		"token as a secret": {TokenRequest{GrantType: "client_credentials", ClientSecret: r.signIn(scope.DefaultTenant, "alice")}, "invalid_client"},
	} {
		wantCode(t, what, errtest.Of(r.Token(ctx, anonymous(scope.DefaultTenant), c.req)), c.want)
	}
}

// TestTokenOfAnotherTenant: a key is refused if the request names another tenant than the key's, even
// the default one.
func TestTokenOfAnotherTenant(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		k := r.createKey(dbtest.Second, "policies:read")
		for named, want := range map[scope.TenantID]string{"": "ok", dbtest.Second: "ok", scope.DefaultTenant: "403", "nowhere": "403"} {
			in := named
			if in == "" {
				in = scope.DefaultTenant
			}
			_, err := r.Token(context.Background(), anonymous(in), TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key, Named: named})
			if got := code(err); got != want {
				t.Errorf("tenant %q: got %s, want %s", named, got, want)
			}
			if f, ok := errors.AsType[*fault.Error](err); ok && f.Code != "tenant_access_denied" {
				t.Errorf("tenant %q: got the code %s, want tenant_access_denied", named, f.Code)
			}
		}
	})
}

// fromAddress is the scope of a request without a credential from an IP address.
func fromAddress(ip string) scope.Scope {
	sc := anonymous(scope.DefaultTenant)
	sc.Actor.IP = ip
	return sc
}

// attemptOf returns the counted guesses at a subject.
func attemptOf(t *testing.T, r *replica, subject string) (a lockout.Attempt) {
	t.Helper()
	errtest.Must(t, r.Stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
		a, err = db.One[lockout.Attempt](context.Background(), tx, `SELECT subject, failures, refused, since, locked_until FROM login_attempts WHERE subject = $1`, subject)
		if errors.Is(err, db.ErrNoRows) { // nothing was counted
			return nil
		}
		return err
	}))
	return a
}

// count returns the number that a query yields.
func count(t *testing.T, r *replica, sql string) (n int64) {
	t.Helper()
	errtest.Must(t, r.Stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
		n, err = db.One[int64](context.Background(), tx, sql)
		return err
	}))
	return n
}
