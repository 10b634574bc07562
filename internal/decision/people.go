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

// Bounds on what is kept of people: this many a tenant, and for this long until
// the store is asked whether it still holds (another replica's notice may be lost).
const (
	maxPeople  = 10_000
	peopleTime = 4 * time.Second
	// peoplePatience is how long a decision waits for a store to look somebody up;
	// peoplePause is for how long nobody is looked up after it did not answer.
	peoplePatience = 250 * time.Millisecond
	peoplePause    = time.Second
)

// ErrPersonUnknown says that a store did not tell in time who somebody is, so that
// the decision is made as for somebody who is not stored.
var ErrPersonUnknown error = fault.New(fault.Unavailable, "store_unavailable", "the stored user was not looked up: the store did not answer in time").After(time.Second)

// People remembers stored users, unknown ones too, so that a decision seldom
// asks the store.
type People struct {
	// Find reads one user's members from the store; undefined: there is none.
	Find func(ctx context.Context, tenant scope.TenantID, id string) (value.Value, error)
	// Revision is the counter that changes with every change that Find would see.
	Revision func(ctx context.Context, tenant scope.TenantID) (int64, error)
	Now      func() time.Time

	away atomic.Int64 // until when the store is not asked, in Unix nanoseconds

	mu  sync.RWMutex // guards all, and byID of each
	all map[scope.TenantID]*peopleOf
}

// peopleOf are a tenant's people, read at a revision or later.
type peopleOf struct {
	byID     map[string]value.Value
	revision int64
	asking   sync.Mutex   // held by who asks whether they still hold
	asked    atomic.Int64 // when they were known to, in Unix nanoseconds
}

func (of *peopleOf) holds(now time.Time) bool {
	return now.UnixNano()-of.asked.Load() < int64(peopleTime)
}

// Person is what is stored of a user. While the store is away or silent, those who
// are known stay as they were, as the controls do, and others are ErrPersonUnknown.
func (p *People) Person(ctx context.Context, tenant scope.TenantID, id string) (value.Value, error) {
	now := p.Now()
	p.mu.RLock()
	of := p.all[tenant]
	v, known := of.find(id)
	p.mu.RUnlock()
	if known && of.holds(now) {
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

// load looks a person up in the store, unless what is known of them still holds.
func (p *People) load(ctx context.Context, tenant scope.TenantID, of *peopleOf, id string, now time.Time) (value.Value, error) {
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

func (of *peopleOf) find(id string) (value.Value, bool) {
	if of == nil {
		return value.Value{}, false
	}
	v, ok := of.byID[id]
	return v, ok
}

// store remembers a person. What was read before a change must not be kept after
// it: a change puts another set in the place of this one.
func (p *People) store(tenant scope.TenantID, of *peopleOf, id string, v value.Value) {
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

// current is the tenant's set: of, where it still holds, else a new one.
func (p *People) current(ctx context.Context, tenant scope.TenantID, of *peopleOf, now time.Time) (*peopleOf, error) {
	if of != nil {
		of.asking.Lock()
		defer of.asking.Unlock()
		if of.holds(now) || now.UnixNano() < p.away.Load() {
			return of, nil // somebody else has asked meanwhile
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
		return other, nil // just as new
	}
	if p.all == nil {
		p.all = map[scope.TenantID]*peopleOf{}
	}
	fresh := &peopleOf{byID: map[string]value.Value{}, revision: revision}
	fresh.asked.Store(now.UnixNano())
	p.all[tenant] = fresh
	return fresh, nil
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
