package bridge

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// inProcess evaluates in this process instead of the worker.
type inProcess struct{}

func (inProcess) Validate(_ context.Context, _ scope.TenantID, source string, libs ...lang.Library) (worker.Validation, error) {
	issues := lang.CheckModule(source, libs...)
	return worker.Validation{Valid: len(issues) == 0, Errors: issues, Warnings: []lang.Issue{}}, nil
}

func (e inProcess) Check(ctx context.Context, id scope.TenantID, source string, libs ...lang.Library) (worker.Validation, error) {
	return e.Validate(ctx, id, source, libs...)
}

func (inProcess) Test(context.Context, scope.TenantID, worker.TestRequest) ([]suite.TestResult, error) {
	return nil, errors.New("this evaluator runs no tests")
}

// fixture is a bridge with real services.
type fixture struct {
	*Service
	t         testing.TB
	stores    *db.Cluster
	policies  *policy.Service
	resources *resource.Service
	tenants   *tenant.Service
	log       *audit.DecisionLog

	mu     sync.Mutex
	offset time.Duration
	// fullReads counts how often all resources were read, singleReads how many were read one by
	// one.
	fullReads, singleReads int
	counted                []string
}

// now is the wall clock, moved by the skipped time.
func (h *fixture) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().UTC().Add(h.offset)
}

// count adds to fullReads and singleReads, and returns both.
func (h *fixture) count(fullReads, singleReads int) (int, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fullReads += fullReads
	h.singleReads += singleReads
	return h.fullReads, h.singleReads
}

// skip moves the clock forward.
func (h *fixture) skip(d time.Duration) {
	h.mu.Lock()
	h.offset += d
	h.mu.Unlock()
}

// newFixture starts a bridge on c.
func newFixture(t testing.TB, c *db.Cluster) *fixture {
	t.Helper()
	h := &fixture{t: t, stores: c}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	h.tenants = &tenant.Service{Stores: c, Now: h.now, Counters: map[string]func(context.Context, *db.Tx) (int64, error){}}
	h.resources = &resource.Service{Stores: c, Now: h.now}
	bouncers := &bouncer.Service{Stores: c, Now: h.now, Random: rand.Reader, Tenants: h.tenants, Root: "http://gate/api/v1"}
	h.policies = &policy.Service{
		Stores: c, Now: h.now, Compiler: policy.Compiler{Evaluator: inProcess{}}, Tenants: h.tenants,
		Links: policy.Links{
			Resources: h.resources, BouncerEnv: bouncer.EnvironmentOf, BouncerTwin: bouncer.FindTwin,
			DestinationExists: func(context.Context, *db.Tx, scope.Env, actions.Action) (bool, error) { return false, nil },
		},
		SyncErrors: func(context.Context, *db.Tx, int64, int64) (map[int64][]policy.SyncError, error) { return nil, nil },
	}
	h.resources.PoliciesOf, h.resources.BouncersOf = policy.ByResource, bouncer.LinkedTo
	h.resources.AddToBouncer, h.resources.RemoveFromBouncers = bouncers.AddResources, bouncers.RemoveResource
	bouncers.LinksOf = policy.LinksOfBouncer
	h.tenants.Counters[tenant.Policies], h.tenants.Counters[tenant.Bouncers] = policy.Count, bouncer.Count
	snapshots := &decision.Snapshots{Load: h.load, Changes: h.changes, Log: quiet, Idle: time.Hour, Now: h.now, Revision: func(ctx context.Context, id scope.TenantID, env scope.Env) (int64, error) {
		store, err := c.Tenant(ctx, id)
		if err != nil {
			return 0, err
		}
		return store.Revision(ctx, resource.Revision(env))
	}}
	stopWatch := c.Watch(snapshots.OnChange)
	log, err := spool.Open(spool.Config{Dir: t.TempDir(), Sync: spool.SyncNever})
	errtest.Must(t, err)
	h.log = audit.NewDecisionLog(audit.Config{Cluster: c, Spool: log, SetAside: t.TempDir(), Now: h.now, Logger: quiet})
	box, err := secret.New([32]byte{1})
	errtest.Must(t, err)
	h.Service = New(Config{
		Stores: c, Bouncers: bouncers, Snapshots: snapshots, Links: policy.BouncerLinks, Facts: h.tenants.Facts, Audit: h.log, Discover: h.resources.Discover,
		Observe: h.observe, Box: box, Random: rand.Reader, Now: h.now, Log: quiet, Sweep: 20 * time.Millisecond,
	})
	bouncers.VerifyKey = h.VerifyKey
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = h.Run(ctx) })
	done.Go(func() { _ = h.log.Run(ctx) })
	t.Cleanup(func() {
		h.Close()
		cancel()
		done.Wait()
		stopWatch()
		log.Close()
	})
	return h
}

