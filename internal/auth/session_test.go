package auth

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

// signInBrowser signs a user in with a browser.
func (r *replica) signInBrowser(t scope.TenantID, name string) SignedIn {
	r.t.Helper()
	in, err := r.Sessions.SignIn(context.Background(), anonymous(t), Proof{Username: name, Password: password}, Browser{Agent: firefox})
	if err != nil {
		r.t.Fatalf("sign-in of %s: %v", name, err)
	}
	return in
}

// TestCookieIsNoOtherCredential: a cookie is accepted only as a cookie, and nothing else is. The
// store does not contain its text.
func TestCookieIsNoOtherCredential(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		r.createUser(scope.DefaultTenant, "alice", user.RoleViewer)
		in := r.signInBrowser(scope.DefaultTenant, "alice")
		token, key := r.signIn(scope.DefaultTenant, "alice"), r.createKey(scope.DefaultTenant, "policies:read")
		r.want("cookie", Credential{Cookie: in.Cookie}, "ok")
		tenant, secret, _ := strings.Cut(in.Cookie, ".")
		for what, c := range map[string]Credential{
			"cookie as token": {Bearer: in.Cookie}, "cookie as key": {APIKey: in.Cookie},
			"token as cookie": {Cookie: token}, "key as cookie": {Cookie: key.Key}, "session's id as cookie": {Cookie: in.Session.ID},
			"other tenant": {Cookie: "t2." + secret}, "no tenant": {Cookie: "." + secret}, "path": {Cookie: "../" + tenant + "." + secret},
			"cut": {Cookie: in.Cookie[:len(in.Cookie)-1]}, "longer": {Cookie: in.Cookie + "A"}, "upper case": {Cookie: "Default." + secret},
			"digest as cookie": {Cookie: tenant + "." + strings.Repeat("0", len(secret))},
		} {
			r.want(what, c, "401")
			r.want(what+", a second time", c, "401")
		}
		r.want("two credentials", Credential{Cookie: in.Cookie, APIKey: key.Key}, "400")
		r.want("cookie again", Credential{Cookie: in.Cookie}, "ok")
		err := r.Stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) error {
			ss, err := selectSession(context.Background(), tx, in.Session.ID)
			if ss.Digest == "" || strings.Contains(secret, ss.Digest) || strings.Contains(ss.Digest, secret) {
				t.Errorf("digest of the cookie = %q, want one that does not contain its text", ss.Digest)
			}
			return err
		})
		errtest.Must(t, err)
	})
}

// TestBrowserExpiry: a session ends when it is idle, and at its end at the latest, on each replica.
// Requests that a page makes on its own do not count.
func TestBrowserExpiry(t *testing.T) {
	eachPair(t, []string{dbtest.SQLite, dbtest.Postgres}, func(t *testing.T, here, there *replica) {
		ctx := context.Background()
		here.createUser(scope.DefaultTenant, "alice", user.RoleViewer)
		idle := here.signInBrowser(scope.DefaultTenant, "alice")
		for range 7 { // only the page itself makes requests
			here.clock.Move(10 * time.Minute)
			if here.clock.Now().Before(*idle.Session.IdleAt) {
				here.want("page by itself", Credential{Cookie: idle.Cookie, Idle: true}, "ok")
			}
		}
		here.want("after an hour without use", Credential{Cookie: idle.Cookie}, "401")
		there.want("after an hour without use, elsewhere", Credential{Cookie: idle.Cookie}, "401")

		used := there.signInBrowser(scope.DefaultTenant, "alice")
		for here.clock.Now().Before(used.Session.ExpiresAt.Add(-40 * time.Minute)) {
			here.want("in use", Credential{Cookie: used.Cookie}, "ok")
			errtest.Must(t, here.flush(ctx))
			here.clock.Move(40 * time.Minute)
			there.want("in use at the other replica", Credential{Cookie: used.Cookie, Idle: true}, "ok")
		}
		here.clock.Move(40 * time.Minute)
		here.want("after its end", Credential{Cookie: used.Cookie}, "401")
		there.want("after its end, elsewhere", Credential{Cookie: used.Cookie}, "401")
	})
}

