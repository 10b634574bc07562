package auth

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestTokensOfABrowser: a token that was made from a browser's session ends with it, also when the
// session is idle. Its use counts as use of the session, on each replica.
func TestTokensOfABrowser(t *testing.T) {
	eachPair(t, []string{dbtest.SQLite, dbtest.Postgres}, func(t *testing.T, here, there *replica) {
		ctx, clk := context.Background(), here.clock
		here.SessionIdle, there.SessionIdle = 20*time.Minute, 20*time.Minute
		here.createUser(scope.DefaultTenant, "alice", user.RoleViewer)
		in := here.signInBrowser(scope.DefaultTenant, "alice")
		sc, _ := here.try(Credential{Cookie: in.Cookie})
		grant := func(sc scope.Scope) Credential {
			t.Helper()
			g, err := here.IssuePortalToken(ctx, sc, nil)
			errtest.Must(t, err)
			return Credential{Bearer: g.AccessToken}
		}
		made := grant(sc)
		child, _ := here.try(made)
		renewed := grant(child)
		both := func(what string, want string, used bool) {
			t.Helper()
			for name, c := range map[string]Credential{"token": made, "renewed token": renewed} {
				c.Idle = !used
				here.want(what+": "+name, c, want)
				there.want(what+": "+name+" elsewhere", c, want)
			}
		}
		both("new", "ok", false)
		clk.Move(15 * time.Minute)
		both("in use", "ok", true)
		for _, r := range []*replica{here, there} {
			errtest.Must(t, r.flush(ctx))
		}
		clk.Move(15 * time.Minute)
		here.want("the session after a use of its tokens", Credential{Cookie: in.Cookie, Idle: true}, "ok")
		both("15 minutes after their use", "ok", false)
		clk.Move(10 * time.Minute)
		both("25 minutes after their use", "401", true)
		here.want("the session", Credential{Cookie: in.Cookie}, "401")
		if _, err := here.IssuePortalToken(ctx, child, nil); err == nil {
			here.want("a token that was renewed afterwards", grant(child), "401")
		}
	})
}
