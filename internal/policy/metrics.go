package policy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Metrics counts evaluations of controls in memory and adds them to the store in batches.
// Add is on the hot path: it takes a shared lock on one of 16 shards and does three atomic
// additions. Counts since the last flush are lost with the process: these are figures for
// people; the audit is the record.
type Metrics struct {
	stores *db.Cluster
	every  time.Duration
	shards [16]shard
}

type shard struct {
	mu     sync.RWMutex
	counts map[counterKey]*counter
}

type counterKey struct {
	tenant scope.TenantID
	policy int64
}

type counter struct{ evaluations, hits, nanos atomic.Int64 }

// NewMetrics makes a collector that Run flushes at every interval.
func NewMetrics(stores *db.Cluster, every time.Duration) *Metrics {
	m := &Metrics{stores: stores, every: every}
	for i := range m.shards {
		m.shards[i].counts = map[counterKey]*counter{}
	}
	return m
}

// Add counts one evaluation of a control, or one answer from the cache.
func (m *Metrics) Add(tenant scope.TenantID, policyID int64, d time.Duration, cacheHit bool) {
	sh, key := &m.shards[uint64(policyID)%16], counterKey{tenant, policyID}
	sh.mu.RLock()
	c := sh.counts[key]
	if c == nil {
		sh.mu.RUnlock()
		m.grow(sh, key)
		sh.mu.RLock()
		// A flush may have happened in between; then this count goes to the next map.
		if c = sh.counts[key]; c == nil {
			sh.mu.RUnlock()
			m.Add(tenant, policyID, d, cacheHit)
			return
		}
	}
	c.evaluations.Add(1)
	c.nanos.Add(int64(d))
	if cacheHit {
		c.hits.Add(1)
	}
	sh.mu.RUnlock()
}

func (m *Metrics) grow(sh *shard, key counterKey) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.counts[key] == nil {
		sh.counts[key] = &counter{}
	}
}

// Run flushes at every interval, and once more when ctx ends.
func (m *Metrics) Run(ctx context.Context) error {
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// If the store is down, a later flush adds the figures.
			_ = m.Flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return m.Flush(last)
		}
	}
}

// Flush adds the counts to the store, in one transaction for each tenant. Counts that could
// not be written are kept for the next flush; those of a removed tenant or control are
// dropped.
func (m *Metrics) Flush(ctx context.Context) error {
	byTenant := map[scope.TenantID]map[int64]*counter{}
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		taken := sh.counts
		sh.counts = make(map[counterKey]*counter, len(taken))
		sh.mu.Unlock()
		for key, c := range taken {
			if byTenant[key.tenant] == nil {
				byTenant[key.tenant] = map[int64]*counter{}
			}
			byTenant[key.tenant][key.policy] = c
		}
	}
	var failed error
	for tenant, counts := range byTenant {
		if err := m.flush(ctx, tenant, counts); err != nil {
			failed = errors.Join(failed, err)
			m.giveBack(tenant, counts)
		}
	}
	return failed
}

func (m *Metrics) flush(ctx context.Context, tenant scope.TenantID, counts map[int64]*counter) error {
	store, err := m.stores.Tenant(ctx, tenant)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return store.Write(ctx, func(tx *db.Tx) error {
		for _, id := range sortedKeys(counts) {
			c := counts[id]
			if err := addCounts(ctx, tx, id, c.evaluations.Load(), c.hits.Load(), c.nanos.Load()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *Metrics) giveBack(tenant scope.TenantID, counts map[int64]*counter) {
	for id, c := range counts {
		sh, key := &m.shards[uint64(id)%16], counterKey{tenant, id}
		sh.mu.Lock()
		into := sh.counts[key]
		if into == nil {
			into = &counter{}
			sh.counts[key] = into
		}
		into.evaluations.Add(c.evaluations.Load())
		into.hits.Add(c.hits.Load())
		into.nanos.Add(c.nanos.Load())
		sh.mu.Unlock()
	}
}
