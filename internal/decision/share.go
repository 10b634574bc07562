package decision

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// ProcessorShare divides the processors between the evaluations of tenants.
//
// Go's scheduler has no priorities: a long evaluation holds a processor, and later requests wait for
// it. So an evaluation that has not ended at its first pause (after about 50 us, rego.Limits.Pause)
// needs one of a few slots to continue. There is one slot less than processors, so that short
// decisions and the network always have a processor. While only one tenant decides, there is a slot
// for every processor.
//
// A slot is held for a slice. Then it goes to the waiting tenant that has used the least processor
// time relative to its weight (start-time fair queueing). Within a tenant, the evaluation that waited
// longest is first. An evaluation yields to others of its own tenant only after a longer time, so
// that most of them end in one turn. If nobody waits, it keeps the slot.
//
// A decision that ends before its first pause takes no lock.
type ProcessorShare struct {
	// Weight returns a tenant's weight relative to others. If it is nil or returns less than 1,
	// the weight is 1. It is called under a lock and must not block.
	Weight func(scope.TenantID) int

	few, all int // slots while several tenants decide, and while only one does
	now      func() time.Time
	pool     sync.Pool

	latest atomic.Pointer[scope.TenantID] // the tenant of the last decision, roughly
	mixed  atomic.Int64                   // when decisions of two tenants last overlapped, in Unix nanoseconds

	waits    atomic.Int64 // how many wait
	mu       sync.Mutex   // guards the fields below, and all accounts
	running  int          // slots that are held
	floor    time.Duration
	accounts map[scope.TenantID]*account
}

const (
	// slice is how long a slot is held while another tenant waits.
	slice = 2 * time.Millisecond
	// stretch is how long a slot is held while only others of the same tenant wait.
	stretch = 20 * time.Millisecond
	// company is how long several tenants count as active after a decision of one followed that
	// of another; companyLook is the precision of this time.
	company     = time.Second
	companyLook = 250 * time.Millisecond
	// waitFactor times its deadline is how long an evaluation may wait for slots in total.
	waitFactor = 4
)

// account holds a tenant's slots and requests for slots.
type account struct {
	used   time.Duration // processor time divided by weight, on the scale of floor
	weight time.Duration
	slots  int
	queue  []*turn // the waiting turns, in order
}

// NewProcessorShare makes a share of this many processors. now measures the slices.
func NewProcessorShare(processors int, now func() time.Time) *ProcessorShare {
	s := &ProcessorShare{few: max(1, processors-1), all: max(1, processors), now: now, accounts: map[scope.TenantID]*account{}}
	s.pool.New = func() any {
		t := &turn{share: s, granted: make(chan struct{}, 1)}
		t.pause, t.clock = t.yield, t.time
		return t
	}
	return s
}

// turn is one piece of work under a share: a decision, or a bulk call.
type turn struct {
	share  *ProcessorShare
	ctx    context.Context
	tenant scope.TenantID
	// pause and clock are the turn's methods, bound once: they are passed to each
	// evaluation.
	pause func() bool
	clock func() time.Time

	holds   bool
	since   time.Time // start of the slice
	ran     time.Duration
	waited  time.Duration
	most    time.Duration // longest total wait
	granted chan struct{}
}

// begin begins a turn of a tenant. The turn may wait for slots for at most most in total. The caller
// must call end.
func (s *ProcessorShare) begin(ctx context.Context, tenant scope.TenantID, now time.Time, most time.Duration) *turn {
	s.noteTenant(tenant, now)
	t := s.pool.Get().(*turn)
	t.ctx, t.tenant, t.most = ctx, tenant, most
	return t
}

// Acquire waits for a slot for work outside of an evaluation, such as parsing a large request. The
// caller must call done. Fault: RateLimited if no slot became free within most, or if the caller
// disconnected.
func (s *ProcessorShare) Acquire(ctx context.Context, tenant scope.TenantID, most time.Duration) (done func(), err error) {
	t := s.begin(ctx, tenant, s.now(), most)
	if !t.pause() {
		t.end()
		return nil, fault.New(fault.RateLimited, "rate_limit_exceeded", "too many evaluations of this tenant are waiting").After(time.Second)
	}
	return t.end, nil
}

// noteTenant records which tenant decides, for slots.
func (s *ProcessorShare) noteTenant(tenant scope.TenantID, now time.Time) {
	last := s.latest.Load()
	if last != nil && *last == tenant {
		return
	}
	at := now.UnixNano()
	if at-s.mixed.Load() < int64(companyLook) {
		return
	}
	if last != nil {
		s.mixed.Store(at)
	}
	name := tenant // a copy, so that the argument does not escape to the heap in the usual case
	s.latest.Store(&name)
}

// slots returns how many slots may be held now.
func (s *ProcessorShare) slots(now time.Time) int {
	if now.UnixNano()-s.mixed.Load() < int64(company) {
		return s.few
	}
	return s.all
}

// end ends the turn and frees its slot.
func (t *turn) end() {
	if t == nil {
		return
	}
	if t.holds {
		s := t.share
		now := s.now()
		s.mu.Lock()
		s.abandon(t, now)
		s.grant(now)
		s.mu.Unlock()
	}
	t.ctx, t.holds, t.ran, t.waited = nil, false, 0, 0
	t.share.pool.Put(t)
}

