package audit

import (
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// activity holds when this process last stored decisions of each tenant.
type activity struct {
	mu   sync.Mutex
	last map[scope.TenantID]time.Time
}

func (a *activity) note(tenant scope.TenantID, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[scope.TenantID]time.Time{}
	}
	a.last[tenant] = now
}

// Active returns the tenants for which this process has stored decisions since a time, in no
// order. It forgets the others, so a later call with an earlier time does not return them. It
// does not read a store.
func (l *DecisionLog) Active(since time.Time) []scope.TenantID {
	a := &l.active
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]scope.TenantID, 0, len(a.last))
	for tenant, last := range a.last {
		if last.Before(since) {
			delete(a.last, tenant)
			continue
		}
		out = append(out, tenant)
	}
	return out
}