func (h *fixture) observe(_ scope.TenantID, policy int64, took time.Duration, hit bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counted = append(h.counted, fmt.Sprint(policy, " ", took, " ", hit))
}

// waitLogged waits until the decision log has n decisions, and returns them.
func (h *fixture) waitLogged(n int64) []audit.Decision {
	h.t.Helper()
	var page audit.Page
	h.until(fmt.Sprintf("%d decisions in the log", n), func() bool {
		var err error
		page, err = h.log.Query(context.Background(), person(scope.DefaultTenant), audit.Filter{})
		return err == nil && page.Total == n
	})
	return page.Logs
}

// observed lists the counted evaluations in order.
func (h *fixture) observed() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.counted)
}

func (h *fixture) load(ctx context.Context, id scope.TenantID, env scope.Env) (decision.Source, error) {
	store, err := h.stores.Tenant(ctx, id)
	if err != nil {
		return decision.Source{}, err
	}
	var src decision.Source
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		if src.Revision, err = tx.Revision(ctx, resource.Revision(env)); err != nil {
			return err
		}
		list, err := policy.ControlsFor(ctx, tx, env)
		for _, c := range list {
			src.Controls = append(src.Controls, decision.ControlText{Meta: rego.Meta{ID: c.ID, Name: c.Name, Version: c.Version, ResourceID: c.ResourceID}, Source: c.Source})
		}
		if err != nil {
			return err
		}
		h.count(1, 0)
		if src.Libraries, err = policy.LibrariesFor(ctx, tx, env); err != nil {
			return err
		}
		src.Resources, err = resource.Docs(ctx, tx, env)
		return err
	})
	return src, err
}

// changes returns the resources that changed since a revision. ok is false if anything else
// changed; then the set is loaded again.
func (h *fixture) changes(ctx context.Context, id scope.TenantID, env scope.Env, since int64) (out decision.Delta, ok bool, err error) {
	store, err := h.stores.Tenant(ctx, id)
	if err != nil {
		return out, false, err
	}
	err = store.Read(ctx, func(tx *db.Tx) error {
		to, err := tx.Revision(ctx, resource.Revision(env))
		if err != nil {
			return err
		}
		var d resource.Delta
		if d, ok, err = resource.DocsSince(ctx, tx, env, since, to); err != nil || !ok || d.Revisions < to-since {
			ok = false
			return err
		}
		h.count(0, len(d.Docs))
		out = decision.Delta{Revision: to, Resources: d.Docs, RemovedResources: d.Removed}
		return nil
	})
	return out, ok, err
}

