package policy

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

const (
	good   = "package p\n\nallow if input.user.id == \"alice\"\n"
	better = "package p\n\nallow if input.user.id in {\"alice\", \"bob\"}\n"
	broken = "package p\n\nallow if nonsense(1)\n"
)

var (
	now     = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	passing = []TestCase{
		{Name: "alice may", Input: map[string]any{"user": map[string]any{"id": "alice"}}, Expected: true},
		{Name: "eve may not", Input: map[string]any{"user": map[string]any{"id": "eve"}}, Expected: false},
	}
)

// inProcess is an Evaluator that runs in the test's process instead of a worker.
type inProcess struct{ checks, tests atomic.Int64 }

func (e *inProcess) Validate(_ context.Context, _ scope.TenantID, source string, libs ...lang.Library) (worker.Validation, error) {
	e.checks.Add(1)
	issues := lang.CheckModule(source, libs...)
	return worker.Validation{Valid: len(issues) == 0, Errors: issues, Warnings: []lang.Issue{}}, nil
}

func (e *inProcess) Check(ctx context.Context, id scope.TenantID, source string, libs ...lang.Library) (worker.Validation, error) {
	return e.Validate(ctx, id, source, libs...)
}

func (e *inProcess) Test(ctx context.Context, _ scope.TenantID, r worker.TestRequest) ([]suite.TestResult, error) {
	e.tests.Add(1)
	c, issues := rego.Compile(rego.Meta{ID: 1, Name: r.Name}, r.Source, r.Libraries...)
	if len(issues) > 0 {
		return nil, errors.New(issues[0].Message)
	}
	var data rego.DataSource
	if len(suite.Unset(c, r.Cases)) > 0 {
		var err error
		if data, err = r.Data(ctx); err != nil {
			return nil, err
		}
	}
	return suite.RunTests(ctx, c, r.Cases, data, rego.Limits{Now: now}, nil), nil
}

// fixture is a Service with its dependencies. The bouncers 71 (sandbox) and 72 (production) have
// the same name; 73 exists only in sandbox.
type fixture struct {
	*Service
	eval    *inProcess
	stores  *db.Cluster
	license error
}

func newFixture(t *testing.T, c *db.Cluster) *fixture {
	t.Helper()
	h := &fixture{eval: &inProcess{}, stores: c}
	tick := atomic.Int64{}
	clock := func() time.Time { return now.Add(time.Duration(tick.Add(1)) * time.Millisecond) }
	tenants := &tenant.Service{Stores: c, Now: clock}
	h.Service = &Service{
		Stores: c, Now: clock, Compiler: Compiler{Evaluator: h.eval}, Tenants: tenants,
		Links: Links{
			BouncerEnv: func(_ context.Context, _ *db.Tx, id int64) (scope.Env, error) {
				env, ok := map[int64]scope.Env{71: scope.Sandbox, 72: scope.Production, 73: scope.Sandbox}[id]
				if !ok {
					return "", fault.NotFoundf("no bouncer")
				}
				return env, nil
			},
			BouncerTwin: func(_ context.Context, _ *db.Tx, id int64) (*int64, error) {
				if twin := int64(72); id == 71 {
					return &twin, nil
				}
				return nil, nil
			},
			DestinationExists: func(_ context.Context, _ *db.Tx, _ scope.Env, a actions.Action) (bool, error) {
				return a.DestinationRef == "channel:1", nil
			},
		},
		Data: func(ctx context.Context, id scope.TenantID, env scope.Env) (rego.DataSource, error) {
			spec := rego.SetSpec{Env: string(env)}
			err := c.Read(ctx, id, func(tx *db.Tx) (err error) {
				spec.Resources, err = resource.Docs(ctx, tx, env)
				return err
			})
			return rego.NewSet(spec), err
		},
		MayPromote: func(context.Context, scope.Scope) error { return h.license },
		Person: func(_ context.Context, _ scope.Scope, name string) (user.User, error) {
			for _, u := range []user.User{
				{ID: "u1", Username: "alice", Email: "alice@x.example", Status: user.Active, Roles: []string{user.RoleAdmin}},
				{ID: "u2", Username: "bob", Email: "bob@x.example", Status: user.Active, Roles: []string{user.RolePolicyAuthor}},
				{ID: "u3", Username: "carol", Status: user.Active, Roles: []string{user.RoleAuditor, "policy owner"}},
				{ID: "u4", Username: "dave", Status: user.Disabled, Roles: []string{user.RoleAdmin}},
			} {
				if name == u.ID || name == u.Username || name == u.Email {
					return u, nil
				}
			}
			return user.User{}, fault.NotFoundf("nobody")
		},
		RecordCopy: func(context.Context, *db.Tx, int64, int64) error { return nil },
		SyncErrors: func(context.Context, *db.Tx, int64, int64) (map[int64][]SyncError, error) { return nil, nil },
	}
	h.Resources = &resource.Service{
		Stores: c, Now: clock, PoliciesOf: ByResource,
		BouncersOf: func(context.Context, *db.Tx, int64) ([]int64, error) { return nil, nil },
	}
	tenants.Counters = map[string]func(context.Context, *db.Tx) (int64, error){tenant.Policies: Count}
	return h
}

// sc is the scope of alice in an environment.
func sc(env scope.Env) scope.Scope {
	return scope.Scope{Tenant: scope.DefaultTenant, Env: env, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice"}}
}

// admin is the scope of a platform administrator.
func admin() scope.Scope {
	s := sc("")
	s.Platform, s.Permissions.All = true, true
	return s
}

// resource creates a resource.
func (h *fixture) resource(t *testing.T, env scope.Env, name string) resource.Resource {
	t.Helper()
	r, err := h.Resources.Create(context.Background(), sc(""), resource.Draft{Name: name, Type: "api", Path: "/" + name, Environment: env})
	errtest.Must(t, err)
	return r
}

// create creates a control, with a name and a source if the draft has none.
func (h *fixture) create(t *testing.T, d Draft) Policy {
	t.Helper()
	if d.Name == "" {
		d.Name = "control"
	}
	if d.RegoCode == "" {
		d.RegoCode = good
	}
	p, err := h.Create(context.Background(), sc(""), d)
	errtest.Must(t, err)
	return p
}

// in runs fn in a transaction of the default tenant.
func (h *fixture) in(t *testing.T, fn func(ctx context.Context, tx *db.Tx) error) {
	t.Helper()
	ctx := context.Background()
	errtest.Must(t, h.stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error { return fn(ctx, tx) }))
}

// revision returns the revision of an environment.
func (h *fixture) revision(t *testing.T, env scope.Env) (n int64) {
	t.Helper()
	h.in(t, func(ctx context.Context, tx *db.Tx) (err error) {
		n, err = tx.Revision(ctx, resource.Revision(env))
		return err
	})
	return n
}

// wantFault fails unless err is a fault of a kind that names a member, if there is one to name.
func wantFault(t *testing.T, err error, kind fault.Kind, pointer string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Kind != kind {
		t.Fatalf("got %v, want a fault of kind %d", err, kind)
	}
	if pointer != "" && !slices.ContainsFunc(f.Details, func(d fault.Detail) bool { return d.Pointer == pointer }) {
		t.Fatalf("the fault names %+v, want %s", f.Details, pointer)
	}
}