// TestBrowserEnds: whatever ends a person's sessions ends browser sessions and the tokens made from
// them.
func TestBrowserEnds(t *testing.T) {
	type ending func(ctx context.Context, r *replica, u user.User, sc scope.Scope, in SignedIn) error
	ends := map[string]ending{
		"sign-out": func(ctx context.Context, r *replica, _ user.User, sc scope.Scope, _ SignedIn) error {
			_, err := r.Sessions.Logout(ctx, sc)
			return err
		},
		"ended by its person": func(ctx context.Context, r *replica, u user.User, _ scope.Scope, in SignedIn) error {
			return r.Sessions.End(ctx, r.signedIn(dbtest.Second, u.Username), in.Session.ID)
		},
		"all others ended": func(ctx context.Context, r *replica, u user.User, _ scope.Scope, _ SignedIn) error {
			n, err := r.Sessions.EndOthers(ctx, r.signedIn(dbtest.Second, u.Username))
			if n != 1 {
				r.t.Errorf("EndOthers ends %d sessions, want 1", n)
			}
			return err
		},
		"password": func(ctx context.Context, r *replica, u user.User, _ scope.Scope, _ SignedIn) error {
			return errtest.Of(r.Users.Update(ctx, systemOf(dbtest.Second), u.ID, user.Change{Password: patch.Set("another long password")}))
		},
		"roles": func(ctx context.Context, r *replica, u user.User, _ scope.Scope, _ SignedIn) error {
			return errtest.Of(r.Users.SetRoles(ctx, systemOf(dbtest.Second), u.ID, user.RolesChange{Roles: []string{user.RoleAdmin}}))
		},
		"disabled": func(ctx context.Context, r *replica, u user.User, _ scope.Scope, _ SignedIn) error {
			return errtest.Of(r.Users.Update(ctx, systemOf(dbtest.Second), u.ID, user.Change{Status: patch.Set(user.Disabled)}))
		},
		"deleted": func(ctx context.Context, r *replica, u user.User, _ scope.Scope, _ SignedIn) error {
			return errtest.Of(r.Users.Delete(ctx, systemOf(dbtest.Second), u.ID))
		},
		"another sign-in of the browser": func(ctx context.Context, r *replica, u user.User, _ scope.Scope, in SignedIn) error {
			again, err := r.Sessions.SignIn(ctx, anonymous(dbtest.Second), Proof{Username: u.Username, Password: password}, Browser{Agent: firefox, Cookie: in.Cookie})
			r.want("the new session", Credential{Cookie: again.Cookie}, "ok")
			if again.Cookie == in.Cookie || again.Session.ID == in.Session.ID {
				r.t.Errorf("a new sign-in keeps the session %s and its cookie", in.Session.ID)
			}
			return err
		},
	}
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		for what, end := range ends {
			u := r.createUser(dbtest.Second, strings.ReplaceAll(what, " ", "-"), user.RoleViewer)
			b := r.signInBrowser(dbtest.Second, u.Username)
			sc, got := r.try(Credential{Cookie: b.Cookie})
			if got != "ok" || sc.Session != b.Session.ID || sc.Tenant != dbtest.Second {
				t.Fatalf("%s: the cookie gives %s, %+v, want the session %s", what, got, sc, b.Session.ID)
			}
			g, err := r.IssuePortalToken(ctx, sc, nil)
			errtest.Must(t, err)
			r.want(what+": the session's token before", Credential{Bearer: g.AccessToken}, "ok")
			if err := end(ctx, r, u, sc, b); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			r.want(what+": the cookie", Credential{Cookie: b.Cookie}, "401")
			r.want(what+": the session's token", Credential{Bearer: g.AccessToken}, "401")
		}
	})
}

