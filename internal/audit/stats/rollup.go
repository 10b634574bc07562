// Package stats counts decisions when they are stored, and answers queries from the counts:
// roll-ups by period, the busiest controls and resources, and the activity of users, resources and
// addresses.
package stats

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/histogram"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Width is the period that one roll-up covers.
type Width time.Duration

// The widths of roll-ups.
const (
	TenSeconds = Width(10 * time.Second)
	Minute     = Width(time.Minute)
	Hour       = Width(time.Hour)
	Day        = Width(24 * time.Hour)
)

// Widths returns all widths, the narrowest first.
func Widths() []Width { return []Width{TenSeconds, Minute, Hour, Day} }

// retention returns how long roll-ups of the width are stored.
func (w Width) retention() time.Duration {
	switch w {
	case TenSeconds:
		return 3 * time.Hour
	case Minute:
		return 8 * 24 * time.Hour // previews of alert rules read this much
	case Hour:
		return 35 * 24 * time.Hour
	default:
		return 800 * 24 * time.Hour
	}
}

// Start returns the beginning of the period that contains t (UTC).
func (w Width) Start(t time.Time) time.Time { return t.UTC().Truncate(time.Duration(w)) }

// Rollup sums up the decisions of one period.
type Rollup struct {
	Start time.Time
	// Permitted and Denied count all decisions. Masked is the part of Permitted that masks,
	// PolicyDenials the part of Denied that a control made.
	Permitted, Denied, Masked, PolicyDenials int64
	// Errors counts decisions in which a control failed or reached a limit.
	Errors    int64
	CacheHits int64
	// EvaluationUS is the total time of all evaluations in microseconds.
	EvaluationUS int64
	Latencies    histogram.Latencies
}

// Total returns the number of decisions.
func (r *Rollup) Total() int64 { return r.Permitted + r.Denied }

// Merge adds the counts of o; Start does not change.
func (r *Rollup) Merge(o *Rollup) {
	r.Permitted += o.Permitted
	r.Denied += o.Denied
	r.Masked += o.Masked
	r.PolicyDenials += o.PolicyDenials
	r.Errors += o.Errors
	r.CacheHits += o.CacheHits
	r.EvaluationUS += o.EvaluationUS
	r.Latencies.Merge(&o.Latencies)
}

// Subtract takes away the counts of o, which are part of r.
func (r *Rollup) Subtract(o *Rollup) {
	r.Permitted -= o.Permitted
	r.Denied -= o.Denied
	r.Masked -= o.Masked
	r.PolicyDenials -= o.PolicyDenials
	r.Errors -= o.Errors
	r.CacheHits -= o.CacheHits
	r.EvaluationUS -= o.EvaluationUS
	r.Latencies.Subtract(&o.Latencies)
}

// The measures of decision_rollups; a step of the histogram is "t" and its number.
const (
	measurePermit     = "permit"
	measureDeny       = "deny"
	measureMask       = "mask"
	measurePolicyDeny = "policy_deny"
	measureError      = "error"
	measureCacheHit   = "cache_hit"
	measureTime       = "us"
	measureStep       = "t"
)

// measures selects the measures that a query reads.
type measures uint8

const (
	allMeasures measures = iota
	outcomes             // permit and deny
)

// put adds n to the field of a measure.
func (r *Rollup) put(measure string, n int64) {
	switch measure {
	case measurePermit:
		r.Permitted += n
	case measureDeny:
		r.Denied += n
	case measureMask:
		r.Masked += n
	case measurePolicyDeny:
		r.PolicyDenials += n
	case measureError:
		r.Errors += n
	case measureCacheHit:
		r.CacheHits += n
	case measureTime:
		r.EvaluationUS += n
	default:
		step, err := strconv.Atoi(strings.TrimPrefix(measure, measureStep))
		if err == nil && step >= 0 && step < len(r.Latencies) {
			r.Latencies[step] += n
		}
	}
}

