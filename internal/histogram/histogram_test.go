package histogram

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQuantilesAreNear compares percentiles of the histogram with those of the sorted list,
// for several distributions of latencies.
func TestQuantilesAreNear(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() float64{
		"even":       func() float64 { return 1 + r.Float64()*5000 },
		"log-normal": func() float64 { return math.Exp(5 + 1.5*r.NormFloat64()) },
		"two modes": func() float64 {
			if r.IntN(10) == 0 {
				return 20000 + 1000*r.Float64()
			}
			return 30 + 10*r.Float64()
		},
		"constant": func() float64 { return 777 },
	} {
		var l Latencies
		var all []float64
		for range 20_000 {
			us := int64(draw())
			l.Add(us, 1)
			all = append(all, float64(us)/1000)
		}
		slices.Sort(all)
		for _, q := range []float64{0.5, 0.95, 0.99} {
			want, got := all[int(q*float64(len(all)))], l.Quantile(q)
			if math.Abs(got-want) > 0.13*want {
				t.Errorf("%s: p%v is %v, the list's is %v", name, 100*q, got, want)
			}
		}
	}
	if empty := (&Latencies{}).Quantile(0.5); empty != 0 {
		t.Errorf("of nothing: %v", empty)
	}
}

func TestStepsHoldTheirLatencies(t *testing.T) {
	for us := int64(1); us < 1<<27; us = us*9/8 + 1 {
		from, to := stepBounds(latencyStep(us))
		if float64(us) < from || float64(us) >= to {
			t.Fatalf("%d us in [%v, %v)", us, from, to)
		}
	}
	for _, us := range []int64{-1, 0, math.MaxInt64} {
		if s := latencyStep(us); s < 0 || s >= latencySteps {
			t.Errorf("%d us in step %d", us, s)
		}
	}
}
