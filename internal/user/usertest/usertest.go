// Package usertest removes people while requests of theirs run, for the tests of packages that
// store something for them.
package usertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

const (
	id      = "ann"
	session = "s1"
)

// Removal is a store with the person ann, who can be removed.
type Removal struct {
	t      *testing.T
	c      *db.Cluster
	people *user.Service
	// Caller is the person, signed in. A request keeps it when the person is removed.
	Caller scope.Scope
}

// NewRemoval returns a room in the second tenant. forget are the hooks of user.Service under test.
func NewRemoval(t *testing.T, c *db.Cluster, forget ...func(ctx context.Context, tx *db.Tx, who scope.Actor) error) *Removal {
	t.Helper()
	r := &Removal{t: t, c: c, Caller: scope.Scope{
		Tenant: dbtest.Second, Env: scope.Sandbox, Session: session, Permissions: scope.Permissions{All: true},
		Actor: scope.Actor{Kind: scope.Person, ID: id, Name: id},
	}}
	r.people = &user.Service{
		Stores: c, Now: func() time.Time { return time.Unix(1_800_000_000, 0).UTC() }, NewID: uuid.NewString, ForgetHooks: forget,
		CheckLimit: func(context.Context, *db.Tx, string, int64) error { return nil },
		Released:   func(context.Context, *db.Tx, string) error { return nil },
		Revoke: func(ctx context.Context, tx *db.Tx, user string, _ user.SessionEnd) error {
			return endSessions(ctx, tx, user)
		},
	}
	return r
}

func system() scope.Scope {
	return scope.Scope{Tenant: dbtest.Second, Actor: scope.Actor{Kind: scope.System, ID: "test", Name: "test"}, Permissions: scope.Permissions{All: true}, Platform: true}
}

// Create creates the person. Only the first one is signed in.
func (r *Removal) Create(signedIn bool) {
	r.t.Helper()
	ctx := context.Background()
	errtest.Must(r.t, errtest.Of(r.people.Create(ctx, system(), user.Draft{ID: id, Username: id, Email: id + "@example.com"})))
	if signedIn {
		errtest.Must(r.t, r.c.Write(ctx, dbtest.Second, func(tx *db.Tx) error { return insertSession(ctx, tx, session, id) }))
	}
}

// Remove removes the person.
func (r *Removal) Remove() {
	r.t.Helper()
	errtest.Must(r.t, errtest.Of(r.people.Delete(context.Background(), system(), id)))
}

// removeDuring removes the person, and sends a request while the removal is not yet committed.
func (r *Removal) removeDuring(send func() error) (err error) {
	r.t.Helper()
	ctx := context.Background()
	done, sent, ended := make(chan error, 1), false, false
	errtest.Must(r.t, r.c.Write(ctx, dbtest.Second, func(tx *db.Tx) error {
		if _, err := r.people.Remove(ctx, tx, system(), id); err != nil || sent { // the transaction may run again
			return err
		}
		sent = true
		go func() { done <- send() }()
		ended, err = UntilBlocked(r.t, r.c, done)
		return nil
	}))
	if !ended {
		err = <-done
	}
	return err
}

// UntilBlocked waits until a transaction of the store's database waits for another one, or until done
// receives something. SQLite runs one writer at a time, so there it does not wait.
func UntilBlocked(t *testing.T, c *db.Cluster, done <-chan error) (ended bool, err error) {
	t.Helper()
	if strings.HasSuffix(t.Name(), dbtest.SQLite) {
		return false, nil
	}
	timetest.WaitFor(t, "a transaction that waits for another one", func() bool {
		select {
		case err = <-done:
			ended = true
			return true
		default:
		}
		n, failed := db.ReadStore(t.Context(), c.System(), func(tx *db.Tx) (int64, error) { return countBlocked(t.Context(), tx) })
		errtest.Must(t, failed)
		return n > 0
	})
	return ended, err
}

// CheckRemovals checks that what a request of the person stores does not outlive the person, whenever
// the removal comes, and does not belong to a later person with the same id. send sends the request of
// r.Caller; it is refused if the person was removed. left counts what is stored for the person.
func (r *Removal) CheckRemovals(send func() error, left func(ctx context.Context, tx *db.Tx, id string) (int64, error)) {
	ctx := context.Background()
	check := func(when string) {
		r.t.Helper()
		n, err := db.Read(ctx, r.c, dbtest.Second, func(tx *db.Tx) (int64, error) { return left(ctx, tx, id) })
		if err != nil || n != 0 {
			r.t.Errorf("%s: %d objects are left (%v), want none", when, n, err)
		}
	}
	for _, x := range []struct {
		when string
		run  func() error
		want bool // whether the request is refused
	}{
		{"before the removal", func() error { err := send(); r.Remove(); return err }, false},
		{"after the removal", func() error { r.Remove(); return send() }, true},
		{"during the removal", func() error { return r.removeDuring(send) }, true},
		{"after a new person has the id", func() error {
			r.Remove()
			r.Create(false)
			defer r.Remove()
			defer check("after a new person has the id, who stays")
			return send()
		}, true},
	} {
		r.Create(true)
		if err := x.run(); fault.Is(err, fault.Unauthenticated) != x.want || !x.want && err != nil {
			r.t.Errorf("%s: got %v, want it refused: %v", x.when, err, x.want)
		}
		check(x.when)
	}
}
