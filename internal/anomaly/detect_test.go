package anomaly

import (
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
)

// history returns a week of hours with total decisions each, of which denied are denied.
func history(total, denied int64) []stats.Rollup {
	var out []stats.Rollup
	for i := range 7 * 24 {
		u := stats.Rollup{Start: time.Date(2026, 11, 1, i, 0, 0, 0, time.UTC), Permitted: total - denied, Denied: denied}
		u.Latencies.Add(100, total)
		out = append(out, u)
	}
	return out
}

// TestTooLittleIsNoAnomaly: nothing is flagged without a baseline or with few decisions,
// whatever their share is.
func TestTooLittleIsNoAnomaly(t *testing.T) {
	worst := stats.Rollup{Denied: 10_000, Errors: 10_000}
	worst.Latencies.Add(10_000_000, 10_000)
	for name, hours := range map[string][]stats.Rollup{
		"no history": nil, "two hours": history(1000, 10)[:2], "hours of a few": history(1, 0),
	} {
		if found := append(DetectShares(worst, window, hours, usual), DetectLatency(worst, window, hours, usual)...); len(found) > 0 {
			t.Errorf("%s: findings = %+v, want none", name, found)
		}
	}
	few := stats.Rollup{Denied: 19, Errors: 9}
	few.Latencies.Add(10_000_000, 19)
	if found := append(DetectShares(few, window, history(1000, 10), usual), DetectLatency(few, window, history(1000, 10), usual)...); len(found) > 0 {
		t.Errorf("19 decisions: findings = %+v, want none", found)
	}
}

// TestTuningMoves: the threshold follows the tenant's setting.
func TestTuningMoves(t *testing.T) {
	now := stats.Rollup{Permitted: 50, Denied: 50}
	for factor, want := range map[float64]int{2: 1, 3: 1, 6: 0, 20: 0} {
		found := DetectShares(now, window, history(1000, 100), Tuning{Factor: factor})
		if len(found) != want {
			t.Errorf("factor %v: findings = %+v, want %d", factor, found, want)
		}
		for _, f := range found {
			if e := f.Evidence; e.Measured != 50 || e.Usual < 9.9 || e.Usual > 10.1 || e.Measured < e.Threshold || e.Decisions != 100 || e.Summary == "" {
				t.Errorf("factor %v: evidence = %+v", factor, e)
			}
		}
	}
}

// TestSpikes: a subject is found if it is far busier than before, or than all others if it is new.
func TestSpikes(t *testing.T) {
	quiet := []int64{40, 50, 60, 50}
	for name, c := range map[string]struct {
		list []stats.Activity
		want []string
	}{
		"no change":             {[]stats.Activity{{Subject: "ada", Now: 120, Before: []int64{100, 110, 90}}}, nil},
		"three times":           {[]stats.Activity{{Subject: "ada", Now: 400, Before: []int64{100, 110, 90}}}, []string{"ada"}},
		"once as busy before":   {[]stats.Activity{{Subject: "ada", Now: 400, Before: []int64{100, 350, 90}}}, nil},
		"too few to matter":     {[]stats.Activity{{Subject: "ada", Now: 99, Before: []int64{1, 1, 1}}}, nil},
		"nobody has a history":  {[]stats.Activity{{Subject: "new", Now: 9000}}, nil},
		"new and far above all": {[]stats.Activity{{Subject: "old", Now: 100, Before: quiet}, {Subject: "new", Now: 400}}, []string{"new"}},
		"new and like the rest": {[]stats.Activity{{Subject: "old", Now: 100, Before: []int64{100, 100, 110}}, {Subject: "new", Now: 140}}, nil},
	} {
		found := DetectSpikes(UserSpike, 24*time.Hour, days, c.list, usual)
		if len(found) != len(c.want) || len(found) > 0 && found[0].Subject != c.want[0] {
			t.Errorf("%s: findings = %+v, want %v", name, found, c.want)
		}
	}
}

// TestSources: an address is found if many of its requests for different people or resources are denied.
func TestSources(t *testing.T) {
	for name, c := range map[string]struct {
		s    stats.Source
		want bool
	}{
		"tries many people":      {stats.Source{Denied: 40, Users: 20, Resources: 1}, true},
		"tries many resources":   {stats.Source{Denied: 40, Users: 1, Resources: 20}, true},
		"one person who may not": {stats.Source{Denied: 400, Users: 1, Resources: 1}, false},
		"a shared address":       {stats.Source{Permitted: 400, Denied: 40, Users: 30, Resources: 30}, false},
		"a few denials":          {stats.Source{Denied: 10, Users: 10, Resources: 10}, false},
	} {
		if found := DetectSources([]stats.Source{c.s}, sources, history(1000, 20), usual); (len(found) > 0) != c.want {
			t.Errorf("%s: findings = %+v, want one: %v", name, found, c.want)
		}
	}
	// If nearly everything is denied, no address stands out.
	if found := DetectSources([]stats.Source{{Permitted: 3, Denied: 40, Users: 20}}, sources, history(1000, 900), usual); len(found) > 0 {
		t.Errorf("a tenant that denies nearly all: findings = %+v, want none", found)
	}
}
