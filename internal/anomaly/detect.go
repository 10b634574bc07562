// Package anomaly finds decisions that are unusual for a tenant, with six detectors that each
// compare with the tenant's own recent baseline. A detector is a pure function of counts. Service
// reads the counts, stores the findings, and writes them to the audit log.
package anomaly

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/histogram"
)

// Kind is the kind of an anomaly.
type Kind string

// The six kinds.
const (
	DenialSpike     Kind = "denial_spike"
	ErrorSpike      Kind = "error_spike"
	LatencyAnomaly  Kind = "latency_anomaly"
	ResourceSpike   Kind = "resource_access_spike"
	UserSpike       Kind = "user_activity"
	SuspiciousPlace Kind = "suspicious_source_ip"
)

// Finding is one anomaly, as the detector reports it.
type Finding struct {
	Kind Kind
	// Subject is the user, resource or address concerned; empty for the environment.
	Subject  string
	Evidence Evidence
}

// Evidence is why something was flagged: numbers that a person can verify.
type Evidence struct {
	Summary   string  `json:"summary" doc:"One sentence that describes it."`
	Measured  float64 `json:"measured" doc:"The measured value, in the unit."`
	Usual     float64 `json:"usual" doc:"The tenant's baseline, in the unit."`
	Threshold float64 `json:"threshold" doc:"Values from here on are an anomaly, in the unit."`
	Unit      string  `json:"unit" enum:"percent,ms,decisions" doc:"Unit of the three figures above."`
	Decisions int64   `json:"decisions" doc:"Number of decisions that this is based on."`
	Window    int64   `json:"window_seconds" doc:"Length of the time in which they were made, in seconds."`
	Baseline  int64   `json:"baseline_seconds" doc:"Length of history that the baseline is based on, in seconds."`
}

// Tuning sets how far from its usual value an anomaly is.
type Tuning struct {
	// Factor is how many times the usual value is flagged. The default is 3; a tenant may set
	// another.
	Factor float64
}

// Minimums, so that small numbers are not anomalies.
const (
	leastDenials   = 20  // in the window, for a spike of denials
	leastErrors    = 10  // in the window, for a spike of errors
	leastTimed     = 50  // evaluations in the window, for latency
	leastAccesses  = 100 // of one resource in the hour, or of one user in the day
	leastHistory   = 200 // decisions in the baseline
	leastHours     = 3   // hours in the baseline with decisions
	leastInAnHour  = 30  // decisions in an hour, for it to count alone
	leastCertainty = 6   // standard deviations from the usual count
)

// DetectShares looks for spikes of denials and of errors: it compares the share in the current window
// with those of the hours of the baseline.
func DetectShares(now stats.Rollup, window time.Duration, hours []stats.Rollup, t Tuning) []Finding {
	var out []Finding
	for _, m := range []struct {
		kind  Kind
		of    func(*stats.Rollup) int64
		least int64
		floor float64 // minimum distance from the usual share
		what  string
	}{
		{DenialSpike, func(r *stats.Rollup) int64 { return r.Denied }, leastDenials, 0.10, "denied"},
		{ErrorSpike, func(r *stats.Rollup) int64 { return r.Errors }, leastErrors, 0.03, "denied because a control failed"},
	} {
		if f, ok := share(now, window, hours, t, m.of, m.least, m.floor); ok {
			f.Kind = m.kind
			f.Evidence.Summary = fmt.Sprintf("%.1f %% of %d decisions were %s; the usual share is %.1f %%", f.Evidence.Measured, now.Total(), m.what, f.Evidence.Usual)
			out = append(out, f)
		}
	}
	return out
}

func share(now stats.Rollup, window time.Duration, hours []stats.Rollup, t Tuning, of func(*stats.Rollup) int64, least int64, floor float64) (Finding, bool) {
	var all, bad int64
	var shares []float64
	for i := range hours {
		n := hours[i].Total()
		all, bad = all+n, bad+of(&hours[i])
		if n >= leastInAnHour {
			shares = append(shares, float64(of(&hours[i]))/float64(n))
		}
	}
	n, k := now.Total(), of(&now)
	if all < leastHistory || len(shares) < leastHours || k < least {
		return Finding{}, false
	}
	// One is added to both, so that a baseline without denials does not mean certainty.
	usual := float64(bad+1) / float64(all+2)
	limit := max(t.Factor*usual, 1.5*quantile(shares, 0.95), usual+floor)
	limit = min(limit, usual+0.7*(1-usual)) // three times 40 % is more than 100 %
	got := float64(k) / float64(n)
	deviation := (float64(k) - float64(n)*usual) / math.Sqrt(float64(n)*usual*(1-usual)+1)
	if got < limit || deviation < leastCertainty {
		return Finding{}, false
	}
	return Finding{Evidence: Evidence{
		Measured: percent(got), Usual: percent(usual), Threshold: percent(limit), Unit: "percent",
		Decisions: n, Window: int64(window / time.Second), Baseline: spanned(hours),
	}}, true
}

