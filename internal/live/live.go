// Package live sends open consoles what changed, so that they need not poll.
//
// Each tenant with an open stream has one hub:
//
//	db.Watch, a tick ──▶ hub ── one short read ──▶ changes ──▶ each stream ──▶ its client
//
// A hub reads new entries of the administrative log, and a few gauges: numbers that change when
// something changes that the log does not record. What it has read is a position. Each message has
// a position as its id, so a client that reconnects, to any replica, gets what it missed. A commit
// in this process, or one that PostgreSQL announces, wakes the hub at once; the tick finds the rest.
//
// A stream holds no connection to the store, and at most maxPending changes. A client that reads too
// slowly must read everything again.
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
	maxPerOwner  = 10   // open streams of one person or key
	maxPerTenant = 500  // open streams of one tenant
	maxStreams   = 2000 // open streams of all tenants
	maxPending   = 256  // changes that wait for one client; more become a reload
	maxEntries   = 1000 // entries of the log that are read at once; more become a reload
)

// pauseAfterRead is the minimum time between two reads of a hub, so that a burst of commits causes
// one read.
const pauseAfterRead = 50 * time.Millisecond

// Service has the hubs. Its exported fields are its dependencies.
type Service struct {
	Stores *db.Cluster
	Log    *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Tick is how often a hub reads without being woken; 0: every two seconds.
	Tick time.Duration

	mu       sync.Mutex
	hubs     map[scope.TenantID]*hub
	open     int
	perOwner map[owner]int
	closed   bool
	run      sync.WaitGroup
}

// owner identifies the person or key whose streams are counted together.
type owner struct {
	tenant scope.TenantID
	kind   scope.ActorKind
	id     string
}

func ownerOf(sc scope.Scope) owner { return owner{sc.Tenant, sc.Actor.Kind, sc.Actor.ID} }

// OnChange wakes the hub of a tenant. Pass it to db.Watch. With an empty tenant and name it wakes
// all hubs, because anything may have changed.
func (s *Service) OnChange(tenant scope.TenantID, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tenant == "" && name != "" {
		return // a change of the system store
	}
	for id, h := range s.hubs {
		if tenant == "" || id == tenant {
			h.wake()
		}
	}
}

// Open starts a stream of the changes that the scope may see. last is the id of the last message
// that the client received; empty for a new client. The caller must Close the stream. Faults:
// Forbidden if the scope may see no topic; RateLimited if too many streams are open; those of the
// store.
func (s *Service) Open(ctx context.Context, sc scope.Scope, last string) (*Stream, error) {
	if !seesAny(sc) {
		return nil, fault.New(fault.Forbidden, "permission_denied", "this credential may not read any of the topics")
	}
	h, err := s.countStream(sc)
	if err != nil {
		return nil, err
	}
	st := &Stream{service: s, hub: h, owner: ownerOf(sc), ready: make(chan struct{}, 1), done: h.ended, pending: map[Change]changeRevision{}}
	if err := h.join(ctx, st, sc, last); err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

// countStream counts a new stream and returns the tenant's hub. It starts the hub if necessary.
func (s *Service) countStream(sc scope.Scope) (*hub, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, who := s.hubs[sc.Tenant], ownerOf(sc)
	if s.closed || s.perOwner[who] >= maxPerOwner || s.open >= maxStreams || h != nil && h.members >= maxPerTenant {
		return nil, fault.New(fault.RateLimited, "too_many_streams", "too many streams are open").After(5 * time.Second)
	}
	if h == nil {
		ctx, stop := context.WithCancel(context.Background())
		h = &hub{service: s, tenant: sc.Tenant, stop: stop, ended: ctx.Done(), wakeup: make(chan struct{}, 1), streams: map[*Stream]struct{}{}}
		if s.hubs == nil {
			s.hubs, s.perOwner = map[scope.TenantID]*hub{}, map[owner]int{}
		}
		s.hubs[sc.Tenant] = h
		s.run.Go(func() { h.run(ctx) })
	}
	h.members++
	s.open++
	s.perOwner[who]++
	return h, nil
}

// uncountStream uncounts a stream. The last stream of a tenant stops its hub.
func (s *Service) uncountStream(h *hub, who owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.perOwner[who]--; s.perOwner[who] == 0 {
		delete(s.perOwner, who)
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
