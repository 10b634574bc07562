package auth

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestRenewedSessionEnds: a token that was made from a token ends when the first one would have
// ended, however often it is renewed.
func TestRenewedSessionEnds(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.person(scope.DefaultTenant, "alice")
		token := r.token(scope.DefaultTenant, "alice")
		began := r.clock.Now()
		for range 6 {
			r.clock.pass(TokenLife/6 - time.Second)
			sc, _ := r.is(Credential{Bearer: token})
			g, err := r.Portal(ctx, sc, nil)
			if err != nil {
				t.Fatal(err)
			}
			if left := began.Add(TokenLife).Sub(r.clock.Now()); time.Duration(g.ExpiresIn)*time.Second > left {
				t.Fatalf("a token made %s after the sign-in is good for %d s", r.clock.Now().Sub(began), g.ExpiresIn)
			}
			token = g.AccessToken
		}
		r.want("within the hour", Credential{Bearer: token}, "ok")
		r.clock.pass(6 * time.Second)
		r.want("after it", Credential{Bearer: token}, "401")
	})
}

// TestPasswordChange ends the person's own keys too, unless the caller keeps them.
func TestPasswordChange(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		u := r.person(scope.DefaultTenant, "alice", user.RolePolicyAuthor)
		sc, _ := r.is(Credential{Bearer: r.token(scope.DefaultTenant, "alice")})
		key, err := r.GenerateKey(ctx, sc, scope.Sandbox, useful, PortalDraft{})
		if err != nil {
			t.Fatal(err)
		}
		change := func(ch user.Change) {
			t.Helper()
			if _, err := r.Users.Update(ctx, root(), u.ID, ch); err != nil {
				t.Fatal(err)
			}
		}
		change(user.Change{Password: patch.Set("a new password 1"), KeepKeys: true})
		r.want("a key that was kept", Credential{APIKey: key.Key}, "ok")
		change(user.Change{Department: patch.Set("IT")})
		r.want("a key after another change", Credential{APIKey: key.Key}, "ok")
		change(user.Change{Password: patch.Set("a new password 2")})
		r.want("a key of before", Credential{APIKey: key.Key}, "401")
	})
}
