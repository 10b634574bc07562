package auth

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestRenewedSessionEnds: a token that was made from a token ends when the first one would have
// ended, however often it is renewed.
func TestRenewedSessionEnds(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.createUser(scope.DefaultTenant, "alice")
		token := r.signIn(scope.DefaultTenant, "alice")
		began := r.clock.Now()
		for range 6 {
			r.clock.Move(TokenLife/6 - time.Second)
			sc, _ := r.try(Credential{Bearer: token})
			g, err := r.IssuePortalToken(ctx, sc, nil)
			errtest.Must(t, err)
			if rest := began.Add(TokenLife).Sub(r.clock.Now()); time.Duration(g.ExpiresIn)*time.Second > rest {
				t.Fatalf("a token made %s after the sign-in lives %d s, want at most %s", r.clock.Now().Sub(began), g.ExpiresIn, rest)
			}
			token = g.AccessToken
		}
		r.want("before the first token's end", Credential{Bearer: token}, "ok")
		r.clock.Move(6 * time.Second)
		r.want("after the first token's end", Credential{Bearer: token}, "401")
	})
}

// TestPasswordChange: a new password also ends the person's keys, unless the caller keeps them.
func TestPasswordChange(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		u := r.createUser(scope.DefaultTenant, "alice", user.RolePolicyAuthor)
		sc, _ := r.try(Credential{Bearer: r.signIn(scope.DefaultTenant, "alice")})
		key, err := r.GenerateKey(ctx, sc, scope.Sandbox, useful, PortalDraft{})
		errtest.Must(t, err)
		change := func(ch user.Change) {
			t.Helper()
			errtest.Must(t, errtest.Of(r.Users.Update(ctx, root(), u.ID, ch)))
		}
		change(user.Change{Password: patch.Set("a new password 1"), KeepKeys: true})
		r.want("a key, after a new password with KeepKeys", Credential{APIKey: key.Key}, "ok")
		change(user.Change{Department: patch.Set("IT")})
		r.want("a key, after another change", Credential{APIKey: key.Key}, "ok")
		change(user.Change{Password: patch.Set("a new password 2")})
		r.want("a key, after a new password", Credential{APIKey: key.Key}, "401")
	})
}
