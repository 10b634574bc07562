package auth

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// usageGrain is the precision of last_used_at, and flushEvery is how often it is written. So
// a request costs no write.
const (
	usageGrain = 15 * time.Second
	flushEvery = 10 * time.Second
)

// lastUse is the last use of one key or session.
type lastUse struct {
	tenant  scope.TenantID
	id      string
	session bool
	at      atomic.Int64 // Unix nanoseconds
}

// write moves the last use in the store forward.
func (n *lastUse) write(ctx context.Context, tx *db.Tx) error {
	at := time.Unix(0, n.at.Load()).UTC()
	if n.session {
		return touchSession(ctx, tx, n.id, at)
	}
	return touchKey(ctx, tx, n.id, at)
}

// usage collects the keys and sessions that were used since the last flush.
type usage struct {
	mu    sync.Mutex
	dirty map[*lastUse]struct{}
}

// note records a use; except for the first in usageGrain it is one atomic load.
func (u *usage) note(n *lastUse, now time.Time) {
	last, at := n.at.Load(), now.UnixNano()
	if at-last < int64(usageGrain) || !n.at.CompareAndSwap(last, at) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.dirty == nil {
		u.dirty = map[*lastUse]struct{}{}
	}
	u.dirty[n] = struct{}{}
}

func (u *usage) drain() map[*lastUse]struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := u.dirty
	u.dirty = nil
	return taken
}

// flush writes the last use of keys and sessions. It drops what it cannot write, because the next
// use is recorded again.
func (s *Service) flush(ctx context.Context) error {
	byTenant := map[scope.TenantID][]*lastUse{}
	for n := range s.used.drain() {
		byTenant[n.tenant] = append(byTenant[n.tenant], n)
	}
	var first error
	for id, list := range byTenant {
		store, err := s.Stores.Tenant(ctx, id)
		if err == nil {
			err = store.Write(ctx, func(tx *db.Tx) error {
				for _, n := range list {
					if err := n.write(ctx, tx); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if first == nil && !fault.Is(err, fault.NotFound) { // purged meanwhile
			first = err
		}
	}
	return first
}

// Run writes last uses and rotates signing keys until ctx ends, and then writes once more. It
// passes errors to failed and tries again later.
func (s *Service) Run(ctx context.Context, failed func(error)) {
	flush, rotate := time.NewTicker(flushEvery), time.NewTicker(time.Minute)
	defer flush.Stop()
	defer rotate.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if err := s.flush(last); err != nil {
				failed(err)
			}
			return
		case <-flush.C:
			err = s.flush(ctx)
		case <-rotate.C:
			err = s.rotate(ctx)
		}
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
	}
}
