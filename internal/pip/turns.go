package pip

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// largeOfTenant and largeAtOnce are how many large data sources a replica reads at once, of one
// tenant and of all: each takes about 70 MiB of memory. Small sources need no turn, however slow
// they are.
const largeOfTenant, largeAtOnce = 2, 8

// turns gives large fetches their turns. The zero value is ready to use.
type turns struct {
	mu  sync.Mutex
	all *semaphore.Weighted
	of  map[scope.TenantID]*tenantTurns
}

type tenantTurns struct {
	*semaphore.Weighted
	users int
}

// take waits for a turn of a tenant. The caller calls leave when the turn ends. The error is that
// of ctx.
func (t *turns) take(ctx context.Context, tenant scope.TenantID) (leave func(), err error) {
	own := t.join(tenant)
	if err := own.Acquire(ctx, 1); err != nil {
		t.part(tenant, own)
		return nil, err
	}
	if err := t.all.Acquire(ctx, 1); err != nil {
		own.Release(1)
		t.part(tenant, own)
		return nil, err
	}
	return func() {
		t.all.Release(1)
		own.Release(1)
		t.part(tenant, own)
	}, nil
}

func (t *turns) join(tenant scope.TenantID) *tenantTurns {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all, t.of = semaphore.NewWeighted(largeAtOnce), map[scope.TenantID]*tenantTurns{}
	}
	own := t.of[tenant]
	if own == nil {
		own = &tenantTurns{Weighted: semaphore.NewWeighted(largeOfTenant)}
		t.of[tenant] = own
	}
	own.users++
	return own
}

// part ends a use of a tenant's turns, and removes the tenant after the last one.
func (t *turns) part(tenant scope.TenantID, own *tenantTurns) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(t.of, tenant)
	}
}
