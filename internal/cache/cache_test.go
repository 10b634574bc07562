package cache_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/cache/cachetest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

func TestMain(m *testing.M) {
	// The client of Redis ends this one by itself, within a second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// clock is a clock that tests set.
type clock struct{ at atomic.Int64 }

func (c *clock) Now() time.Time { return time.UnixMilli(c.at.Load()) }

func count(t testing.TB, c *cache.Cache, tenant, key string, n int64, window time.Duration) cache.Window {
	t.Helper()
	w, err := c.Count(context.Background(), tenant, key, n, window)
	errtest.Must(t, err)
	return w
}

func TestCount(t *testing.T) {
	for _, where := range []string{"embedded", "redis"} {
		t.Run(where, func(t *testing.T) {
			clk := &clock{}
			clk.at.Store(time.Date(2026, 1, 1, 12, 59, 0, 0, time.UTC).UnixMilli())
			cfg := cache.Config{Now: clk.Now}
			if where == "redis" {
				cfg.URL = cachetest.Start(t).URL()
			}
			c := cachetest.Open(t, cfg)
			ctx := context.Background()
			want := time.Date(2026, 1, 1, 13, 0, 0, 0, time.UTC)
			if w := count(t, c, "a", "key", 2, time.Hour); w.Count != 2 || !w.Reset.Equal(want) {
				t.Errorf("first window = %+v, want 2 until %s", w, want)
			}
			if w := count(t, c, "a", "key", 3, time.Hour); w.Count != 5 {
				t.Errorf("window after 3 more = %+v, want 5", w)
			}
			if w := count(t, c, "b", "key", 1, time.Hour); w.Count != 1 {
				t.Errorf("window of another tenant = %+v, want 1", w)
			}
			if w := count(t, c, "a", "key", 1, time.Minute); w.Count != 1 {
				t.Errorf("window of another length = %+v, want 1", w)
			}
			clk.at.Add(int64(time.Minute / time.Millisecond))
			if w := count(t, c, "a", "key", 1, time.Hour); w.Count != 1 || !w.Reset.Equal(want.Add(time.Hour)) {
				t.Errorf("next window = %+v, want 1", w)
			}
			if w := count(t, c, "a", "key", -1, time.Hour); w.Count != 0 {
				t.Errorf("window after a return = %+v, want 0", w)
			}
			errtest.Must(t, c.Drop(ctx, "a"))
			if a, b := count(t, c, "a", "key", 1, time.Hour), count(t, c, "b", "key", 1, time.Hour); a.Count != 1 || b.Count != 1 {
				t.Errorf("windows after Drop = %+v and %+v, want 1 in each", a, b)
			}
			if _, err := c.Count(ctx, "a", "key", 1, 0); err == nil {
				t.Error("Count without a window succeeds, want an error")
			}
		})
	}
}

func TestConcurrentCount(t *testing.T) {
	cachetest.Each(t, func(t *testing.T, c *cache.Cache) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 250 {
					count(t, c, "a", "key", 1, 24*time.Hour)
				}
			})
		}
		wg.Wait()
		if w := count(t, c, "a", "key", 0, 24*time.Hour); w.Count != 2000 {
			t.Errorf("window = %+v, want 2000", w)
		}
	})
}

// TestRedisComesAndGoes: counting continues without Redis, and replicas count together again once
// it is back.
func TestRedisComesAndGoes(t *testing.T) {
	t.Parallel()
	server := cachetest.Start(t)
	server.Restart()
	server.Stop()
	ctx := context.Background()
	cfg := cache.Config{URL: server.URL()}
	b := cachetest.Open(t, cfg)
	var logged syncBuffer
	cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	cfg.URL = strings.Replace(cfg.URL, "redis://", "redis://someone:canary-password@", 1)
	withLog, err := cache.Open(ctx, cfg)
	errtest.Must(t, err)
	count(t, withLog, "t", "z", 1, time.Hour)
	withLog.Close()
	cfg.URL, cfg.Logger = server.URL(), nil
	a := cachetest.Open(t, cfg)
	if s := logged.String(); strings.Count(s, "Redis does not answer") != 1 || !strings.Contains(s, "address=") || strings.Contains(s, "canary") {
		t.Errorf("log = %q, want one line with the address and no secret", s)
	}
	if h := a.Health(ctx); h.Status != "degraded" {
		t.Errorf("Health without a server = %+v, want degraded", h)
	}
	for round := range 2 {
		if w := count(t, a, "t", "x", 1, 240*time.Hour); w.Count != int64(round+1) {
			t.Errorf("window without a server = %+v, want %d", w, round+1)
		}
		server.Restart()
		for a.Health(ctx).Status != "up" || b.Health(ctx).Status != "up" {
			if ctx.Err() != nil {
				t.Fatal("the cache does not use Redis again")
			}
		}
		// On a loaded machine a count may take longer than a cache waits: it then counts
		// alone, once.
		for try, late := 0, time.After(30*time.Second); ; try++ {
			key := fmt.Sprintf("y-%d-%d", round, try)
			w, v := count(t, a, "t", key, 1, 240*time.Hour), count(t, b, "t", key, 1, 240*time.Hour)
			if w.Count == 1 && v.Count == 2 {
				break
			}
			select {
			case <-late:
				t.Fatalf("round %d: the replicas count %+v and %+v, want one count", round, w, v)
			default:
			}
		}
		server.Stop()
	}
}

func TestHealth(t *testing.T) {
	cachetest.Each(t, func(t *testing.T, c *cache.Cache) {
		before := c.Health(context.Background())
		for i := range 1000 {
			errtest.Must(t, errtest.Of(c.Count(context.Background(), "t1", fmt.Sprintf("key-%d", i), 1, time.Hour)))
		}
		h := c.Health(context.Background())
		if h.Status == "degraded" || h.MemoryUsageMB <= 0 {
			t.Errorf("Health = %+v, want memory in use", h)
		}
		// It is the cache's own: it grows with what is in it, and is not the process's.
		if h.Status == "embedded" && (before.MemoryUsageMB != 0 || h.MemoryUsageMB < 0.1 || h.MemoryUsageMB > 1) {
			t.Errorf("memory of a thousand counters = %f MB, of none %f MB", h.MemoryUsageMB, before.MemoryUsageMB)
		}
	})
	if _, err := cache.Open(context.Background(), cache.Config{URL: "redis://user:secret@bad port"}); err == nil {
		t.Error("Open with a wrong address succeeds, want an error")
	}
}

func BenchmarkCount(b *testing.B) {
	for _, where := range []string{"embedded", "redis"} {
		b.Run(where, func(b *testing.B) {
			cfg := cache.Config{}
			if where == "redis" {
				cfg.URL = cachetest.Start(b).URL()
			}
			c := cachetest.Open(b, cfg)
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					count(b, c, "t", "key", 1, time.Hour)
				}
			})
		})
	}
}

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