// person is the scope of a person with all permissions.
func person(t scope.TenantID) scope.Scope {
	return scope.Scope{Tenant: t, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice"}, Permissions: scope.Permissions{All: true}}
}

// client is a client of the bridge: a bouncer with its token.
type client struct {
	h     *fixture
	sc    scope.Scope
	id    int64
	token string
}

// bouncer creates a bouncer that protects resources.
func (h *fixture) bouncer(env scope.Env, config map[string]any, resources ...int64) *client {
	h.t.Helper()
	made, err := h.cfg.Bouncers.Create(context.Background(), person(scope.DefaultTenant), bouncer.Draft{
		Name: fmt.Sprintf("edge-%d", time.Now().UnixNano()), Environment: env, Configuration: config, ResourceIDs: resources,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return &client{h: h, id: made.ID, token: secret.DigestOf(made.Token), sc: scope.Scope{
		Tenant: scope.DefaultTenant, Env: env, EnvBound: true, Actor: scope.Actor{Kind: scope.Bouncer, ID: strconv.FormatInt(made.ID, 10), Name: made.Name},
	}}
}

func (h *fixture) resource(env scope.Env, path string) resource.Resource {
	h.t.Helper()
	r, err := h.resources.Create(context.Background(), person(scope.DefaultTenant), resource.Draft{Name: path, Type: "api", Path: path, Environment: env})
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *fixture) control(env scope.Env, name string, resourceID int64, source string) policy.Policy {
	h.t.Helper()
	d := policy.Draft{Name: name, Environment: env, RegoCode: source, Status: policy.Active}
	if resourceID != 0 {
		d.ResourceID = &resourceID
	}
	p, err := h.policies.Create(context.Background(), person(scope.DefaultTenant), d)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (h *fixture) rewrite(p policy.Policy, source string) {
	h.t.Helper()
	if _, err := h.policies.Update(context.Background(), person(scope.DefaultTenant), p.ID, policy.Change{RegoCode: &source}, 0); err != nil {
		h.t.Fatal(err)
	}
}

// poll sends one request for the bundle. With wait 0 it returns at once.
func (g *client) poll(wait time.Duration, remote string, tags ...string) (*Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return g.h.Bundle(ctx, g.sc, Poll{BouncerID: g.id, Token: g.token, Tags: tags, Wait: wait, Remote: remote})
}

// fetch polls and expects a bundle, which it reads completely.
func (g *client) fetch(tags ...string) (string, *bundle.Bundle) {
	g.h.t.Helper()
	return g.read(g.poll(10*time.Second, "conn", tags...))
}

// read reads the bundle of an answer.
func (g *client) read(a *Answer, err error) (string, *bundle.Bundle) {
	g.h.t.Helper()
	if err != nil || a.Parts == nil {
		g.h.t.Fatalf("the poll is answered with %+v, error %v, want a bundle", a, err)
	}
	a.Delivered()
	b, err := bundle.Reader{}.Read(bytes.Join(a.Parts, nil))
	if err != nil {
		g.h.t.Fatal(err)
	}
	if a.ETag != `"`+b.Revision+`"` {
		g.h.t.Errorf("the ETag is %s, want the revision %s", a.ETag, b.Revision)
	}
	return a.ETag, b
}

// wantNothing polls, and reports an answer with a bundle.
func (g *client) wantNothing(what, remote string, tags ...string) {
	g.h.t.Helper()
	if a, err := g.poll(0, remote, tags...); err != nil || a.Parts != nil {
		g.h.t.Errorf("%s: the poll is answered with %+v, error %v, want no bundle", what, a, err)
	}
}

// parked is a poll that waits.
type parked struct {
	t    testing.TB
	ends chan pollResult
}

type pollResult struct {
	*Answer
	err error
}

// end returns the result of the poll. The limit is several times what a change takes. It is shorter
// than the wait of the poll, and than the 15 seconds after which a store checks a quiet listener:
// only the notification of a change ends the poll in time.
func (p parked) end() pollResult {
	p.t.Helper()
	const limit = 5 * time.Second
	select {
	case r := <-p.ends:
		return r
	case <-time.After(limit):
		p.t.Fatalf("the poll waits %s after the change, want it to end", limit)
		return pollResult{}
	}
}

// park starts a poll that only a change ends in time, and returns when it waits.
func (g *client) park(tag string) parked {
	g.h.t.Helper()
	p := parked{g.h.t, make(chan pollResult, 1)}
	go func() {
		a, err := g.poll(MaxWait, "parked", tag)
		p.ends <- pollResult{a, err}
	}()
	g.h.until("a waiting poll", func() bool { return g.h.environment(environmentKey{scope.DefaultTenant, g.sc.Env}).countWaiting() == 1 })
	return p
}

// until waits until ok is true.
func (h *fixture) until(what string, ok func() bool) {
	h.t.Helper()
	timetest.WaitFor(h.t, what, ok)
}

// record returns the bouncer as the control plane knows it.
func (g *client) record() bouncer.Bouncer {
	g.h.t.Helper()
	b, err := g.h.cfg.Bouncers.Get(context.Background(), person(scope.DefaultTenant), g.id)
	if err != nil {
		g.h.t.Fatal(err)
	}
	return b
}

// revision returns which bundle the bouncer runs and refuses.
func (g *client) revision() BouncerRevision {
	g.h.t.Helper()
	r, err := g.h.Revisions(context.Background(), person(scope.DefaultTenant), g.sc.Env)
	if err != nil {
		g.h.t.Fatal(err)
	}
	for _, b := range r.Bouncers {
		if b.BouncerID == g.id {
			return b
		}
	}
	g.h.t.Fatalf("bouncer %d is not in the list of revisions", g.id)
	return BouncerRevision{}
}

// each runs a test with a fixture on each store.
func each(t *testing.T, test func(t *testing.T, h *fixture)) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) { test(t, newFixture(t, c)) })
}

func enrichOwner(t testing.TB, email string) resource.EnrichmentChange {
	t.Helper()
	return resource.EnrichmentChange{OwnerEmail: patch.Set(email)}
}

func linkTo(id int64) policy.Change { return policy.Change{BouncerID: patch.Set(id)} }

// suspend suspends the tenant.
func suspend(t testing.TB, h *fixture) {
	t.Helper()
	ctx := context.Background()
	err := h.stores.System().Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE tenants SET status = 'suspended' WHERE id = $1`, string(scope.DefaultTenant)); err != nil {
			return err
		}
		_, err := tx.Bump(ctx, tenant.Revision)
		return err
	})
	errtest.Must(t, err)
}

func parsePEM(t testing.TB, text string) crypto.PublicKey {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	errtest.Must(t, err)
	return key
}

// zipped returns a text as gzip packs it.
func zipped(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	errtest.Must(t, errtest.Of(io.WriteString(z, s)))
	errtest.Must(t, z.Close())
	return b.String()
}

// unpack returns the files of a bundle.
func unpack(t testing.TB, data []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	errtest.Must(t, err)
	out := map[string]string{}
	for in := tar.NewReader(z); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		errtest.Must(t, err)
		body, err := io.ReadAll(in)
		errtest.Must(t, err)
		out[head.Name] = string(body)
	}
}
