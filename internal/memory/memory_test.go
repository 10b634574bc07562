package memory

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

func take(t *testing.T, r *Pool, who string, n int64) func() {
	t.Helper()
	free, err := r.Take(t.Context(), who, n, false)
	if err != nil {
		t.Fatalf("%s: %v", who, err)
	}
	return free
}

// TestPart: a holder that has filled its part waits, and the rest stays free for others.
func TestPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(100, 60, time.Second)
		free := take(t, r, "a", 50)
		if _, err := r.Take(t.Context(), "a", 20, false); !errors.Is(err, ErrFull) {
			t.Fatalf("more than a part: %v", err)
		}
		defer take(t, r, "b", 40)()
		free()
		free = take(t, r, "a", 1000) // all that it may have
		if got := r.Taken(); got != 100 {
			t.Errorf("%d bytes are taken", got)
		}
		free()
	})
}

// TestTurns: a holder with many requests waiting does not starve one that comes later, and a large
// request gets its turn among small ones.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(100, 100, time.Minute)
		free := take(t, r, "a", 100)
		var order []string
		var mu sync.Mutex
		var all sync.WaitGroup
		ask := func(who string, n int64) {
			all.Go(func() {
				done := take(t, r, who, n)
				mu.Lock()
				order = append(order, who)
				mu.Unlock()
				time.Sleep(time.Second) // the time of the bubble
				done()
			})
			synctest.Wait()
		}
		for range 10 {
			ask("a", 60)
		}
		ask("b", 100)
		ask("c", 60)
		free()
		all.Wait()
		if first := order[:3]; !slices.Contains(first, "b") || !slices.Contains(first, "c") {
			t.Errorf("served in the order %v", order)
		}
	})
}

// TestStrangers: requests without a credential get a quarter of a part.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(100, 80, time.Second)
		for range 2 {
			errtest.Must(t, errtest.Of(r.Take(t.Context(), "", 10, true)))
		}
		if _, err := r.Take(t.Context(), "", 10, true); !errors.Is(err, ErrFull) {
			t.Errorf("strangers took more than their part: %v", err)
		}
		take(t, r, "a", 80)()
	})
}

// TestSum: requests never take more than the total. At the end nothing is taken, and no holder is
// left.
func TestSum(t *testing.T) {
	r := New(1000, 500, time.Millisecond)
	var taken atomic.Int64
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 500 {
				n := 1 + random.Int64N(400)
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(4) == 0 {
					cancel()
				}
				free, err := r.Take(ctx, string(rune('a'+random.IntN(5))), n, false)
				if err == nil {
					if sum := taken.Add(n); sum > 1000 {
						t.Errorf("%d bytes are taken", sum)
					}
					taken.Add(-n)
					free()
				}
				cancel()
			}
		})
	}
	all.Wait()
	if r.taken != 0 || len(r.holders) != 0 || len(r.ring) != 0 {
		t.Errorf("left: %d bytes, %d holders, %d waiting", r.taken, len(r.holders), len(r.ring))
	}
}