// TestSuspensionEndsBrowsers: a suspended tenant accepts neither sessions nor sign-ins.
func TestSuspensionEndsBrowsers(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		made, err := r.Tenants.Create(context.Background(), root(), tenant.Draft{Name: "Acme"})
		errtest.Must(t, err)
		r.createUser(made.ID, "alice", user.RoleViewer)
		b := r.signInBrowser(made.ID, "alice")
		r.want("active", Credential{Cookie: b.Cookie}, "ok")
		errtest.Must(t, errtest.Of(r.Tenants.Update(context.Background(), root(), made.ID, tenant.Change{Status: patch.Set(tenant.Suspended)})))
		r.want("suspended", Credential{Cookie: b.Cookie}, "403")
		if _, err := r.Sessions.SignIn(context.Background(), anonymous(made.ID), Proof{Username: "alice", Password: password}, Browser{}); code(err) != "401" {
			t.Errorf("sign-in to a suspended tenant: got %v, want 401", err)
		}
	})
}

// TestOwnSessions: a person lists and ends their own sign-ins, and nobody else's.
func TestOwnSessions(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.createUser(scope.DefaultTenant, "alice", user.RoleViewer)
		r.createUser(scope.DefaultTenant, "bob", user.RolePlatformAdmin)
		first := r.signInBrowser(scope.DefaultTenant, "alice")
		r.clock.Move(time.Minute)
		alice, _ := r.try(Credential{Bearer: r.signIn(scope.DefaultTenant, "alice")})
		if _, err := r.IssuePortalToken(ctx, alice, nil); err != nil { // not a sign-in
			t.Fatal(err)
		}
		r.clock.Move(time.Minute)
		second := r.signInBrowser(scope.DefaultTenant, "alice")
		bob := r.signedIn(scope.DefaultTenant, "bob")

		list, err := r.Sessions.List(ctx, alice)
		if err != nil || len(list) != 3 || list[0].ID != second.Session.ID || list[2].ID != first.Session.ID {
			t.Fatalf("List = %+v, %v, want the second browser, the token and the first browser", list, err)
		}
		if token := list[1]; !token.Current || token.Kind != TokenSession || token.IdleAt != nil || token.ID != alice.Session {
			t.Errorf("session of the token = %+v", token)
		}
		if b := list[0]; b.Current || b.Kind != BrowserSession || b.Device != "Firefox on Linux" || b.IPAddress != "192.0.2.7" || b.IdleAt == nil || !b.IdleAt.Equal(b.UsedAt.Add(r.SessionIdle)) {
			t.Errorf("session of the browser = %+v", b)
		}
		if err := r.Sessions.End(ctx, bob, first.Session.ID); code(err) != "404" {
			t.Errorf("End of another person's session: got %v, want 404", err)
		}
		if err := r.Sessions.End(ctx, alice, "nothing"); code(err) != "404" {
			t.Errorf("End of an unknown session: got %v, want 404", err)
		}
		r.want("the first browser", Credential{Cookie: first.Cookie}, "ok")
		if n, err := r.Sessions.EndOthers(ctx, alice); n != 2 || err != nil {
			t.Errorf("EndOthers = %d, %v, want 2", n, err)
		}
		r.want("the first browser after EndOthers", Credential{Cookie: first.Cookie}, "401")
		r.want("the second browser after EndOthers", Credential{Cookie: second.Cookie}, "401")
		if list, err := r.Sessions.List(ctx, alice); err != nil || len(list) != 1 || list[0].ID != alice.Session {
			t.Errorf("List after EndOthers = %+v, %v, want only %s", list, err, alice.Session)
		}
		if list, err := r.Sessions.List(ctx, bob); err != nil || len(list) != 1 {
			t.Errorf("List of bob = %+v, %v, want one session", list, err)
		}
		key, _ := r.try(Credential{APIKey: r.createKey(scope.DefaultTenant, "users:read").Key})
		if _, err := r.Sessions.List(ctx, key); code(err) != "400" {
			t.Errorf("List by a key: got %v, want 400", err)
		}
	})
}

// TestBrowsersAreBounded: when a person has too many sessions, the oldest one ends.
func TestBrowsersAreBounded(t *testing.T) {
	r := newSQLite(t)
	r.createUser(scope.DefaultTenant, "alice", user.RoleViewer)
	oldest := r.signInBrowser(scope.DefaultTenant, "alice")
	r.clock.Move(time.Second)
	next := r.signInBrowser(scope.DefaultTenant, "alice")
	for range maxBrowsers - 1 {
		r.clock.Move(time.Second)
		r.signInBrowser(scope.DefaultTenant, "alice")
	}
	r.want("the oldest session", Credential{Cookie: oldest.Cookie}, "401")
	r.want("the next oldest session", Credential{Cookie: next.Cookie}, "ok")
}

