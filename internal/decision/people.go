package decision

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Limits of the cache: the number of people for each tenant, and the time after which it checks the
// store for changes, because the notification of another replica may be lost.
const (
	maxPeople  = 10_000
	peopleTime = 4 * time.Second
	// peoplePatience is how long a decision waits for a store to look up a user. After a
	// failure, no user is looked up for peoplePause.
	peoplePatience = 250 * time.Millisecond
	peoplePause    = time.Second
)

// ErrPersonUnknown means that the store did not look up a user in time. The decision is then made as
// for a user who is not stored.
var ErrPersonUnknown error = fault.New(fault.Unavailable, "store_unavailable", "the stored user was not looked up: the store did not answer in time").After(time.Second)

// People caches stored users, and which users are not stored, so that a decision rarely needs the
// store.
type People struct {
	// Find reads the members of one user from the store. It returns undefined if there is no such
	// user.
	Find func(ctx context.Context, tenant scope.TenantID, id string) (value.Value, error)
	// Revision names the counter that changes with every change that Find would see.
	Revision func(ctx context.Context, tenant scope.TenantID) (int64, error)
	Now      func() time.Time

	away atomic.Int64 // until when the store is not used after a failure, in Unix nanoseconds

	mu  sync.RWMutex // guards all, and byID of each tenant
	all map[scope.TenantID]*tenantPeople
}

// tenantPeople are a tenant's people, read at a revision or later.
type tenantPeople struct {
	byID     map[string]value.Value
	revision int64
	asking   sync.Mutex   // held while the store is asked whether they are still valid
	asked    atomic.Int64 // when they were last valid, in Unix nanoseconds
}

func (of *tenantPeople) isFresh(now time.Time) bool {
	return now.UnixNano()-of.asked.Load() < int64(peopleTime)
}

// Person returns the stored members of a user. While the store is down or does not answer, cached
// users keep their values, and for others the error is ErrPersonUnknown.
func (p *People) Person(ctx context.Context, tenant scope.TenantID, id string) (value.Value, error) {
	now := p.Now()
	p.mu.RLock()
	of := p.all[tenant]
	v, known := of.find(id)
	p.mu.RUnlock()
	if known && of.isFresh(now) {
		return v, nil
	}
	if now.UnixNano() < p.away.Load() {
		return remembered(v, known)
	}
	short, cancel := context.WithTimeout(ctx, peoplePatience)
	defer cancel()
	found, err := p.load(short, tenant, of, id, now)
	if err == nil || ctx.Err() != nil || !fault.Is(err, fault.Unavailable) && short.Err() == nil {
		return found, err
	}
	p.away.Store(p.Now().Add(peoplePause).UnixNano())
	return remembered(v, known)
}

func remembered(v value.Value, known bool) (value.Value, error) {
	if known {
		return v, nil
	}
	return value.Value{}, ErrPersonUnknown
}

// load reads a user from the store, unless the cached value is still valid.
func (p *People) load(ctx context.Context, tenant scope.TenantID, of *tenantPeople, id string, now time.Time) (value.Value, error) {
	of, err := p.current(ctx, tenant, of, now)
	if err != nil {
		return value.Value{}, err
	}
	p.mu.RLock()
	v, known := of.find(id)
	p.mu.RUnlock()
	if known {
		return v, nil
	}
	if v, err = p.Find(ctx, tenant, id); err != nil {
		return value.Value{}, err
	}
	p.store(tenant, of, id, v)
	return v, nil
}

func (of *tenantPeople) find(id string) (value.Value, bool) {
	if of == nil {
		return value.Value{}, false
	}
	v, ok := of.byID[id]
	return v, ok
}

// store caches a user in of, unless a change has replaced of meanwhile: the value may be older than
// the change.
func (p *People) store(tenant scope.TenantID, of *tenantPeople, id string, v value.Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[tenant] != of {
		return
	}
	if len(of.byID) >= maxPeople {
		clear(of.byID)
	}
	of.byID[id] = v
}

// current returns the tenant's set: of if it is still valid, otherwise a new one.
func (p *People) current(ctx context.Context, tenant scope.TenantID, of *tenantPeople, now time.Time) (*tenantPeople, error) {
	if of != nil {
		of.asking.Lock()
		defer of.asking.Unlock()
		if of.isFresh(now) || now.UnixNano() < p.away.Load() {
			return of, nil // another caller has checked it meanwhile
		}
	}
	revision, err := p.Revision(ctx, tenant)
	switch {
	case of != nil && (err == nil && revision == of.revision || fault.Is(err, fault.Unavailable)):
		of.asked.Store(now.UnixNano())
		return of, nil
	case err != nil:
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.all[tenant]; other != nil && other != of {
		return other, nil // another caller has replaced it meanwhile
	}
	if p.all == nil {
		p.all = map[scope.TenantID]*tenantPeople{}
	}
	fresh := &tenantPeople{byID: map[string]value.Value{}, revision: revision}
	fresh.asked.Store(now.UnixNano())
	p.all[tenant] = fresh
	return fresh, nil
}

// OnChange drops the cached people of a tenant; an empty tenant means all. It can be used as
// a watcher of the store.
func (p *People) OnChange(tenant scope.TenantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tenant == "" {
		clear(p.all)
		return
	}
	delete(p.all, tenant)
}
