package auth

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// replica is one server's worth of services.
type replica struct {
	*Service
	clock *timetest.Clock
	t     testing.TB
}

// newReplica starts a replica on c. Replicas of one test share a clock.
func newReplica(t testing.TB, c *db.Cluster, clk *timetest.Clock) *replica {
	t.Helper()
	tenants := &tenant.Service{Stores: c, Now: clk.Now, Counters: map[string]func(context.Context, *db.Tx) (int64, error){tenant.Users: user.Count}}
	hasher, err := user.NewHasher(user.Cost{Passes: 1, MemoryKiB: 64, Lanes: 1}, 0, rand.Reader)
	errtest.Must(t, err)
	people := &user.Service{Stores: c, Hasher: hasher, Now: clk.Now, NewID: uuid.NewString, CheckLimit: tenants.CheckLimit, Released: tenants.UpdateUsageAlerts}
	s, err := New(context.Background(), Config{
		Stores: c, Tenants: tenants, Users: people, Hasher: hasher, Box: box(t), Now: clk.Now, NewID: uuid.NewString, Random: rand.Reader,
	})
	errtest.Must(t, err)
	people.Revoke = RevokeUser
	t.Cleanup(s.Close)
	return &replica{Service: s, clock: clk, t: t}
}

func box(t testing.TB) *secret.Box {
	t.Helper()
	b, err := secret.New([secret.KeyBytes]byte{1})
	errtest.Must(t, err)
	return b
}

func newClock() *timetest.Clock { return timetest.At(time.Now().UTC().Truncate(time.Microsecond)) }

// eachPair runs a test with two replicas on one store, on each of the backends.
func eachPair(t *testing.T, backends []string, test func(t *testing.T, here, there *replica)) {
	t.Helper()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			cfg, clk := dbtest.Config(t, backend), newClock()
			test(t, newReplica(t, dbtest.OpenConfig(t, cfg), clk), newReplica(t, dbtest.OpenConfig(t, cfg), clk))
		})
	}
}

// systemOf is the scope of the service's own work in a tenant.
func systemOf(t scope.TenantID) scope.Scope { return SystemScope(t, "test", "req") }

// each runs a test with one replica on each backend.
func each(t *testing.T, test func(t *testing.T, r *replica)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) { test(t, newReplica(t, c, newClock())) })
}

// newSQLite returns a replica on SQLite, for a test in which the store does not matter.
func newSQLite(t testing.TB) *replica {
	t.Helper()
	return newReplica(t, dbtest.Open(t, dbtest.SQLite), newClock())
}

const password = "correct horse battery"

func root() scope.Scope { return SystemScope(scope.DefaultTenant, "test", "req") }

// createUser creates a user with roles in a tenant.
func (r *replica) createUser(t scope.TenantID, name string, roles ...string) user.User {
	r.t.Helper()
	sc := root() // it may grant every role
	sc.Tenant = t
	u, err := r.Users.Create(context.Background(), sc, user.Draft{Username: name, Email: name + "@example.com", Password: password, Roles: roles})
	errtest.Must(r.t, err)
	return u
}

// anonymous is the scope of a request without a credential.
func anonymous(t scope.TenantID) scope.Scope {
	return scope.Scope{Tenant: t, Actor: scope.Actor{IP: "192.0.2.7"}, RequestID: "req"}
}

// Login signs in with a name and a password alone, as most people do.
func (r *replica) Login(ctx context.Context, sc scope.Scope, name, password string) (Grant, error) {
	return r.Service.Login(ctx, sc, Proof{Username: name, Password: password})
}

// signIn signs a user in and returns the token.
func (r *replica) signIn(t scope.TenantID, name string) string {
	r.t.Helper()
	g, err := r.Login(context.Background(), anonymous(t), name, password)
	if err != nil {
		r.t.Fatalf("login of %s: %v", name, err)
	}
	return g.AccessToken
}

// signedIn signs a user in and returns the scope.
func (r *replica) signedIn(t scope.TenantID, name string) scope.Scope {
	r.t.Helper()
	sc, _, err := r.Authenticate(context.Background(), Credential{Bearer: r.signIn(t, name)})
	errtest.Must(r.t, err)
	return sc
}

// createKey creates an API key of a tenant.
func (r *replica) createKey(t scope.TenantID, scopes ...string) Key {
	r.t.Helper()
	k, err := r.CreateKey(context.Background(), systemOf(t), KeyDraft{Name: "k", Scopes: scopes})
	errtest.Must(r.t, err)
	return k
}

// try authenticates with a credential, and returns the scope and the status as code does.
func (r *replica) try(c Credential) (scope.Scope, string) {
	sc, _, err := r.Authenticate(context.Background(), c)
	if err == nil {
		return sc, "ok"
	}
	return sc, code(err)
}

// code returns the HTTP status of an error, ok without one, and the text of an error of another kind.
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

// want fails unless the credential gets a status.
func (r *replica) want(what string, c Credential, want string) {
	r.t.Helper()
	if _, got := r.try(c); got != want {
		r.t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

// signOut ends a session.
func signOut(r *replica, sc scope.Scope) error {
	_, err := r.Sessions.Logout(context.Background(), sc)
	return err
}
