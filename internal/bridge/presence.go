package bridge

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Health is the state of the bridge, over all tenants.
type Health struct {
	Status           string
	LastSync         *time.Time
	ConnectedClients int
	InProgress       int
	StuckInProgress  int
	// SyncCompleted is true if every connected bouncer runs the bundle that it should.
	SyncCompleted bool
}

// The states of the bridge.
const (
	healthy  = "healthy"
	degraded = "degraded"
)

// stuckAfter is the age at which a delivery in progress counts as stuck.
const stuckAfter = time.Minute

// healthBoard stores the findings of the last sweep of each tenant.
type healthBoard struct {
	mu      sync.Mutex
	tenants map[scope.TenantID]tenantHealth
	failing bool
}

type tenantHealth struct {
	bouncer.SyncHealth
	presenceCounts
}

// Health adds up the findings of the sweeps. It reads no store.
func (s *Service) Health(context.Context) Health {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	h := Health{Status: healthy, SyncCompleted: true}
	for _, t := range s.health.tenants {
		h.ConnectedClients += int(t.InTouch)
		h.InProgress += int(t.InProgress)
		h.StuckInProgress += int(t.Stuck)
		h.SyncCompleted = h.SyncCompleted && t.Behind == 0 && t.InProgress == 0
		if t.LastSync != nil && (h.LastSync == nil || t.LastSync.After(*h.LastSync)) {
			h.LastSync = t.LastSync
		}
	}
	if h.StuckInProgress > 0 || s.health.failing {
		h.Status = degraded
	}
	return h
}

// sweepLoop regularly looks for missed changes and lost bouncers. Each sweep covers the tenants
// whose bouncers poll this replica, and a few of the others in turn, so that a start does not open
// every store.
func (s *Service) sweepLoop(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Sweep)
	defer tick.Stop()
	var others []scope.TenantID
	for {
		others = s.sweep(ctx, others)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// othersEach is the number of tenants without bouncers here that one sweep covers.
const othersEach = 5

func (s *Service) sweep(ctx context.Context, others []scope.TenantID) []scope.TenantID {
	now := s.cfg.Now()
	tenants := map[scope.TenantID]bool{}
	var failed error
	for _, f := range s.allEnvironments() {
		if f.idle(now) {
			s.drop(f)
			continue
		}
		tenants[f.tenant] = true
		moved, err := f.stale(ctx)
		if err != nil {
			failed = err
		}
		if moved {
			f.noteChange()
		}
	}
	if len(others) == 0 {
		all, err := s.cfg.Stores.Tenants(ctx)
		if err != nil {
			failed = err
		}
		others = all
		s.forgetTenants(all, err)
	}
	for range min(othersEach, len(others)) {
		tenants[others[0]] = true
		others = others[1:]
	}
	for t := range tenants {
		if err := s.findAbsent(ctx, t, now); err != nil && !fault.Is(err, fault.NotFound) {
			failed = err
		}
	}
	s.health.mu.Lock()
	s.health.failing = failed != nil && ctx.Err() == nil
	s.health.mu.Unlock()
	if failed != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("the bridge could not update the state of its bouncers", "error", failed)
	}
	return others
}

// forgetTenants drops the findings of tenants that no longer exist.
func (s *Service) forgetTenants(all []scope.TenantID, err error) {
	if err != nil {
		return
	}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	for t := range s.health.tenants {
		if !slices.Contains(all, t) {
			delete(s.health.tenants, t)
		}
	}
}

// findAbsent finds the tenant's lost bouncers, and counts the others.
func (s *Service) findAbsent(ctx context.Context, t scope.TenantID, now time.Time) error {
	store, err := s.cfg.Stores.Tenant(ctx, t)
	if err != nil {
		return err
	}
	var gone []overdueBouncer
	var h tenantHealth
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		if gone, err = listOverdue(ctx, tx, now, 100); err != nil {
			return err
		}
		if h.SyncHealth, err = bouncer.LoadSyncHealth(ctx, tx, now.Add(-stuckAfter)); err != nil {
			return err
		}
		h.presenceCounts, err = countPresence(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	s.health.mu.Lock()
	if s.health.tenants == nil {
		s.health.tenants = map[scope.TenantID]tenantHealth{}
	}
	s.health.tenants[t] = h
	s.health.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	for _, b := range gone {
		if err := store.Write(ctx, func(tx *db.Tx) error { return s.markAbsent(ctx, tx, t, b, now) }); err != nil {
			return err
		}
	}
	return nil
}

// markAbsent records that a bouncer is lost, unless it has reported since. The transaction changes
// only one bouncer, and its presence first. The activity log does the same, so each sees the changes of
// the other.
func (s *Service) markAbsent(ctx context.Context, tx *db.Tx, t scope.TenantID, b overdueBouncer, now time.Time) error {
	still, err := lockOverdue(ctx, tx, b.ID, now)
	if err != nil || !still {
		return err
	}
	detail := "not seen since " + b.Seen.UTC().Format(time.RFC3339)
	_, err = s.cfg.Bouncers.SetStatus(ctx, tx, systemScope(t), b.ID, bouncer.Disconnected, detail)
	return err
}
