package auth

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
	"github.com/gatehouse-dev/gatehouse/internal/user/usertest"
)

// leftOf counts the rows of a person's credentials.
func leftOf(t *testing.T, r *replica, id string) int64 {
	t.Helper()
	n, err := db.Read(context.Background(), r.Stores, dbtest.Second, func(tx *db.Tx) (int64, error) {
		return db.One[int64](context.Background(), tx, `SELECT (SELECT count(*) FROM api_keys WHERE owner = $1) + (SELECT count(*) FROM sessions WHERE user_id = $1)
			+ (SELECT count(*) FROM user_factors WHERE user_id = $1)`, id)
	})
	errtest.Must(t, err)
	return n
}

// running is a request of a person that was authenticated before the person is removed.
type running struct {
	user user.User
	sc   scope.Scope
	key  Key
	link string
}

// removals remove or disable the person of a request, which is sent when the person was
// authenticated, and return its error.
func removals(ctx context.Context, t *testing.T, r *replica) map[string]func(u running, send func() error) error {
	admin := systemOf(dbtest.Second)
	remove := func(u running) { errtest.Must(t, errtest.Of(r.Users.Delete(ctx, admin, u.user.ID))) }
	return map[string]func(u running, send func() error) error{
		"after the removal": func(u running, send func() error) error {
			remove(u)
			return send()
		},
		"after a new person has the id": func(u running, send func() error) error {
			remove(u)
			r.clock.Move(time.Second)
			errtest.Must(t, errtest.Of(r.Users.Create(ctx, admin, user.Draft{ID: u.user.ID, Username: "alice", Email: "a@example.com", Password: password})))
			defer remove(u)
			defer func() {
				if n := leftOf(t, r, u.user.ID); n > 0 {
					t.Errorf("a new person has %d credentials of the earlier one", n)
				}
			}()
			return send()
		},
		"during the removal": func(u running, send func() error) error {
			done := make(chan error, 1)
			var err error
			ended, sent := false, false
			errtest.Must(t, r.Stores.Write(ctx, dbtest.Second, func(tx *db.Tx) error {
				if _, err := r.Users.Remove(ctx, tx, admin, u.user.ID); err != nil {
					return err
				}
				if !sent {
					sent = true
					go func() { done <- send() }()
					ended, err = usertest.UntilBlocked(t, r.Stores, done)
				}
				return nil
			}))
			if !ended {
				err = <-done
			}
			return err
		},
	}
}

// TestRemovalDuringRequest: what a request of a person inserts does not outlive the person, whenever
// the removal comes, and does not belong to a later person with the same id.
func TestRemovalDuringRequest(t *testing.T) {
	ctx := context.Background()
	requests := map[string]func(r *replica, u running) error{
		"new key": func(r *replica, u running) error {
			return errtest.Of(r.GenerateKey(ctx, u.sc, scope.Sandbox, useful, PortalDraft{}))
		},
		"key rotated by an administrator": func(r *replica, u running) error {
			return errtest.Of(r.RotateKey(ctx, systemOf(dbtest.Second), u.key.ID, time.Hour))
		},
		"new token": func(r *replica, u running) error { return errtest.Of(r.IssuePortalToken(ctx, u.sc, nil)) },
		"sign-in link": func(r *replica, u running) error {
			return errtest.Of(r.Sessions.Redeem(ctx, fromAddress("127.0.0.1"), u.link, Browser{}))
		},
		"second factor": func(r *replica, u running) error {
			u.sc.EnrolOnly = true
			return errtest.Of(r.Factors.Begin(ctx, u.sc, ""))
		},
	}
	each(t, func(t *testing.T, r *replica) {
		for what, send := range requests {
			for when, remove := range removals(ctx, t, r) {
				u := r.running(ctx)
				err := remove(u, func() error { return send(r, u) })
				if got := code(err); got != "401" && got != "404" {
					t.Errorf("%s, %s: got %s, want a refusal", what, when, got)
				}
				if n := leftOf(t, r, u.user.ID); n > 0 {
					t.Errorf("%s, %s: %d credentials are left", what, when, n)
				}
			}
		}
	})
}

// running signs a person in, who has a key and a sign-in link.
func (r *replica) running(ctx context.Context) running {
	r.t.Helper()
	u := running{user: r.createUser(dbtest.Second, "alice", user.RolePolicyAuthor), sc: r.signedIn(dbtest.Second, "alice")}
	var err error
	u.key, err = r.GenerateKey(ctx, u.sc, scope.Sandbox, useful, PortalDraft{})
	errtest.Must(r.t, err)
	u.link, err = r.Sessions.Link(ctx, dbtest.Second, "alice", time.Minute)
	errtest.Must(r.t, err)
	return u
}

// TestNoKeyWhileDisabled: a person who is being disabled makes no key, and their earlier key works
// again when they are enabled.
func TestNoKeyWhileDisabled(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		u := r.running(ctx)
		set := func(status string) {
			t.Helper()
			errtest.Must(t, errtest.Of(r.Users.Update(ctx, systemOf(dbtest.Second), u.user.ID, user.Change{Status: patch.Set(status)})))
		}
		set(user.Disabled)
		if _, err := r.GenerateKey(ctx, u.sc, scope.Sandbox, useful, PortalDraft{}); code(err) != "401" {
			t.Errorf("GenerateKey of a disabled person: got %v, want 401", err)
		}
		set(user.Active)
		r.want("the earlier key", Credential{APIKey: u.key.Key}, "ok")
		if _, err := r.GenerateKey(ctx, u.sc, scope.Sandbox, useful, PortalDraft{}); code(err) != "401" {
			t.Errorf("GenerateKey with a session from before: got %v, want 401", err)
		}
	})
}

// TestRemovalWaits: a removal waits for a transaction that inserts a key, and then ends the key.
func TestRemovalWaits(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		u := r.running(ctx)
		k := u.key
		k.ID, k.Digest = "another", "another"
		done, started := make(chan error, 1), false
		errtest.Must(t, r.Stores.Write(ctx, dbtest.Second, func(tx *db.Tx) error {
			if err := requireOwner(ctx, tx, u.sc, k); err != nil {
				return err
			}
			if !started {
				started = true
				go func() { done <- errtest.Of(r.Users.Delete(ctx, systemOf(dbtest.Second), u.user.ID)) }()
				if ended, err := usertest.UntilBlocked(t, r.Stores, done); ended {
					t.Errorf("the removal did not wait: %v", err)
					done <- err
				}
			}
			return insertKey(ctx, tx, k)
		}))
		errtest.Must(t, <-done)
		if n := leftOf(t, r, u.user.ID); n > 0 {
			t.Errorf("%d credentials are left", n)
		}
	})
}

// TestNewPersonFindsNothing: what an earlier fault left behind of a person ends when somebody gets
// the same id.
func TestNewPersonFindsNothing(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		u := r.running(ctx)
		errtest.Must(t, errtest.Of(r.Users.Delete(ctx, systemOf(dbtest.Second), u.user.ID)))
		errtest.Must(t, r.Stores.Write(ctx, dbtest.Second, func(tx *db.Tx) error { return insertKey(ctx, tx, u.key) }))
		errtest.Must(t, errtest.Of(r.Users.Create(ctx, systemOf(dbtest.Second), user.Draft{ID: u.user.ID, Username: "alice", Email: "a@example.com", Roles: []string{user.RolePolicyAuthor}})))
		if n := leftOf(t, r, u.user.ID); n > 0 {
			t.Errorf("a new person has %d credentials of the earlier one", n)
		}
	})
}
