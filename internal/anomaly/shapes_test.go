package anomaly

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// shape is a kind of traffic: decisions a minute at a time, the shares that are denied and that
// fail, and the time of an evaluation.
type shape struct {
	rate             func(time.Time) float64
	denied, failed   func(time.Time) float64
	latency, scatter float64 // median in microseconds, and sigma of its logarithm
}

func always(x float64) func(time.Time) float64 { return func(time.Time) float64 { return x } }

// office is 1 at noon of a working day, and 0.05 at night and on days off.
func office(t time.Time) float64 {
	if d := t.Weekday(); d == time.Saturday || d == time.Sunday {
		return 0.05
	}
	return 0.05 + 0.95*math.Max(0, math.Sin(float64(t.Hour()*60+t.Minute()-360)/720*math.Pi))
}

// shapes are kinds of traffic without incidents.
func shapes() map[string]shape {
	return map[string]shape{
		"a machine":                      {always(200), always(0.02), always(0), 40, 0.5},
		"an office":                      {func(t time.Time) float64 { return 120 * office(t) }, always(0.05), always(0.001), 60, 0.8},
		"an office that denies a lot":    {func(t time.Time) float64 { return 60 * office(t) }, always(0.4), always(0), 60, 0.8},
		"few people":                     {func(t time.Time) float64 { return 3 * office(t) }, always(0.1), always(0), 60, 0.8},
		"a batch each night that denies": {func(t time.Time) float64 { return 20 + 300*at(t, 2, 3) }, func(t time.Time) float64 { return 0.02 + 0.2*at(t, 2, 3) }, always(0), 80, 0.6},
		"a release each day at ten":      {always(80), func(t time.Time) float64 { return 0.03 + 0.05*at(t, 10, 11) }, func(t time.Time) float64 { return 0.002 + 0.01*at(t, 10, 11) }, 60, 1},
	}
}

// at returns 1 between two hours of the day, otherwise 0.
func at(t time.Time, from, to int) float64 {
	if t.Hour() >= from && t.Hour() < to {
		return 1
	}
	return 0
}

// world simulates a shape minute by minute, with roll-ups of hours for the baseline.
type world struct {
	shape
	r       *rand.Rand
	now     time.Time
	minutes []stats.Rollup // the last minutes, as many as the window has
	hours   []stats.Rollup
}

func newWorld(s shape, seed uint64) *world {
	return &world{shape: s, r: rand.New(rand.NewPCG(seed, 7)), now: time.Date(2026, 9, 7, 0, 0, 0, 0, time.UTC)}
}

// poisson returns a random count with a Poisson distribution.
func (w *world) poisson(mean float64) int64 {
	if mean > 50 {
		return max(0, int64(math.Round(mean+math.Sqrt(mean)*w.r.NormFloat64())))
	}
	n, p := int64(0), w.r.Float64()
	for limit := math.Exp(-mean); p > limit; n++ {
		p *= w.r.Float64()
	}
	return n
}

// tick simulates one minute. change alters the shape for it.
func (w *world) tick(change func(*shape)) {
	s := w.shape
	if change != nil {
		change(&s)
	}
	u := stats.Rollup{Start: w.now}
	total := w.poisson(s.rate(w.now))
	u.Denied = min(total, w.poisson(float64(total)*s.denied(w.now)))
	u.Errors = min(u.Denied, w.poisson(float64(total)*s.failed(w.now)))
	u.Permitted = total - u.Denied
	for range min(total, 100) { // as many as a percentile needs
		u.Latencies.Add(int64(s.latency*math.Exp(s.scatter*w.r.NormFloat64())), 1)
	}
	if h := stats.Hour.Start(w.now); len(w.hours) == 0 || !w.hours[len(w.hours)-1].Start.Equal(h) {
		w.hours = append(w.hours, stats.Rollup{Start: h})
	}
	w.hours[len(w.hours)-1].Merge(&u)
	w.minutes = append(w.minutes, u)
	if len(w.minutes) > 5 {
		w.minutes = w.minutes[1:]
	}
	w.now = w.now.Add(time.Minute)
}

// detect runs the detectors as the service does.
func (w *world) detect() []Finding {
	var current stats.Rollup
	for i := range w.minutes {
		current.Merge(&w.minutes[i])
	}
	first, last := w.now.Add(-baseline), w.now.Add(-window-time.Hour)
	var hours []stats.Rollup
	for _, h := range w.hours {
		if !h.Start.Before(stats.Hour.Start(first)) && !h.Start.After(last) {
			hours = append(hours, h)
		}
	}
	return append(DetectShares(current, window, hours, usual), DetectLatency(current, window, hours, usual)...)
}

var usual = Tuning{Factor: 3}

// TestFalseAlarms simulates three weeks of each shape, the first as history, and counts what is
// flagged although nothing is wrong. docs/dashboard.md states the result.
func TestFalseAlarms(t *testing.T) {
	fulltest.Only(t)
	alarms, weeks := 0, 0
	for name, s := range shapes() {
		if !fulltest.Run() && name != "an office" {
			continue
		}
		w := newWorld(s, 11)
		var last time.Time
		for minute := range 21 * 24 * 60 {
			w.tick(nil)
			if minute < 7*24*60 || minute%5 != 0 {
				continue
			}
			if found := w.detect(); len(found) > 0 {
				if w.now.Sub(last) > pause {
					alarms++
					t.Logf("%s, %s: %+v", name, w.now.Format("Mon 15:04"), found[0])
				}
				last = w.now
			}
		}
		weeks += 2
	}
	t.Logf("%d false alarms in %d weeks of traffic", alarms, weeks)
	if alarms > 2 {
		t.Errorf("%d false alarms in %d weeks, want at most 2", alarms, weeks)
	}
}

// TestIncidentsAreFound simulates a week of each shape and then an incident, and counts the minutes
// until it is flagged.
func TestIncidentsAreFound(t *testing.T) {
	incidents := []struct {
		name   string
		kind   Kind
		change func(*shape)
	}{
		{"a control that denies nearly all", DenialSpike, func(s *shape) { s.denied = always(0.9) }},
		{"an attack of as many denials again", DenialSpike, func(s *shape) {
			rate, denied := s.rate, s.denied
			s.rate = func(t time.Time) float64 { return 5*rate(t) + 50 }
			s.denied = func(t time.Time) float64 { return 1 - 0.2*(1-denied(t)) }
		}},
		{"a control that fails for a third", ErrorSpike, func(s *shape) { s.failed, s.denied = always(0.33), always(0.5) }},
		{"evaluations that are a hundred times slower", LatencyAnomaly, func(s *shape) { s.latency *= 100 }},
	}
	for name, s := range shapes() {
		if name == "few people" {
			continue // too few decisions for a finding within minutes
		}
		if !fulltest.Run() && name != "an office" {
			continue
		}
		for _, in := range incidents {
			w := newWorld(s, 23)
			for range 7*24*60 + 14*60 { // until 14:00 on a Monday
				w.tick(nil)
			}
			took := 0
			for found := false; !found; took++ {
				if took > 15 {
					t.Errorf("%s: %s is not flagged within 15 minutes", name, in.name)
					break
				}
				w.tick(in.change)
				for _, f := range w.detect() {
					found = found || f.Kind == in.kind
				}
			}
			t.Logf("%s: %s: after %d minutes", name, in.name, took)
		}
	}
}