// each calls f with every measure that is not 0.
func (r *Rollup) each(f func(measure string, n int64)) {
	for measure, n := range map[string]int64{
		measurePermit: r.Permitted, measureDeny: r.Denied, measureMask: r.Masked, measurePolicyDeny: r.PolicyDenials,
		measureError: r.Errors, measureCacheHit: r.CacheHits, measureTime: r.EvaluationUS,
	} {
		if n != 0 {
			f(measure, n)
		}
	}
	for step, n := range r.Latencies {
		if n != 0 {
			f(measureStep+strconv.Itoa(step), n)
		}
	}
}

type rollupID struct {
	bucket      int64
	environment string
}

// Rollups collects the counts of a batch of decisions in periods of the narrowest width. Store
// derives the wider ones from them.
type Rollups map[rollupID]*Rollup

// Rollups returns the roll-ups from the period of from to that of to, both included, oldest
// first, in the scope's environment or in all. Periods without decisions are left out.
func (rd *Reader) Rollups(ctx context.Context, sc scope.Scope, w Width, from, to time.Time) ([]Rollup, error) {
	return db.Read(ctx, rd.Cluster, sc.Tenant, func(tx *db.Tx) ([]Rollup, error) {
		return readRollups(ctx, tx, w, w.Start(from), w.Start(to).Add(time.Duration(w)), Visible(sc, sc.Env))
	})
}

// Totals adds up the decisions from the period of from to that of to, both included, in the
// scope's environment or in all.
func (rd *Reader) Totals(ctx context.Context, sc scope.Scope, w Width, from, to time.Time) (Rollup, error) {
	sum := Rollup{Start: w.Start(from)}
	err := rd.Cluster.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		sum = Rollup{Start: sum.Start}
		return sumRollups(ctx, tx, w, sum.Start, w.Start(to).Add(time.Duration(w)), Visible(sc, sc.Env), allMeasures, &sum)
	})
	return sum, err
}

// Decided is what roll-ups count of one decision, or of several that were counted together.
type Decided struct {
	At          time.Time
	Environment string
	// Permitted is false for denials. ByControl means that a control decided, not the default.
	// Masked is true only for permits.
	Permitted, ByControl, Masked bool
	// N is the number of decisions. Errors and CacheHits are how many of them had an error and
	// came from the cache.
	N, Errors, CacheHits int64
	// TotalUS is the evaluation time of all of them, and EachUS that of each, in microseconds.
	TotalUS, EachUS int64
}

// Add counts decisions.
func (rs Rollups) Add(d Decided) {
	start := TenSeconds.Start(d.At)
	id := rollupID{start.UnixMicro(), d.Environment}
	u := rs[id]
	if u == nil {
		u = &Rollup{Start: start}
		rs[id] = u
	}
	u.Count(d)
}

// Count adds decisions to the roll-up.
func (r *Rollup) Count(d Decided) {
	switch {
	case d.Permitted:
		r.Permitted += d.N
	default:
		r.Denied += d.N
		if d.ByControl {
			r.PolicyDenials += d.N
		}
	}
	if d.Masked {
		r.Masked += d.N
	}
	r.Errors += d.Errors
	r.CacheHits += d.CacheHits
	r.EvaluationUS += d.TotalUS
	r.Latencies.Add(d.EachUS, d.N)
}

// keepSteps is how long the histograms of minutes are stored. It is shorter than the retention of
// their other measures, because histograms are most of the rows.
const keepSteps = 2 * 24 * time.Hour

// Prune removes roll-ups that are past their retention: at most n periods of each width. It
// returns the number of rows removed.
func Prune(ctx context.Context, tx *db.Tx, now time.Time, n int) (int64, error) {
	var removed int64
	for _, w := range Widths() {
		gone, err := deleteRollups(ctx, tx, w, now.Add(-w.retention()), n)
		removed += gone
		if err != nil {
			return removed, err
		}
	}
	gone, err := deleteSteps(ctx, tx, Minute, now.Add(-keepSteps), n)
	return removed + gone, err
}
