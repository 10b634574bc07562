// Package cache counts in fixed windows (quotas, failed logins). All replicas share the counters
// through Redis; without Redis each process has its own. Correctness never depends on it: if Redis
// fails, each replica counts alone and reports that it is degraded until Redis answers again. A
// caller waits for Redis at most 5 ms. After 250 ms Redis counts as failed, and nobody waits for
// it.
package cache

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// maxCounters bounds the counters of one process.
const maxCounters = 1 << 20

// Config says which cache to use.
type Config struct {
	// URL is a redis:// or rediss:// address; empty means this process alone.
	URL string
	// Now is the clock that windows are cut by; nil means the wall clock in UTC.
	Now func() time.Time
	// Timeout limits one call to Redis (250 ms). After a failed call, Redis is not used until a
	// probe, which runs every second, is answered.
	Timeout time.Duration
	// Patience is how long a caller of Count waits for Redis (5 ms). After that, this process's own
	// count applies, which continues from the last answer of Redis.
	Patience time.Duration
	// Logger is told when Redis goes away and comes back; nil logs nothing.
	Logger *slog.Logger
}

// Window is the state of a counter in the current window.
type Window struct {
	Count int64
	Reset time.Time // when the window ends and the count begins anew
}

// Health is the state of the cache, for the health operations.
type Health struct {
	Status        string  `json:"status" enum:"embedded,up,degraded" doc:"embedded: this process alone; degraded: Redis does not answer, each replica counts for itself"`
	LatencyMS     float64 `json:"latency_ms" doc:"Time of one round trip, in milliseconds"`
	MemoryUsageMB float64 `json:"memory_usage_mb" doc:"Memory in use, in MB: of Redis, or of the counters in this process"`
}

// Cache is safe for concurrent use.
type Cache struct {
	now      func() time.Time
	local    *otter.Cache[string, localWindow]
	redis    *remote // nil when embedded
	degraded atomic.Bool
}

type localWindow struct {
	Window
	length time.Duration
}

// Open opens the cache. A Redis that does not answer is not an error: the cache is degraded until
// it does. Error: the address is not valid.
func Open(ctx context.Context, cfg Config) (*Cache, error) {
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return time.Now().UTC() }
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 250 * time.Millisecond
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 5 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	local, err := otter.New(&otter.Options[string, localWindow]{
		MaximumSize: maxCounters,
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[string, localWindow]) time.Duration {
			return e.Value.length
		}),
	})
	if err != nil {
		return nil, fault.Wrap(err, "cache")
	}
	c := &Cache{now: cfg.Now, local: local}
	if cfg.URL != "" {
		if c.redis, err = openRemote(ctx, cfg, c); err != nil {
			local.StopAllGoroutines()
			return nil, err
		}
	}
	return c, nil
}

// Close closes the connection and waits for background work.
func (c *Cache) Close() {
	if c.redis != nil {
		c.redis.close()
	}
	c.local.StopAllGoroutines()
}

// windowAt returns the window of the given length that contains now.
func windowAt(now time.Time, length time.Duration) (start, reset time.Time) {
	start = now.UTC().Truncate(length)
	return start, start.Add(length)
}

// counterKey returns the key of a counter. It begins with the tenant, whose id has no colon.
func counterKey(tenant, key string, length time.Duration) string {
	return "gh:" + tenant + ":" + strconv.FormatInt(length.Milliseconds(), 10) + ":" + key
}

// Count adds n to a tenant's counter and returns the new state. Windows are fixed and the same on
// every replica. It does not fail if Redis does. Error: the window is not valid.
func (c *Cache) Count(ctx context.Context, tenant, key string, n int64, window time.Duration) (Window, error) {
	if window < time.Millisecond {
		return Window{}, fault.Wrap(errWindow, "cache")
	}
	start, reset := windowAt(c.now(), window)
	full := counterKey(tenant, key, window)
	if c.redis != nil && !c.degraded.Load() {
		known := func(count int64) {
			c.local.Set(full, localWindow{Window: Window{Count: count, Reset: reset}, length: window})
		}
		if count, err := c.redis.count(ctx, full, n, start, window, known); err == nil {
			return Window{Count: count, Reset: reset}, nil
		}
	}
	w, _ := c.local.Compute(full, func(old localWindow, found bool) (localWindow, otter.ComputeOp) {
		if !found || !old.Reset.Equal(reset) {
			old = localWindow{Window: Window{Reset: reset}, length: window}
		}
		old.Count += n
		return old, otter.WriteOp
	})
	return w.Window, nil
}

// Drop removes all counters of one tenant.
func (c *Cache) Drop(ctx context.Context, tenant string) error {
	prefix := "gh:" + tenant + ":"
	for key := range c.local.Keys() {
		if strings.HasPrefix(key, prefix) {
			c.local.Invalidate(key)
		}
	}
	if c.redis == nil {
		return nil
	}
	return c.redis.drop(ctx, prefix)
}

// Health returns the state of the cache, with the memory of Redis or of the counters in this
// process.
func (c *Cache) Health(ctx context.Context) Health {
	if c.redis != nil {
		if c.degraded.Load() { // it is asked by the probe; nobody else waits for it
			return Health{Status: "degraded", MemoryUsageMB: c.localMB()}
		}
		if h, err := c.redis.health(ctx); err == nil {
			return h
		}
		return Health{Status: "degraded", MemoryUsageMB: c.localMB()}
	}
	return Health{Status: "embedded", MemoryUsageMB: c.localMB()}
}

// counterBytes is what one counter takes beside its key: the entry, its place in
// the map and in the queue by which counters are dropped.
const counterBytes = 160

// localMB estimates the memory of the counters in this process, in MB.
func (c *Cache) localMB() float64 {
	total := 0
	for key := range c.local.All() {
		total += len(key) + counterBytes
	}
	return float64(total) / 1_000_000
}
