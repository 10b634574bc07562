package decision

import (
	"sync"
	"testing"
)

// Each reason has its own text, also where two share a place and several goroutines ask.
func TestAssumed(t *testing.T) {
	var a assumedReasons
	own := []string{"", "Denied by control a", "Denied by control q", "Allowed by control a", "No control matched the request"}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				if o := own[i%len(own)]; a.reason(o) != o+assumedEnvironment {
					t.Errorf("%q: %q", o, a.reason(o))
				}
			}
		})
	}
	wg.Wait()
	a.reason(own[1])
	if n := testing.AllocsPerRun(100, func() { a.reason(own[1]) }); n > 0 {
		t.Errorf("%v allocations for a reason that was there before", n)
	}
}