// time returns the time of the turn's clock, which stops while the turn waits.
func (t *turn) time() time.Time { return t.share.now().Add(-t.waited) }

// yield waits until the turn's work may continue. The work calls it after it has run for a while. It
// returns false if the work must stop, because the caller disconnected or the turn waited too long.
func (t *turn) yield() bool {
	s := t.share
	now := s.now()
	if t.holds {
		took := now.Sub(t.since)
		if took < slice {
			return true
		}
	}
	s.mu.Lock()
	a := s.account(t.tenant)
	if t.holds {
		s.charge(a, t, now)
		if !s.mustYield(a, t, now) {
			s.grant(now)
			s.mu.Unlock()
			s.yieldProcessor()
			return true
		}
		s.release(a, t)
	}
	s.enqueue(a, t)
	s.grant(now)
	s.mu.Unlock()
	return t.await(now)
}

// yieldProcessor lets new requests run, which need no slot. With only one processor it sleeps,
// because Go polls the network when nothing runs.
func (s *ProcessorShare) yieldProcessor() {
	if s.all == 1 {
		time.Sleep(50 * time.Microsecond)
		return
	}
	runtime.Gosched()
}

// mustYield reports whether t must free its slot for another turn. The caller holds mu.
func (s *ProcessorShare) mustYield(a *account, t *turn, now time.Time) bool {
	if s.running > s.slots(now) {
		return true
	}
	next := s.next()
	switch {
	case next == nil:
		return false
	case next != a:
		return next.used < a.used
	}
	return t.ran >= stretch
}

// account returns the tenant's account, and makes one if there is none. A new account begins with the
// processor time of those that are served now, so that a tenant gets no credit for idle time. The
// caller holds mu.
func (s *ProcessorShare) account(tenant scope.TenantID) *account {
	a := s.accounts[tenant]
	if a == nil {
		a = &account{used: s.floor, weight: 1}
		if s.Weight != nil {
			a.weight = time.Duration(max(1, s.Weight(tenant)))
		}
		s.accounts[tenant] = a
	}
	return a
}

// charge adds the slice that t ran. The caller holds mu.
func (s *ProcessorShare) charge(a *account, t *turn, now time.Time) {
	took := max(0, now.Sub(t.since))
	a.used += took / a.weight
	t.ran += took
	t.since = now
	if s.waits.Load() == 0 { // nobody waited, so it does not count against the tenant
		s.floor = max(s.floor, a.used)
	}
}

func (s *ProcessorShare) abandon(t *turn, now time.Time) {
	a := s.account(t.tenant)
	s.charge(a, t, now)
	s.release(a, t)
	s.drop(t.tenant, a)
}

func (s *ProcessorShare) release(a *account, t *turn) {
	s.running--
	a.slots--
	t.holds = false
}

// drop removes an account without slots and requests.
func (s *ProcessorShare) drop(tenant scope.TenantID, a *account) {
	if a.slots == 0 && len(a.queue) == 0 {
		delete(s.accounts, tenant)
	}
}

// enqueue adds t to the waiting turns of its tenant: in front if it has run for less than stretch,
// otherwise at the end. The caller holds mu.
func (s *ProcessorShare) enqueue(a *account, t *turn) {
	s.waits.Add(1)
	if t.ran > 0 && t.ran < stretch {
		a.queue = slices.Insert(a.queue, 0, t)
		return
	}
	t.ran = 0
	a.queue = append(a.queue, t)
}

// next returns the account that gets the next slot; nil if none waits. The caller holds mu.
func (s *ProcessorShare) next() *account {
	var best *account
	if s.waits.Load() == 0 {
		return nil
	}
	for _, a := range s.accounts {
		if len(a.queue) > 0 && (best == nil || a.used < best.used) {
			best = a
		}
	}
	return best
}

// grant assigns the free slots. The caller holds mu.
func (s *ProcessorShare) grant(now time.Time) {
	for most := s.slots(now); s.running < most; {
		a := s.next()
		if a == nil {
			return
		}
		t := a.queue[0]
		a.queue = slices.Delete(a.queue, 0, 1)
		s.waits.Add(-1)
		s.floor = max(s.floor, a.used)
		s.running++
		a.slots++
		t.holds = true
		t.granted <- struct{}{}
	}
}

// await waits until a queued turn has a slot. It returns false if the caller disconnected or the turn
// waited too long.
func (t *turn) await(began time.Time) bool {
	s := t.share
	select {
	case <-t.granted:
		t.since = began
		return true
	default:
	}
	timer := time.NewTimer(t.most - t.waited)
	defer timer.Stop()
	ok := true
	select {
	case <-t.granted:
	case <-timer.C:
		ok = false
	case <-t.ctx.Done():
		ok = false
	}
	now := s.now()
	t.waited += max(0, now.Sub(began))
	if ok {
		t.since = now
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.holds { // granted meanwhile: end frees it
		<-t.granted
		t.since = now
		return false
	}
	a := s.account(t.tenant)
	a.queue = slices.DeleteFunc(a.queue, func(q *turn) bool { return q == t })
	s.waits.Add(-1)
	s.drop(t.tenant, a)
	return false
}
