package auth

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestTokensOfABrowser: a token that was made from a browser's session ends with it, also when the
// session is idle. Its use counts as use of the session, on each replica.
func TestTokensOfABrowser(t *testing.T) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(backend, func(t *testing.T) {
			ctx := context.Background()
			cfg, ck := dbtest.Config(t, backend), newClock()
			here, there := newReplica(t, dbtest.OpenConfig(t, cfg), ck), newReplica(t, dbtest.OpenConfig(t, cfg), ck)
			here.SessionIdle, there.SessionIdle = 20*time.Minute, 20*time.Minute
			here.person(scope.DefaultTenant, "alice", user.RoleViewer)
			in := here.browser(scope.DefaultTenant, "alice")
			sc, _ := here.is(Credential{Cookie: in.Cookie})
			grant := func(sc scope.Scope) Credential {
				t.Helper()
				g, err := here.Portal(ctx, sc, nil)
				if err != nil {
					t.Fatal(err)
				}
				return Credential{Bearer: g.AccessToken}
			}
			made := grant(sc)
			child, _ := here.is(made)
			renewed := grant(child)
			both := func(what string, want string, used bool) {
				t.Helper()
				for name, c := range map[string]Credential{"token": made, "renewed token": renewed} {
					c.Idle = !used
					here.want(what+": "+name, c, want)
					there.want(what+": "+name+" elsewhere", c, want)
				}
			}
			both("at first", "ok", false)
			ck.pass(15 * time.Minute)
			both("in use", "ok", true)
			for _, r := range []*replica{here, there} {
				if err := r.flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
			ck.pass(15 * time.Minute)
			here.want("the session, whose tokens were used", Credential{Cookie: in.Cookie, Idle: true}, "ok")
			both("still", "ok", false)
			ck.pass(10 * time.Minute)
			both("after the session was idle", "401", true)
			here.want("the session", Credential{Cookie: in.Cookie}, "401")
			if _, err := here.Portal(ctx, child, nil); err == nil {
				here.want("a token that was renewed afterwards", grant(child), "401")
			}
		})
	}
}
