package pip

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// largeOfTenant and largeAtOnce bound the large data sources that a replica reads at once, of a tenant
// and of all: one takes some 70 MiB of memory. A source that takes its time over little data waits for
// nobody, and nobody for it.
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

// take waits for a turn of a tenant, whose end is leave. The error is that of ctx.
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

// part forgets a tenant that has no fetch any more.
func (t *turns) part(tenant scope.TenantID, own *tenantTurns) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(t.of, tenant)
	}
}
