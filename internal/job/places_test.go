package job

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestPlaces: lanes that hang never delay other lanes, whatever their number. Lanes are served in
// the order of arrival.
func TestPlaces(t *testing.T) {
	const hanging = 40
	ctx := context.Background()
	release := make(chan struct{})
	began := make(chan int64, 10*hanging)
	var mu sync.Mutex
	var again []LaneKey
	p := &places{slowAfter: time.Millisecond, known: map[LaneKey]bool{}, hanging: map[LaneKey]bool{}, quick: queue{free: 2}, slow: queue{free: 3}}
	p.serve = func(_ context.Context, key LaneKey, _ func()) time.Time {
		began <- key.Lane
		if key.Lane <= hanging {
			<-release
		}
		return time.Time{}
	}
	p.done = func(key LaneKey, _ time.Time) {
		mu.Lock()
		again = append(again, key)
		mu.Unlock()
	}
	next := func() int64 {
		t.Helper()
		select {
		case n := <-began:
			return n
		case <-time.After(time.Minute):
			t.Fatal("no turn begins within a minute")
			return 0
		}
	}
	for i := range int64(hanging) {
		p.enqueue(ctx, LaneKey{"t", i + 1})
		p.enqueue(ctx, LaneKey{"t", i + 1}) // no effect: it is queued or has a turn
	}
	p.enqueue(ctx, LaneKey{"t", 1000})
	var order []int64
	for range hanging + 1 {
		order = append(order, next())
	}
	if slices.Sort(order); order[hanging] != 1000 || len(slices.Compact(order)) != hanging+1 {
		t.Fatalf("turns = %v, want one of each lane", order)
	}
	quick := LaneKey{"t", 1000}
	for slow := 0; slow < hanging; runtime.Gosched() {
		p.mu.Lock()
		delete(p.hanging, quick) // on a busy machine its turn may have been slow too
		slow = len(p.hanging)
		p.mu.Unlock()
	}
	close(release)
	p.running.Wait()
	if len(again) != hanging+1 || p.quick.free != 2 || p.slow.free != 3 || len(p.known) != 0 {
		t.Fatalf("%d turns ended, %d and %d places are free, %d lanes are known, want %d, 2, 3 and 0", len(again), p.quick.free, p.slow.free, len(p.known), hanging+1)
	}

	delete(p.hanging, quick)

	// Lanes that hung now share the slow places, in order.
	release = make(chan struct{})
	for i := range int64(hanging) {
		p.enqueue(ctx, LaneKey{"t", i + 1})
	}
	p.enqueue(ctx, quick)
	first := []int64{next(), next(), next(), next()}
	if slices.Sort(first); !slices.Equal(first, []int64{1, 2, 3, 1000}) {
		t.Errorf("first turns = %v, want 1, 2, 3 and 1000", first)
	}
	close(release)
	p.running.Wait()
	if len(began) != hanging-3 || p.quick.free != 2 || p.slow.free != 3 {
		t.Errorf("%d more turns, %d and %d places are free, want %d, 2 and 3", len(began), p.quick.free, p.slow.free, hanging-3)
	}
}
