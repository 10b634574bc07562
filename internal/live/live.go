// Package live tells open consoles what changed, so that they need not ask.
//
// Each tenant that somebody watches has one hub:
//
//	db.Watch, a tick ──▶ hub ── one short read ──▶ changes ──▶ each stream ──▶ its client
//
// The hub reads the administrative log from where it stood, and a few gauges:
// numbers that differ once something moved that the log does not tell of. Where it
// stands is a position, and the id of each message is one, so a client that
// reconnects, at any replica, is told what it missed. The tick finds what other
// replicas changed; a commit in this process, or one that PostgreSQL announces,
// wakes the hub at once.
//
// A stream holds no connection of the store, and at most maxPending changes: a
// client that reads too slowly is told to read everything anew.
package live

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Bounds on streams.
const (
	maxEach    = 10   // open at a time, of one person or key
	maxTenant  = 500  // open at a time, of one tenant
	maxAll     = 2000 // open at a time, of all
	maxPending = 256  // changes that wait for one client; more become one reload
	maxEntries = 1000 // entries of the log that are read at once; more become one reload
)

// lull is how long a hub rests after a read, so that a burst of commits is one.
const lull = 50 * time.Millisecond

// Service keeps the hubs. Its fields are its dependencies.
type Service struct {
	Stores *db.Cluster
	Log    *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Tick is how often a hub reads without being woken; 0: two seconds.
	Tick time.Duration

	mu     sync.Mutex
	hubs   map[scope.TenantID]*hub
	open   int
	each   map[owner]int
	closed bool
	run    sync.WaitGroup
}

// owner is whose streams are counted together.
type owner struct {
	tenant scope.TenantID
	kind   scope.ActorKind
	id     string
}

func ownerOf(sc scope.Scope) owner { return owner{sc.Tenant, sc.Actor.Kind, sc.Actor.ID} }

// OnChange wakes the hub of a tenant: what db.Watch calls. Without a tenant and a
// name it wakes all, for anything may have happened.
func (s *Service) OnChange(tenant scope.TenantID, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tenant == "" && name != "" {
		return // of the system store
	}
	for id, h := range s.hubs {
		if tenant == "" || id == tenant {
			h.wake()
		}
	}
}

// Open begins a stream of the changes that the scope may see. last is the id of the
// last message that the client got, empty for a new client. The caller must Close
// the stream. Faults: Forbidden where the scope may see no topic at all,
// RateLimited where too many streams are open, and those of the store.
func (s *Service) Open(ctx context.Context, sc scope.Scope, last string) (*Stream, error) {
	if !seesAny(sc) {
		return nil, fault.New(fault.Forbidden, "permission_denied", "this credential may not read any of the topics")
	}
	h, err := s.enter(sc)
	if err != nil {
		return nil, err
	}
	st := &Stream{service: s, hub: h, owner: ownerOf(sc), woken: make(chan struct{}, 1), done: h.ended, pending: map[Change]change{}}
	if err := h.join(ctx, st, sc, last); err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

// enter counts one more stream and gives the tenant's hub, which runs.
func (s *Service) enter(sc scope.Scope) (*hub, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, who := s.hubs[sc.Tenant], ownerOf(sc)
	if s.closed || s.each[who] >= maxEach || s.open >= maxAll || h != nil && h.members >= maxTenant {
		return nil, fault.New(fault.RateLimited, "too_many_streams", "too many streams are open").After(5 * time.Second)
	}
	if h == nil {
		ctx, stop := context.WithCancel(context.Background())
		h = &hub{service: s, tenant: sc.Tenant, stop: stop, ended: ctx.Done(), woken: make(chan struct{}, 1), streams: map[*Stream]struct{}{}}
		if s.hubs == nil {
			s.hubs, s.each = map[scope.TenantID]*hub{}, map[owner]int{}
		}
		s.hubs[sc.Tenant] = h
		s.run.Go(func() { h.run(ctx) })
	}
	h.members++
	s.open++
	s.each[who]++
	return h, nil
}

// release gives back the place of a stream. The last of a tenant ends its hub.
func (s *Service) release(h *hub, who owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.each[who]--; s.each[who] == 0 {
		delete(s.each, who)
	}
	if h.members--; h.members == 0 {
		h.stop()
		if s.hubs[h.tenant] == h {
			delete(s.hubs, h.tenant)
		}
	}
}

// Close ends all streams, refuses new ones, and waits for the hubs.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	for _, h := range s.hubs {
		h.stop()
	}
	s.mu.Unlock()
	s.run.Wait()
}
