package job

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestAgendaSpreadsChecks: an agenda checks every tenant once in each interval. The interval grows
// with the number of tenants, so the number of checks in a second does not.
func TestAgendaSpreadsChecks(t *testing.T) {
	for _, c := range []struct {
		tenants  int
		atOnce   bool
		interval time.Duration
		most     int // checks at one moment
	}{
		{3, false, time.Minute, 1},
		{900, false, time.Minute, 16},
		{10_000, false, 10 * time.Minute, 17},
		{10_000, true, 10 * time.Minute, 10_000},
	} {
		t.Run(fmt.Sprint(c.tenants, c.atOnce), func(t *testing.T) {
			now := time.Unix(1_800_000_000, 0)
			begin := now
			a := Agenda{Now: func() time.Time { return now }, Poll: time.Minute, due: map[scope.TenantID]time.Time{}}
			ids := make([]scope.TenantID, c.tenants)
			for i := range ids {
				ids[i] = scope.TenantID(fmt.Sprint("t", i))
			}
			a.spread(ids, now, c.atOnce)
			checks := map[scope.TenantID]int{}
			for now.Sub(begin) < c.interval {
				n := 0
				tenant, wait := a.next()
				for ; tenant != ""; tenant, wait = a.next() {
					checks[tenant]++
					n++
				}
				if n > c.most {
					t.Fatalf("%d checks at one moment, want at most %d", n, c.most)
				}
				now = now.Add(wait)
			}
			for _, id := range ids {
				if checks[id] != 1 {
					t.Fatalf("%d checks of %s, want 1", checks[id], id)
				}
			}
			if got := now.Sub(begin); got != c.interval {
				t.Errorf("the tenants are listed again after %s, want %s", got, c.interval)
			}
		})
	}
}
