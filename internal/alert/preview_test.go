package alert

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
)

// TestPreviewSlides checks that a sliding window, which adds and removes each minute once, gives
// the same values as a sum over each window.
func TestPreviewSlides(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	until := time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC)
	since := until.Add(-9 * time.Hour)
	var minutes []minute
	for at := since; at.Before(until); at = at.Add(time.Minute) {
		if random.IntN(3) == 0 {
			continue // no decisions in this minute
		}
		m := minute{at: at, entries: random.Int64N(4), sum: stats.Rollup{
			Permitted: random.Int64N(5), Denied: random.Int64N(5), Masked: random.Int64N(3), Errors: random.Int64N(3), EvaluationUS: random.Int64N(9000),
		}}
		for range m.sum.Total() {
			m.sum.Latencies.Add(random.Int64N(40_000), 1)
		}
		minutes = append(minutes, m)
	}
	for _, metric := range []string{"denial_rate", "error_rate", "mask_rate", "decision_count", "denial_count", "error_count", "latency_avg", "latency_p50", "latency_p99", auditEvents} {
		for _, window := range []int{60, 600, 7200} {
			r := Rule{Trigger: Trigger{Metric: metric, Operator: ">", Threshold: 1}, Frequency: Frequency{Window: window}.filled()}
			held, highest := 0, -1.0
			for end := since.Add(r.Frequency.window()).Truncate(r.interval()); !end.After(until); end = end.Add(r.interval()) {
				var all minute
				for i := range minutes {
					if m := &minutes[i]; m.at.Before(end) && !m.at.Before(end.Add(-r.Frequency.window())) {
						all.add(m)
					}
				}
				value, there := all.measure(metric)
				if r.Trigger.holds(value, there) {
					held++
				}
				if there {
					highest = max(highest, value)
				}
			}
			p := previewRule(r, minutes, since, until)
			if held == 0 || p.Held != held || p.Highest == nil || *p.Highest != highest {
				t.Errorf("%s in %ds: held %d times, highest %v; want %d, %v", metric, window, p.Held, p.Highest, held, highest)
			}
		}
	}
}
