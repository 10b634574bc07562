package pip

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// seenFor is how long the ages of a tenant are kept after the Syncer last checked it.
const seenFor = 15 * time.Minute

// Ages holds the age of the data of each tenant's sources, as the Syncer of this process last saw
// it. A tenant has at most maxConnections entries.
type Ages struct {
	Now func() time.Time

	mu      sync.Mutex
	tenants map[scope.TenantID]seen
}

// seen is what the last check of a tenant found.
type seen struct {
	at    time.Time
	since []since
}

// refresh reads the ages of a tenant's data, and replaces those that are held.
func (a *Ages) refresh(ctx context.Context, tenant scope.TenantID, tx *db.Tx) error {
	all, err := agesOf(ctx, tx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tenants == nil {
		a.tenants = map[scope.TenantID]seen{}
	}
	if a.tenants[tenant] = (seen{a.Now(), all}); len(all) == 0 {
		delete(a.tenants, tenant)
	}
	return nil
}

// Each calls f with the age of each source's data: the time since it was last read or confirmed
// to be unchanged, or else since the source was created.
func (a *Ages) Each(f func(tenant scope.TenantID, connection int64, age time.Duration)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Now()
	for tenant, s := range a.tenants {
		if now.Sub(s.at) > seenFor {
			delete(a.tenants, tenant)
			continue
		}
		for _, c := range s.since {
			f(tenant, c.ID, max(0, now.Sub(c.At)))
		}
	}
}
