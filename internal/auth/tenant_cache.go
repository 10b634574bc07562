package auth

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// How long cached facts about a tenant are valid. After softAge, one request reads them again
// while others continue. After hardAge, all wait for it.
const (
	softAge = 2 * time.Second
	hardAge = 4 * time.Second
	// patience is how long the stores may take to answer before they count as down.
	patience = time.Second
	// blindPause keeps requests from queueing for a store that is down.
	blindPause = time.Second
)

// DefaultBlind is how long a replica continues with cached facts while the store does not
// answer, so that reads and decisions continue. It misses no revocation, because nobody can
// revoke anything in a store that is down.
const DefaultBlind = 10 * time.Minute

// cachedTenant holds what this replica knows about one tenant.
type cachedTenant struct {
	id scope.TenantID
	// gen increases whenever anything about the tenant's credentials may have changed;
	// entries of an older generation are not used.
	gen   atomic.Uint64
	facts atomic.Pointer[tenant.Facts]
	// checked is when the stores were last asked, in Unix nanoseconds.
	checked atomic.Int64

	mu       sync.Mutex
	revision int64     // of the tenant's store
	seen     time.Time // when they last answered
	// down is the error of the last read, if it failed. No request reads again before until.
	down  error
	until time.Time
}

// tenantCache caches facts about each tenant, and keeps them fresh.
type tenantCache struct {
	cfg   Config
	known sync.Map // scope.TenantID → *cachedTenant
}

// get finds or makes the cached facts of a tenant, up to date. Fault: NotFound for an unknown
// tenant, which is not cached.
func (rs *tenantCache) get(ctx context.Context, id scope.TenantID, now time.Time) (*cachedTenant, error) {
	if got, ok := rs.known.Load(id); ok {
		r, _ := got.(*cachedTenant)
		return r, rs.ensureFresh(ctx, r, now)
	}
	r := &cachedTenant{id: id}
	if err := rs.refresh(ctx, r, now); err != nil {
		return nil, err
	}
	got, _ := rs.known.LoadOrStore(id, r)
	r, _ = got.(*cachedTenant)
	return r, nil
}

// Plan returns a tenant's plan from the cache; "" if it is not cached. It reads no store.
func (rs *tenantCache) Plan(id scope.TenantID) string {
	got, ok := rs.known.Load(id)
	if !ok {
		return ""
	}
	r, _ := got.(*cachedTenant)
	return r.facts.Load().Plan
}

// checkServed refuses a tenant that is not active.
func (r *cachedTenant) checkServed() error { return checkServed(r.id, *r.facts.Load()) }

// checkServed refuses a tenant that is not active: a suspended one with that reason, a deleted
// one as gone.
func checkServed(id scope.TenantID, facts tenant.Facts) error {
	switch facts.Status {
	case tenant.Active:
		return nil
	case tenant.Suspended:
		return fault.New(fault.Forbidden, "tenant_access_denied", "the tenant is suspended").With("tenant_id", string(id))
	default:
		return refused()
	}
}

// ensureFresh makes sure that the facts of a tenant are fresh enough.
func (rs *tenantCache) ensureFresh(ctx context.Context, r *cachedTenant, now time.Time) error {
	age := now.UnixNano() - r.checked.Load()
	if age < int64(softAge) {
		return nil
	}
	if age < int64(hardAge) {
		if !r.mu.TryLock() {
			return nil
		}
	} else {
		r.mu.Lock()
	}
	defer r.mu.Unlock()
	if now.UnixNano()-r.checked.Load() < int64(softAge) {
		return nil // another request has read them meanwhile
	}
	if r.down != nil && now.Before(r.until) {
		return r.down // another request has just waited without success
	}
	return rs.refresh(ctx, r, now)
}

// refresh reads a tenant from the stores. The caller holds r.mu, or is the only user of
// r.
func (rs *tenantCache) refresh(ctx context.Context, r *cachedTenant, now time.Time) error {
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	facts, revision, err := rs.loadFacts(short, r.id)
	switch {
	case err == nil:
	case fault.Is(err, fault.NotFound):
		rs.known.Delete(r.id)
		r.gen.Add(1)
		return err
	case r.facts.Load() != nil && ctx.Err() == nil && now.Sub(r.seen) < rs.cfg.Blind:
		r.checked.Store(now.Add(blindPause - softAge).UnixNano())
		return nil
	default:
		if ctx.Err() == nil {
			r.down, r.until = err, now.Add(blindPause)
		}
		return err
	}
	if old := r.facts.Load(); old == nil || *old != facts || r.revision != revision {
		r.facts.Store(&facts)
		r.revision = revision
		r.gen.Add(1)
	}
	r.seen, r.down = now, nil
	r.checked.Store(now.UnixNano())
	return nil
}

// loadFacts reads the facts about a tenant, and the revision of its credentials. For an
// unknown tenant it does the same work, in the default tenant's store.
func (rs *tenantCache) loadFacts(ctx context.Context, id scope.TenantID) (tenant.Facts, int64, error) {
	facts, unknown := rs.cfg.Tenants.Facts(ctx, id)
	if unknown != nil && !fault.Is(unknown, fault.NotFound) {
		return tenant.Facts{}, 0, unknown
	}
	if unknown != nil {
		id = scope.DefaultTenant
	}
	store, err := rs.cfg.Stores.Tenant(ctx, id)
	if err != nil {
		return tenant.Facts{}, 0, err
	}
	revision, err := store.Revision(ctx, user.Revision)
	if unknown != nil {
		err = unknown
	}
	return facts, revision, err
}

// onChange is called for every change in the stores, of this replica and the others.
func (rs *tenantCache) onChange(id scope.TenantID, name string) {
	switch {
	case id == "" && (name == tenant.Revision || name == ""):
		rs.known.Range(func(_, got any) bool {
			r, _ := got.(*cachedTenant)
			r.checked.Store(0)
			if name == "" { // a gap: anything may have changed
				r.gen.Add(1)
			}
			return true
		})
	case id != "" && name == user.Revision:
		if got, ok := rs.known.Load(id); ok {
			r, _ := got.(*cachedTenant)
			r.gen.Add(1)
		}
	}
}