// DetectLatency looks for evaluations that take longer than usual: it compares the 95th percentile of the
// current window with those of the baseline and of its slow hours.
func DetectLatency(now stats.Rollup, window time.Duration, hours []stats.Rollup, t Tuning) []Finding {
	if now.Latencies.Count() < leastTimed {
		return nil
	}
	var all histogram.Latencies
	var each []float64
	for i := range hours {
		all.Merge(&hours[i].Latencies)
		if hours[i].Latencies.Count() >= leastInAnHour {
			each = append(each, hours[i].Latencies.Quantile(0.95))
		}
	}
	if all.Count() < leastHistory || len(each) < leastHours {
		return nil
	}
	usual, got := all.Quantile(0.95), now.Latencies.Quantile(0.95)
	limit := max(t.Factor*usual, 1.5*quantile(each, 0.95), usual+2)
	if got < limit {
		return nil
	}
	return []Finding{{Kind: LatencyAnomaly, Evidence: Evidence{
		Summary:  fmt.Sprintf("95 of 100 evaluations took up to %.1f ms; the usual time is %.1f ms", got, usual),
		Measured: got, Usual: usual, Threshold: limit, Unit: "ms",
		Decisions: now.Latencies.Count(), Window: int64(window / time.Second), Baseline: spanned(hours),
	}}}
}

// DetectSpikes looks for subjects with far more decisions than usual. It compares a period that has not
// ended with whole ones, so a period is never flagged for being longer. A subject without history
// is compared with the busy subjects of the baseline.
func DetectSpikes(kind Kind, stretch, baseline time.Duration, list []stats.Activity, t Tuning) []Finding {
	var typical []float64
	for _, a := range list {
		for _, n := range a.Before {
			typical = append(typical, float64(n))
		}
	}
	if len(typical) < leastHours {
		return nil
	}
	busy := quantile(typical, 0.95)
	var out []Finding
	for _, a := range list {
		if a.Now < leastAccesses {
			continue
		}
		usual, limit := busy, t.Factor*busy
		if len(a.Before) >= leastHours {
			sum := float64(0)
			for _, n := range a.Before {
				sum += float64(n)
			}
			usual = sum / float64(len(a.Before))
			limit = max(t.Factor*usual, 1.5*float64(slices.Max(a.Before)))
		}
		limit = max(limit, leastAccesses)
		if float64(a.Now) < limit || (float64(a.Now)-usual)/math.Sqrt(usual+1) < leastCertainty {
			continue
		}
		what := map[Kind]string{UserSpike: "Of this user", ResourceSpike: "On this resource"}[kind]
		out = append(out, Finding{Kind: kind, Subject: a.Subject, Evidence: Evidence{
			Summary:  fmt.Sprintf("%s %d decisions were made since %s; the usual number is %.0f", what, a.Now, beginning(stretch), usual),
			Measured: float64(a.Now), Usual: math.Round(usual*10) / 10, Threshold: math.Ceil(limit), Unit: "decisions",
			Decisions: a.Now, Window: int64(stretch / time.Second), Baseline: int64(baseline / time.Second),
		}})
	}
	return out
}

func beginning(stretch time.Duration) string {
	if stretch >= 24*time.Hour {
		return "the day began (UTC)"
	}
	return "the hour began"
}

// DetectSources looks for addresses that probe: nearly all of their requests are denied, for many people
// or on many resources, although the tenant usually denies little.
func DetectSources(list []stats.Source, window time.Duration, hours []stats.Rollup, t Tuning) []Finding {
	var all, denied int64
	for i := range hours {
		all, denied = all+hours[i].Total(), denied+hours[i].Denied
	}
	if all < leastHistory || len(hours) < leastHours {
		return nil
	}
	usual := float64(denied+1) / float64(all+2)
	limit := max(0.8, min(t.Factor*usual, usual+0.7*(1-usual)))
	var out []Finding
	for _, s := range list {
		n := s.Permitted + s.Denied
		got := float64(s.Denied) / float64(max(n, 1))
		if s.Denied < leastDenials || got < limit || s.Users < 5 && s.Resources < 10 {
			continue
		}
		out = append(out, Finding{Kind: SuspiciousPlace, Subject: s.Address, Evidence: Evidence{
			Summary:  fmt.Sprintf("%d of %d requests from this address were denied, for %d users on %d resources", s.Denied, n, s.Users, s.Resources),
			Measured: percent(got), Usual: percent(usual), Threshold: percent(limit), Unit: "percent",
			Decisions: n, Window: int64(window / time.Second), Baseline: spanned(hours),
		}})
	}
	return out
}

// spanned returns the seconds from the start of the first hour to the end of the last one.
func spanned(hours []stats.Rollup) int64 {
	if len(hours) == 0 {
		return 0
	}
	return int64((hours[len(hours)-1].Start.Sub(hours[0].Start) + time.Hour) / time.Second)
}

// quantile returns the value at the share q of the sorted list, or 0 for an empty list.
func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func percent(share float64) float64 { return math.Round(share*1000) / 10 }
