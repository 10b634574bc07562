package decision

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// clockedShare is a share with a clock that moves only as work is done.
type clockedShare struct {
	*ProcessorShare
	clock  atomic.Int64           // nanoseconds
	onStep func(t scope.TenantID) // called after each step of work
}

func newShare(processors int, tenants ...scope.TenantID) *clockedShare {
	w := &clockedShare{onStep: func(scope.TenantID) {}}
	w.clock.Store(int64(time.Hour))
	w.ProcessorShare = NewProcessorShare(processors, func() time.Time { return time.Unix(0, w.clock.Load()) })
	for _, t := range tenants {
		w.noteTenant(t, w.now())
	}
	return w
}

// step is how far work moves the clock between two pauses.
const step = 50 * time.Microsecond

// work runs for whole in steps, pauses after each, and returns how long it ran.
func (w *clockedShare) work(ctx context.Context, tenant scope.TenantID, whole time.Duration) time.Duration {
	t := w.begin(ctx, tenant, w.now(), time.Hour)
	defer t.end()
	for ran := time.Duration(0); ; ran += step {
		if ran >= whole || !t.pause() {
			return ran
		}
		w.clock.Add(int64(step))
		w.onStep(tenant)
	}
}

// served reports whether a tenant holds or waits for a slot.
func (w *clockedShare) served(tenant scope.TenantID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accounts[tenant] != nil
}

// wantEmpty reports whatever runs or waits.
func (w *clockedShare) wantEmpty(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running != 0 || w.waits.Load() != 0 || len(w.accounts) != 0 {
		t.Errorf("%d running, %d waiting, %d accounts, want none", w.running, w.waits.Load(), len(w.accounts))
	}
}

// TestShareBetweenTenants checks that, on one slot, a tenant with one evaluation is done after about
// twice its own time (by weight), however many another tenant has. The clock is the test's.
func TestShareBetweenTenants(t *testing.T) {
	for _, tc := range []struct {
		weight int
		most   time.Duration
	}{{1, 24 * time.Millisecond}, {4, 17 * time.Millisecond}} {
		t.Run(fmt.Sprint("weight ", tc.weight), func(t *testing.T) {
			w := newShare(2, "noisy", "quiet")
			w.Weight = func(id scope.TenantID) int {
				if id == "quiet" {
					return tc.weight
				}
				return 1
			}
			// Only the steps of the noisy tenant while the quiet one is served count, not how long the
			// machine delays the quiet goroutine.
			var ahead atomic.Int64
			w.onStep = func(id scope.TenantID) {
				w.noteTenant("quiet", w.now())
				w.noteTenant("noisy", w.now())
				if id == "noisy" && w.served("quiet") {
					ahead.Add(int64(step))
				}
			}
			ctx, cancel := context.WithCancel(context.Background())
			var noisy sync.WaitGroup
			for range 24 {
				noisy.Go(func() {
					for w.work(ctx, "noisy", 40*time.Millisecond) > 0 && ctx.Err() == nil {
					}
				})
			}
			for w.waits.Load() < 20 {
				runtime.Gosched() // until the noisy tenant waits
			}
			for range 10 {
				ahead.Store(0)
				if ran := w.work(context.Background(), "quiet", 10*time.Millisecond); ran != 10*time.Millisecond {
					t.Fatalf("the quiet tenant ran %s, want 10ms", ran)
				}
				if took := 10*time.Millisecond + time.Duration(ahead.Load()); took > tc.most {
					t.Errorf("10ms of the quiet tenant took %s, want at most %s", took, tc.most)
				}
			}
			cancel()
			noisy.Wait()
			w.wantEmpty(t)
		})
	}
}

// TestShareSlots checks that no more evaluations run past their first pause than there are slots: one
// for each processor for a tenant alone, one fewer for several.
func TestShareSlots(t *testing.T) {
	for _, tc := range []struct {
		tenants []scope.TenantID
		slots   int64
	}{{[]scope.TenantID{"a"}, 4}, {[]scope.TenantID{"a", "b"}, 3}} {
		w := newShare(4, tc.tenants...)
		var running, most atomic.Int64
		var all sync.WaitGroup
		for i := range 24 {
			all.Go(func() {
				turn := w.begin(context.Background(), tc.tenants[i%len(tc.tenants)], w.now(), time.Hour)
				defer turn.end()
				for range 100 {
					turn.pause()
					n := running.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					w.clock.Add(int64(100 * time.Microsecond))
					running.Add(-1)
				}
			})
		}
		all.Wait()
		if most.Load() > tc.slots {
			t.Errorf("%d tenants: %d ran at once, want at most %d", len(tc.tenants), most.Load(), tc.slots)
		}
		w.wantEmpty(t)
	}
}

// TestShareEndsWaits checks that an evaluation stops waiting when its caller leaves or its time to wait
// is over, and that a free slot is given at once.
func TestShareEndsWaits(t *testing.T) {
	w := newShare(2, "a", "b")
	holder := w.begin(context.Background(), "a", w.now(), time.Hour)
	if !holder.pause() {
		t.Fatal("a free slot was not given")
	}
	left, leave := context.WithCancel(context.Background())
	leave()
	for name, turn := range map[string]*turn{
		"the caller left": w.begin(left, "b", w.now(), time.Hour), "the time is over": w.begin(context.Background(), "b", w.now(), time.Nanosecond),
	} {
		if turn.pause() {
			t.Errorf("%s: the evaluation continues without a slot", name)
		}
		turn.end()
	}
	holder.end()
	w.wantEmpty(t)
}

// TestShareUnderStress checks that no slot is lost and nobody waits for ever, whatever begins and ends.
func TestShareUnderStress(t *testing.T) {
	w := newShare(3)
	var all sync.WaitGroup
	for i := range 32 {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		all.Go(func() {
			for range 150 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(2000))*time.Microsecond)
				w.work(ctx, scope.TenantID(rune('a'+r.IntN(5))), time.Duration(r.IntN(30))*time.Millisecond)
				cancel()
			}
		})
	}
	all.Wait()
	w.wantEmpty(t)
}
