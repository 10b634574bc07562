// Package cache counts in fixed windows (quotas, failed logins), shared by all
// replicas through Redis, or in this process alone if no Redis is configured.
// Correctness never depends on it: when Redis fails, each replica counts for
// itself and reports that it is degraded until Redis answers again. While Redis
// is slow, a caller waits 5 ms at most; after 250 ms Redis counts as failed and
// nobody waits.
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
	// Timeout bounds one call to Redis (250 ms); after a failed one Redis is left
	// alone until a probe, one a second, gets an answer.
	Timeout time.Duration
	// Patience is how long whoever counts waits for Redis (5 ms). Past it this
	// process's own count holds, which goes on from what Redis said last.
	Patience time.Duration
	// Logger is told when Redis goes away and comes back; nil logs nothing.
	Logger *slog.Logger
}

// Window is the state of a counter in its present window.
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

// Open opens the cache. A Redis that does not answer is no error: the cache is
// degraded until it does. An address that cannot be read is one.
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

// Close ends the connection and waits for what runs in the background.
func (c *Cache) Close() {
	if c.redis != nil {
		c.redis.close()
	}
	c.local.StopAllGoroutines()
}

// windowAt is the window of the given length that now falls into.
func windowAt(now time.Time, length time.Duration) (start, reset time.Time) {
	start = now.UTC().Truncate(length)
	return start, start.Add(length)
}

// counterKey begins with the tenant, whose name holds no colon.
func counterKey(tenant, key string, length time.Duration) string {
	return "gh:" + tenant + ":" + strconv.FormatInt(length.Milliseconds(), 10) + ":" + key
}

// Count adds n to a tenant's counter and gives its state after that. Windows are
// fixed and the same on every replica. It does not fail when Redis does; the
// error is that of a bad window.
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

// Drop removes everything of one tenant.
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

// Health asks Redis for its memory, or says what the counters in this process take.
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

// localMB is the memory of the counters in this process.
func (c *Cache) localMB() float64 {
	total := 0
	for key := range c.local.All() {
		total += len(key) + counterBytes
	}
	return float64(total) / 1_000_000
}
