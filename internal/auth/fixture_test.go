package auth

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// clock is a clock that the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// replica is one server's worth of services.
type replica struct {
	*Service
	clock *clock
	t     testing.TB
}

// newReplica starts a replica on c. Replicas of one test share a clock.
func newReplica(t testing.TB, c *db.Cluster, ck *clock) *replica {
	t.Helper()
	tenants := &tenant.Service{Stores: c, Now: ck.Now, Counters: map[string]func(context.Context, *db.Tx) (int64, error){tenant.Users: user.Count}}
	hasher, err := user.NewHasher(user.Cost{Passes: 1, MemoryKiB: 64, Lanes: 1}, 0, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	people := &user.Service{Stores: c, Hasher: hasher, Now: ck.Now, NewID: uuid.NewString, CheckLimit: tenants.CheckLimit, Released: tenants.Released}
	s, err := New(context.Background(), Config{
		Stores: c, Tenants: tenants, Users: people, Hasher: hasher, Box: box(t), Now: ck.Now, NewID: uuid.NewString, Random: rand.Reader,
	})
	if err != nil {
		t.Fatal(err)
	}
	people.Revoke = RevokeUser
	t.Cleanup(s.Close)
	return &replica{Service: s, clock: ck, t: t}
}

func box(t testing.TB) *secret.Box {
	t.Helper()
	b, err := secret.New([secret.KeyBytes]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newClock() *clock { return &clock{now: time.Now().UTC().Truncate(time.Microsecond)} }

// each runs a test with one replica on each backend.
func each(t *testing.T, test func(t *testing.T, r *replica)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) { test(t, newReplica(t, c, newClock())) })
}

// one runs a test on SQLite only, if the store does not matter.
func one(t testing.TB) *replica {
	t.Helper()
	return newReplica(t, dbtest.Open(t, dbtest.SQLite), newClock())
}

const password = "correct horse battery"

func root() scope.Scope { return SystemScope(scope.DefaultTenant, "test", "req") }

// person adds somebody with roles to a tenant.
func (r *replica) person(t scope.TenantID, name string, roles ...string) user.User {
	r.t.Helper()
	sc := root()
	sc.Tenant = t
	u, err := r.Users.Create(context.Background(), sc, user.Draft{Username: name, Email: name + "@example.com", Password: password, Roles: roles})
	if err != nil {
		r.t.Fatal(err)
	}
	return u
}

func stranger(t scope.TenantID) scope.Scope {
	return scope.Scope{Tenant: t, Actor: scope.Actor{IP: "192.0.2.7"}, RequestID: "req"}
}

// Login signs in with a name and a password alone, as most people do.
func (r *replica) Login(ctx context.Context, sc scope.Scope, name, password string) (Grant, error) {
	return r.Service.Login(ctx, sc, Proof{Username: name, Password: password})
}

// token signs somebody in.
func (r *replica) token(t scope.TenantID, name string) string {
	r.t.Helper()
	g, err := r.Login(context.Background(), stranger(t), name, password)
	if err != nil {
		r.t.Fatalf("login of %s: %v", name, err)
	}
	return g.AccessToken
}

// signedIn returns the scope of a person who has signed in.
func (r *replica) signedIn(t scope.TenantID, name string) scope.Scope {
	r.t.Helper()
	sc, _, err := r.Authenticate(context.Background(), Credential{Bearer: r.token(t, name)})
	if err != nil {
		r.t.Fatal(err)
	}
	return sc
}

// key makes an API key of a tenant.
func (r *replica) key(t scope.TenantID, scopes ...string) Key {
	r.t.Helper()
	sc := root()
	sc.Tenant = t
	k, err := r.CreateKey(context.Background(), sc, KeyDraft{Name: "k", Scopes: scopes})
	if err != nil {
		r.t.Fatal(err)
	}
	return k
}

// is authenticates with a credential, and returns the kind of the error, or ok.
func (r *replica) is(c Credential) (scope.Scope, string) {
	sc, _, err := r.Authenticate(context.Background(), c)
	if err == nil {
		return sc, "ok"
	}
	return sc, code(err)
}

// code returns the kind and code of an error, as callers see them.
func code(err error) string {
	for _, k := range []struct {
		kind fault.Kind
		name string
	}{{fault.Unauthenticated, "401"}, {fault.Forbidden, "403"}, {fault.NotFound, "404"}, {fault.Invalid, "422"}, {fault.BadRequest, "400"}, {fault.Conflict, "409"}} {
		if fault.Is(err, k.kind) {
			return k.name
		}
	}
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// want fails unless the credential gets the expected answer.
func (r *replica) want(what string, c Credential, want string) {
	r.t.Helper()
	if _, got := r.is(c); got != want {
		r.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// signOut ends a session.
func signOut(r *replica, sc scope.Scope) error {
	_, err := r.Sessions.Logout(context.Background(), sc)
	return err
}