// TestLoginLink: a link signs in once, before its end, and only from the server's own machine.
func TestLoginLink(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		u := r.createUser(scope.DefaultTenant, "alice", user.RoleViewer)
		link := func() string {
			t.Helper()
			secret, err := r.Sessions.Link(ctx, scope.DefaultTenant, "alice", time.Minute)
			errtest.Must(t, err)
			return secret
		}
		redeem := func(ip, secret string) (SignedIn, string) {
			in, err := r.Sessions.Redeem(ctx, fromAddress(ip), secret, Browser{Agent: firefox})
			return in, code(err)
		}
		secret := link()
		for _, ip := range []string{"192.0.2.7", "", "::ffff:192.0.2.7", "127.0.0.1.example.com"} {
			if _, got := redeem(ip, secret); got != "401" {
				t.Errorf("Redeem from %q: got %s, want 401", ip, got)
			}
		}
		in, got := redeem("127.0.0.1", secret)
		if got != "ok" {
			t.Fatalf("Redeem from 127.0.0.1: got %s, want ok", got)
		}
		if sc, got := r.try(Credential{Cookie: in.Cookie}); got != "ok" || sc.Actor.ID != u.ID {
			t.Errorf("the cookie of a link: got %s for %+v, want %s", got, sc.Actor, u.ID)
		}
		if _, got := redeem("127.0.0.1", secret); got != "401" {
			t.Errorf("Redeem of a used link: got %s, want 401", got)
		}
		late := link()
		r.clock.Move(time.Minute)
		if _, got := redeem("::1", late); got != "401" {
			t.Errorf("Redeem of an expired link: got %s, want 401", got)
		}
		disabled := link()
		errtest.Must(t, errtest.Of(r.Users.Update(ctx, root(), u.ID, user.Change{Status: patch.Set(user.Disabled)})))
		if _, got := redeem("::1", disabled); got != "401" {
			t.Errorf("Redeem of a disabled person's link: got %s, want 401", got)
		}
	})
}

// TestLinksAreBounded: a new link replaces the link that ends first if there are too many.
func TestLinksAreBounded(t *testing.T) {
	var ls links
	now := time.Unix(1e9, 0)
	for i := range maxLinks + 1 {
		ls.add(string(rune('a'+i)), link{userID: "u", until: now.Add(time.Duration(i+1) * time.Minute)}, now)
	}
	if _, ok := ls.redeem("a", now); ok || len(ls.open) != maxLinks {
		t.Errorf("the link that ends first is valid: %t; %d links are open, want %d", ok, len(ls.open), maxLinks)
	}
	if _, ok := ls.redeem("b", now); !ok {
		t.Error("the second link is not valid")
	}
}

// TestDevice: a session shows the program and the system that the User-Agent names.
func TestDevice(t *testing.T) {
	for agent, want := range map[string]string{
		firefox: "Firefox on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0.0.0 Safari/537.36":                            "Chrome on Windows",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0.0.0 Safari/537.36 Edg/148.0":                  "Edge on Windows",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Safari/605.1.15":                      "Safari on macOS",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/148.0 Mobile/15E148 Safari/604.1":     "Chrome on iPhone",
		"Mozilla/5.0 (Linux; Android 15; SM-S921B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36": "Samsung Internet on Android",
		"Mozilla/5.0 (compatible; something)": "", "curl/8.5.0": "curl/8.5.0", "": "", "<script>": "<script>",
	} {
		if got := deviceOf(cleanAgent(agent)); got != want {
			t.Errorf("device of %q = %q, want %q", agent, got, want)
		}
	}
	if got := cleanAgent("a\x00b\x1b[2Jc\xffd\u202e" + strings.Repeat("x", 1000)); strings.ContainsFunc(got, func(c rune) bool { return c < ' ' || c > '~' }) || len(got) != maxAgent {
		t.Errorf("cleanAgent = %q, want %d printable ASCII characters", got, maxAgent)
	}
}
