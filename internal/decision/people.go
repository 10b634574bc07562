package decision

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Bounds on what is kept of people: this many a tenant, and for this long even
// if no change was heard of (another replica's notice may be lost).
const (
	maxPeople  = 10_000
	peopleTime = 4 * time.Second
)

// People remembers stored users, unknown ones too, so that a decision seldom
// asks the store.
type People struct {
	// Find reads one user's members from the store; undefined: there is none.
	Find func(ctx context.Context, tenant scope.TenantID, id string) (value.Value, error)
	Now  func() time.Time

	mu  sync.RWMutex
	all map[scope.TenantID]*peopleOf
}

type peopleOf struct {
	byID  map[string]value.Value
	since time.Time
}

// Person is what is stored of a user.
func (p *People) Person(ctx context.Context, tenant scope.TenantID, id string) (value.Value, error) {
	now := p.Now()
	p.mu.RLock()
	of := p.all[tenant]
	if of != nil && now.Sub(of.since) < peopleTime {
		if v, ok := of.byID[id]; ok {
			p.mu.RUnlock()
			return v, nil
		}
	}
	p.mu.RUnlock()

	of = p.current(tenant, now)
	v, err := p.Find(ctx, tenant, id)
	if err != nil {
		return value.Value{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// What was read before a change must not be kept after it: a change puts
	// another set in the place of this one.
	if p.all[tenant] == of && len(of.byID) < maxPeople {
		of.byID[id] = v
	}
	return v, nil
}

// current is the tenant's set, a new one where the old is worn or full.
func (p *People) current(tenant scope.TenantID, now time.Time) *peopleOf {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.all[tenant]
	if of == nil || now.Sub(of.since) >= peopleTime || len(of.byID) >= maxPeople {
		if p.all == nil {
			p.all = map[scope.TenantID]*peopleOf{}
		}
		of = &peopleOf{byID: map[string]value.Value{}, since: now}
		p.all[tenant] = of
	}
	return of
}

// Changed forgets what is known of a tenant's people; an empty tenant stands
// for all. It is fit to be a watcher of the store.
func (p *People) Changed(tenant scope.TenantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tenant == "" {
		clear(p.all)
		return
	}
	delete(p.all, tenant)
}
