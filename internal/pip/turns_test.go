package pip

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestTurns: one tenant and all together never run more large fetches than allowed, every fetch gets
// a turn, and tenants without a fetch are forgotten.
func TestTurns(t *testing.T) {
	var turns turns
	var all atomic.Int64
	var of [10]atomic.Int64
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			n := i % len(of)
			leave, err := turns.take(t.Context(), scope.TenantID(rune('a'+n)))
			if err != nil {
				t.Error(err)
				return
			}
			if all.Add(1) > largeAtOnce || of[n].Add(1) > largeOfTenant {
				t.Errorf("%d at once, %d of a tenant", all.Load(), of[n].Load())
			}
			of[n].Add(-1)
			all.Add(-1)
			leave()
		})
	}
	wg.Wait()
	if len(turns.of) != 0 {
		t.Errorf("%d tenants are kept", len(turns.of))
	}
	var ends []func()
	for range largeOfTenant {
		leave, err := turns.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, leave)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.take(over, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a turn too many: %v", err)
	}
	other, err := turns.take(t.Context(), "b")
	if err != nil {
		t.Fatalf("another tenant waits: %v", err)
	}
	other()
	for _, leave := range ends {
		leave()
	}
	if len(turns.of) != 0 {
		t.Errorf("%d tenants are kept", len(turns.of))
	}
}
