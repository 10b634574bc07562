package rego

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// cacheShards divides the cache so that concurrent decisions seldom contend.
const cacheShards = 64

// Cache stores decisions. The key of an entry covers everything that the decision depends on: the
// digest of the controls, resource and data in scope, and exactly those parts of the request that
// the controls read (plan.appendKey). The key is compared in full, so a hash collision is a miss,
// never a wrong answer. Nothing has to be invalidated: a change produces another key, and unused
// entries are evicted. A Cache is safe for concurrent use and bounded in bytes.
type Cache struct {
	seed   maphash.Seed
	shards [cacheShards]shard
}

type shard struct {
	mu    sync.RWMutex
	by    map[uint64]*entry
	ring  []*entry // CLOCK eviction: the hand skips entries that were used since its last visit
	hand  int
	bytes int64
	limit int64
	hits  atomic.Int64
	miss  atomic.Int64
	_     [64]byte // two shards never share a cache line
}

type entry struct {
	hash uint64
	key  string
	v    verdict
	born int64 // Options.Now when it was decided, in nanoseconds
	size int64
	at   int // index in the ring
	used atomic.Bool
}

// NewCache creates a cache of about that many bytes, keys and decisions included.
func NewCache(bytes int64) *Cache {
	c := &Cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].by = map[uint64]*entry{}
		c.shards[i].limit = max(bytes/cacheShards, 1<<10)
	}
	return c
}

func (c *Cache) hash(key []byte) uint64 { return maphash.Bytes(c.seed, key) }

// get returns the verdict for a key. It returns nil on a miss, and for an entry that is older
// than the options allow. The caller must not change the result.
func (c *Cache) get(h uint64, key []byte, opt *Options) *verdict {
	s := &c.shards[h%cacheShards]
	s.mu.RLock()
	e := s.by[h]
	s.mu.RUnlock()
	if e == nil || e.key != string(key) || opt.CacheTTL > 0 && !e.within(opt) {
		s.miss.Add(1)
		return nil
	}
	if !e.used.Load() {
		e.used.Store(true)
	}
	s.hits.Add(1)
	return &e.v
}

// within reports whether the entry is young enough. An entry that is more than a TTL in the
// future is not: the clock was set back, so the entry's age is unknown.
func (e *entry) within(opt *Options) bool {
	age := time.Duration(opt.Now.UnixNano() - e.born)
	return age <= opt.CacheTTL && age >= -opt.CacheTTL
}

func (c *Cache) put(h uint64, key []byte, v verdict, now time.Time) {
	e := &entry{hash: h, born: now.UnixNano(), key: string(key), v: v, size: int64(200 + len(key) + len(v.reason))}
	for _, m := range v.mask {
		e.size += int64(40 + len(m.Path))
	}
	s := &c.shards[h%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.size > s.limit {
		return
	}
	if old := s.by[h]; old != nil {
		s.drop(old)
	}
	for s.bytes+e.size > s.limit {
		if s.hand >= len(s.ring) {
			s.hand = 0
		}
		if victim := s.ring[s.hand]; victim.used.Swap(false) {
			s.hand++
		} else {
			s.drop(victim)
		}
	}
	e.at = len(s.ring)
	s.ring = append(s.ring, e)
	s.by[h] = e
	s.bytes += e.size
}

// drop removes an entry; the last entry of the ring takes its place.
func (s *shard) drop(e *entry) {
	last := len(s.ring) - 1
	s.ring[e.at] = s.ring[last]
	s.ring[e.at].at = e.at
	s.ring[last] = nil
	s.ring = s.ring[:last]
	delete(s.by, e.hash)
	s.bytes -= e.size
}

// CacheStats counts the lookups of a cache, and what it holds now.
type CacheStats struct {
	Hits, Misses int64
	Entries      int
	Bytes        int64
}

// Stats returns the cache's counters. It locks every shard in turn, so do not call it for each
// decision.
func (c *Cache) Stats() CacheStats {
	var st CacheStats
	for i := range c.shards {
		s := &c.shards[i]
		st.Hits += s.hits.Load()
		st.Misses += s.miss.Load()
		s.mu.RLock()
		st.Entries += len(s.by)
		st.Bytes += s.bytes
		s.mu.RUnlock()
	}
	return st
}
