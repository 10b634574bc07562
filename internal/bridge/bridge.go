// Package bridge delivers controls to bouncers and receives their reports.
// It speaks OPA's management protocols, so a stock OPA is a bouncer too; HTTP
// itself is in package api.
//
//	a change ──commit──▶ Watch ──▶ environment.refresh: who gets what now?
//	                                 │  content, packed once for all who share it
//	                                 │  hash changed: next revision, persisted
//	                                 ▼
//	   GET bundle ──▶ state ◀── wakes its waiting polls
//	                    │        sent · activated · refused · seen
//	   POST status ────▶┘               │
//	                                 activity: written in batches
//	   POST logs ──▶ split ──▶ audit (safe before the answer)
//
// An environment is the state of one tenant's environment in one replica: the set of
// controls, shared with decisions, and a state for each bouncer. It is loaded when
// the first bouncer polls, and follows the store's revisions. Every replica does
// this on its own. That is safe, because a content gets its revision under a lock,
// and equal content keeps its revision.
//
// A bouncer gets the controls of the resources that it protects, the tenant-wide
// controls, those resources, the data that these controls read, and which AI agents
// are stopped; owner_email is left out.
package bridge

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Config is what a Service needs. All but Observe must be set.
type Config struct {
	Stores   *db.Cluster
	Bouncers *bouncer.Service
	// Snapshots holds the sets of controls that make decisions.
	Snapshots *decision.Snapshots
	// Links returns the resources of the controls that name each bouncer
	// (policy.Service.BouncerLinks).
	Links func(ctx context.Context, tx *db.Tx, env scope.Env) (map[int64][]int64, error)
	// Facts reports whether a tenant is served (tenant.Service.Facts).
	Facts func(ctx context.Context, id scope.TenantID) (tenant.Facts, error)
	// Audit stores the decisions that bouncers log.
	Audit *audit.DecisionLog
	// Observe counts an evaluation by a bouncer for the metrics of its control.
	Observe func(tenant scope.TenantID, policy int64, took time.Duration, cacheHit bool)
	// Discover registers hosts that a bouncer reports (resource.Service.Discover).
	Discover func(ctx context.Context, sc scope.Scope, bouncer int64, seen []resource.Sighting, unknown func(names []string) []string) (resource.Discovery, error)
	// Box encrypts the keys that sign bundles.
	Box    *secret.Box
	Random io.Reader
	Now    func() time.Time
	Log    *slog.Logger
	// PollSeconds is how long stock OPAs should let a poll wait, in seconds; 0 means
	// 30.
	PollSeconds int
	// Sweep is the interval at which missed changes and lost bouncers are looked for; 0 means 5 s.
	Sweep time.Duration
}

// Service is the bridge of one replica. New makes one; Run must run.
type Service struct {
	cfg      Config
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	work     sync.WaitGroup
	begin    sync.Mutex // held where work begins or ends for good
	stop     func()
	activity *activityLog
	keys     keyring
	health   healthBoard

	mu           sync.Mutex
	environments map[environmentKey]*environment
}

// environmentKey identifies an environment.
type environmentKey struct {
	tenant scope.TenantID
	env    scope.Env
}

// New makes the bridge. Close stops it.
func New(cfg Config) *Service {
	if cfg.PollSeconds <= 0 {
		cfg.PollSeconds = 30
	}
	if cfg.Sweep <= 0 {
		cfg.Sweep = 5 * time.Second
	}
	if cfg.Observe == nil {
		cfg.Observe = func(scope.TenantID, int64, time.Duration, bool) {}
	}
	s := &Service{cfg: cfg, environments: map[environmentKey]*environment{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.activity = newActivityLog(s)
	s.stop = cfg.Stores.Watch(s.onChange)
	return s
}

// Run stores what bouncers do, and sweeps, until ctx ends. It first stores everything
// that is pending.
func (s *Service) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { s.activity.run(ctx) })
	both.Go(func() { s.sweepLoop(ctx) })
	both.Wait()
	return nil
}

// Close answers all waiting polls and waits for the bridge's goroutines.
func (s *Service) Close() {
	s.stop()
	s.begin.Lock()
	s.cancel()
	s.begin.Unlock()
	s.work.Wait()
}

// background runs f in a goroutine that Close waits for; after Close it does nothing.
func (s *Service) background(f func()) {
	s.begin.Lock()
	defer s.begin.Unlock()
	if s.ctx.Err() == nil {
		s.work.Go(f)
	}
}

// onChange is called for every commit that increments a revision, on any replica. It
// must return at once.
func (s *Service) onChange(tenantID scope.TenantID, name string) {
	switch {
	case tenantID == "" && (name == "" || name == tenant.Revision):
		for _, f := range s.allEnvironments() {
			f.noteChange()
		}
	case tenantID == "":
	case name == bouncer.Topic:
		for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
			s.noteChange(environmentKey{tenantID, env})
		}
	default:
		for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
			if name == resource.Revision(env) {
				s.noteChange(environmentKey{tenantID, env})
			}
		}
	}
}

func (s *Service) noteChange(p environmentKey) {
	s.mu.Lock()
	f := s.environments[p]
	s.mu.Unlock()
	if f != nil {
		f.noteChange()
	}
}

func (s *Service) allEnvironments() []*environment {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*environment, 0, len(s.environments))
	for _, f := range s.environments {
		out = append(out, f)
	}
	return out
}

func (s *Service) environment(p environmentKey) *environment {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.environments[p]
	if f == nil {
		f = newEnvironment(s, p)
		s.environments[p] = f
	}
	return f
}

func (s *Service) drop(f *environment) {
	s.mu.Lock()
	if s.environments[f.environmentKey] == f {
		delete(s.environments, f.environmentKey)
	}
	s.mu.Unlock()
}

func systemScope(t scope.TenantID) scope.Scope { return auth.SystemScope(t, "policy-bridge", "") }

// callingBouncer returns the id of the calling bouncer. Only bouncers may use the bridge.
func callingBouncer(sc scope.Scope) (int64, error) {
	if sc.Actor.Kind != scope.Bouncer {
		return 0, fault.New(fault.Forbidden, "bouncers_only", "this needs a bouncer's token")
	}
	id, err := strconv.ParseInt(sc.Actor.ID, 10, 64)
	if err != nil || id <= 0 || !sc.Env.Valid() {
		return 0, fault.New(fault.Forbidden, "bouncers_only", "this needs a bouncer's token")
	}
	return id, nil
}

// noBouncer returns the answer for any bouncer but the caller's own: a caller does not learn
// whether another bouncer exists.
func noBouncer() error { return fault.NotFoundf("no such bouncer") }

// bouncerState returns the state of the calling bouncer, in a loaded environment. token is the hash
// of the token that it sent.
func (s *Service) bouncerState(ctx context.Context, sc scope.Scope, token string) (*environment, *bouncerState, error) {
	id, err := callingBouncer(sc)
	if err != nil {
		return nil, nil, err
	}
	if s.ctx.Err() != nil {
		return nil, nil, fault.Stopping()
	}
	f := s.environment(environmentKey{sc.Tenant, sc.Env})
	d, err := f.bouncerState(ctx, id, token)
	return f, d, err
}
