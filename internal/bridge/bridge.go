// Package bridge brings controls to bouncers and takes back what they report.
// It speaks OPA's management protocols, so a stock OPA is a bouncer too; HTTP
// itself is in package api.
//
//	a change ──commit──▶ Watch ──▶ feed.refresh: who gets what now?
//	                                 │  content, packed once for all who share it
//	                                 │  hash changed: next revision, persisted
//	                                 ▼
//	   GET bundle ──▶ desk ◀── wakes the polls parked at it
//	                    │        sent · activated · refused · seen
//	   POST status ────▶┘               │
//	                                 ledger: written in batches
//	   POST logs ──▶ split ──▶ audit (safe before the answer)
//
// A feed is what a replica knows of one tenant's environment: the set of
// controls that decisions use, too, and a desk for each bouncer. It is loaded
// when the first bouncer asks and follows the store's revisions; that every
// replica does so by itself is harmless, for a revision is given to a content,
// under a lock, and the same content keeps it.
//
// A bouncer gets the controls of the resources that it stands before and the
// tenant-wide ones, those resources, and of the data what these controls refer
// to; owner_email is left out.
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
	// Snapshots are the sets of controls that decisions are made by.
	Snapshots *decision.Snapshots
	// Links gives the resources of the controls that name each bouncer
	// (policy.Service.BouncerLinks).
	Links func(ctx context.Context, tx *db.Tx, env scope.Env) (map[int64][]int64, error)
	// Facts tells whether a tenant is served (tenant.Service.Facts).
	Facts func(ctx context.Context, id scope.TenantID) (tenant.Facts, error)
	// Audit takes the decisions that bouncers log.
	Audit *audit.DecisionLog
	// Observe counts an evaluation by a bouncer for the metrics of its control.
	Observe func(tenant scope.TenantID, policy int64, took time.Duration, cacheHit bool)
	// Discover registers hosts that a bouncer reports (resource.Service.Discover).
	Discover func(ctx context.Context, sc scope.Scope, bouncer int64, seen []resource.Sighting, unknown func(names []string) []string) (resource.Discovery, error)
	// Box seals the keys that bundles are signed with.
	Box    *secret.Box
	Random io.Reader
	Now    func() time.Time
	Log    *slog.Logger
	// PollSeconds is how long stock OPAs are told to let a poll wait; 0 means 30.
	PollSeconds int
	// Sweep is how often missed changes and bouncers that are gone are looked
	// for; 0 means 5 s.
	Sweep time.Duration
}

// Service is the bridge of one replica. Make one with New; Run must run.
type Service struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
	begin  sync.Mutex // held where work begins or ends for good
	stop   func()
	ledger *ledger
	keys   keyring
	health healthBoard

	mu    sync.Mutex
	feeds map[place]*feed
}

// place is what a feed is of.
type place struct {
	tenant scope.TenantID
	env    scope.Env
}

// New makes the bridge. Close ends it.
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
	s := &Service{cfg: cfg, feeds: map[place]*feed{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.ledger = newLedger(s)
	s.stop = cfg.Stores.Watch(s.onChange)
	return s
}

// Run writes down what bouncers do, and sweeps, until ctx ends; what was to be
// written then is written first.
func (s *Service) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { s.ledger.run(ctx) })
	both.Go(func() { s.sweepLoop(ctx) })
	both.Wait()
	return nil
}

// Close answers all parked polls and waits for what the bridge began.
func (s *Service) Close() {
	s.stop()
	s.begin.Lock()
	s.cancel()
	s.begin.Unlock()
	s.work.Wait()
}

// background runs f in the background, for Close to wait for; after Close it does not.
func (s *Service) background(f func()) {
	s.begin.Lock()
	defer s.begin.Unlock()
	if s.ctx.Err() == nil {
		s.work.Go(f)
	}
}

// onChange is told of every commit that bumps a revision, of all replicas. It must
// return at once.
func (s *Service) onChange(tenantID scope.TenantID, name string) {
	switch {
	case tenantID == "" && (name == "" || name == tenant.Revision):
		for _, f := range s.all() {
			f.changed()
		}
	case tenantID == "":
	case name == bouncer.Topic:
		for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
			s.wakeFeed(place{tenantID, env})
		}
	default:
		for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
			if name == resource.Revision(env) {
				s.wakeFeed(place{tenantID, env})
			}
		}
	}
}

func (s *Service) wakeFeed(p place) {
	s.mu.Lock()
	f := s.feeds[p]
	s.mu.Unlock()
	if f != nil {
		f.changed()
	}
}

func (s *Service) all() []*feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*feed, 0, len(s.feeds))
	for _, f := range s.feeds {
		out = append(out, f)
	}
	return out
}

func (s *Service) feed(p place) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feeds[p]
	if f == nil {
		f = newFeed(s, p)
		s.feeds[p] = f
	}
	return f
}

func (s *Service) drop(f *feed) {
	s.mu.Lock()
	if s.feeds[f.place] == f {
		delete(s.feeds, f.place)
	}
	s.mu.Unlock()
}

func systemScope(t scope.TenantID) scope.Scope { return auth.SystemScope(t, "policy-bridge", "") }

// self gives the id of the bouncer that asks. Only bouncers speak to the bridge.
func self(sc scope.Scope) (int64, error) {
	if sc.Actor.Kind != scope.Bouncer {
		return 0, fault.New(fault.Forbidden, "bouncers_only", "this needs a bouncer's token")
	}
	id, err := strconv.ParseInt(sc.Actor.ID, 10, 64)
	if err != nil || id <= 0 || !sc.Env.Valid() {
		return 0, fault.New(fault.Forbidden, "bouncers_only", "this needs a bouncer's token")
	}
	return id, nil
}

// noBouncer is the answer for any bouncer but the caller's own: who asks for
// another one's bundle does not learn whether there is such a bouncer.
func noBouncer() error { return fault.NotFoundf("no such bouncer") }

// deskOf gives the place of the bouncer that asks, in a loaded feed. token is the
// digest of the token that it came with.
func (s *Service) deskOf(ctx context.Context, sc scope.Scope, token string) (*feed, *desk, error) {
	id, err := self(sc)
	if err != nil {
		return nil, nil, err
	}
	if s.ctx.Err() != nil {
		return nil, nil, fault.New(fault.Unavailable, "stopping", "this server is stopping").After(time.Second)
	}
	f := s.feed(place{sc.Tenant, sc.Env})
	d, err := f.desk(ctx, id, token)
	return f, d, err
}
