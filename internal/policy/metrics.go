package policy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Metrics counts evaluations of controls in memory and adds the counts to the store in batches. If
// the process ends without a flush, the counts since the last one are lost: they are figures for
// people, and the decision log is the record.
type Metrics struct {
	stores *db.Cluster
	every  time.Duration

	mu      sync.Mutex
	tallies map[tallyKey]*tally
	flushes sync.Mutex // one flush at a time
}

type tallyKey struct {
	tenant scope.TenantID
	policy int64
}

// tally is a tally and the part of it that is in the store.
type tally struct {
	*rego.Tally
	// held is true if a caller has a pointer to it. Then it must not be dropped.
	held   bool
	stored counts
}

// counts are the values of a tally at one moment.
type counts struct{ evaluations, hits, nanos int64 }

// read reads the hits first, so that it never returns more hits than evaluations.
func (t *tally) read() counts {
	hits := t.CacheHits.Load()
	return counts{t.Evaluations.Load(), hits, t.Nanoseconds.Load()}
}

func (c counts) minus(o counts) counts {
	return counts{c.evaluations - o.evaluations, c.hits - o.hits, c.nanos - o.nanos}
}

// NewMetrics makes a collector that Run flushes at every interval.
func NewMetrics(stores *db.Cluster, every time.Duration) *Metrics {
	return &Metrics{stores: stores, every: every, tallies: map[tallyKey]*tally{}}
}

// Tally returns the tally of a control, always the same one. The caller may keep the pointer.
// Policy 0 is for decisions that no control made.
func (m *Metrics) Tally(tenant scope.TenantID, policy int64) *rego.Tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.find(tallyKey{tenant, policy})
	t.held = true
	return t.Tally
}

func (m *Metrics) find(key tallyKey) *tally {
	t := m.tallies[key]
	if t == nil {
		t = &tally{Tally: &rego.Tally{}}
		m.tallies[key] = t
	}
	return t
}

// Add counts one evaluation of a control, or one answer from the cache, that a bouncer reports.
// The id comes from the bouncer and may be wrong, so Metrics does not keep the tally after its
// counts are stored.
func (m *Metrics) Add(tenant scope.TenantID, policyID int64, d time.Duration, cacheHit bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.find(tallyKey{tenant, policyID}).Evaluated(d, cacheHit)
}

// Each calls f with the tallies that Tally has returned, in no particular order.
func (m *Metrics) Each(f func(tenant scope.TenantID, policy int64, t *rego.Tally)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, t := range m.tallies {
		if t.held {
			f(key.tenant, key.policy, t.Tally)
		}
	}
}

// Run flushes at every interval, and once more when ctx ends.
func (m *Metrics) Run(ctx context.Context) error {
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// If the store is down, a later flush adds the counts.
			_ = m.Flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return m.Flush(last)
		}
	}
}

// Flush adds the counts to the store, in one transaction for each tenant. Counts that could
// not be written are written by the next flush; those of a removed tenant or control are
// dropped.
func (m *Metrics) Flush(ctx context.Context) error {
	m.flushes.Lock()
	defer m.flushes.Unlock()
	var failed error
	for tenant, unstored := range m.unstored() {
		if err := m.flush(ctx, tenant, unstored); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		m.markStored(tenant, unstored)
	}
	return failed
}

// unstored returns the counts since the last flush of the controls that were used.
func (m *Metrics) unstored() map[scope.TenantID]map[int64]counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[scope.TenantID]map[int64]counts{}
	for key, t := range m.tallies {
		more := t.read().minus(t.stored)
		if more == (counts{}) {
			continue
		}
		if out[key.tenant] == nil {
			out[key.tenant] = map[int64]counts{}
		}
		out[key.tenant][key.policy] = more
	}
	return out
}

// markStored records that these counts are in the store.
func (m *Metrics) markStored(tenant scope.TenantID, unstored map[int64]counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, more := range unstored {
		key := tallyKey{tenant, id}
		t := m.tallies[key]
		t.stored = counts{t.stored.evaluations + more.evaluations, t.stored.hits + more.hits, t.stored.nanos + more.nanos}
		if !t.held && t.read() == t.stored {
			delete(m.tallies, key)
		}
	}
}

func (m *Metrics) flush(ctx context.Context, tenant scope.TenantID, unstored map[int64]counts) error {
	store, err := m.stores.Tenant(ctx, tenant)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return store.Write(ctx, func(tx *db.Tx) error {
		for _, id := range sortedKeys(unstored) {
			more := unstored[id]
			if err := addCounts(ctx, tx, id, more.evaluations, more.hits, more.nanos); err != nil {
				return err
			}
		}
		return nil
	})
}
