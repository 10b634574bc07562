package stats

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Minutes adds up the decisions from the minute of from to that of to, both included, in the
// scope's environment or in all. from is at most two days ago, as histograms of minutes are
// not stored longer.
func (rd *Reader) Minutes(ctx context.Context, sc scope.Scope, from, to time.Time) (Rollup, error) {
	return rd.minutes(ctx, sc, from, to, allMeasures)
}

// Outcomes is like Minutes, but counts only Permitted and Denied, which is a tenth of the work.
func (rd *Reader) Outcomes(ctx context.Context, sc scope.Scope, from, to time.Time) (Rollup, error) {
	return rd.minutes(ctx, sc, from, to, outcomes)
}

// minutes reads whole hours. Of the hour in which the span begins it reads the fewer minutes:
// those in the span, or those before it, which it subtracts. So it never reads more than 30
// minutes that have decisions, unless there are some after the span.
func (rd *Reader) minutes(ctx context.Context, sc scope.Scope, from, to time.Time, which measures) (Rollup, error) {
	first, end := Minute.Start(from), Minute.Start(to).Add(time.Minute)
	sum := Rollup{Start: first}
	envs := Visible(sc, sc.Env)
	err := rd.Cluster.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		sum = Rollup{Start: first}
		var less Rollup
		hours, lastHour := Hour.Start(first), Hour.Start(end.Add(-1)).Add(time.Hour)
		before, head := &less, hours
		if first.Sub(hours) > 30*time.Minute {
			before, head, hours = &sum, first, hours.Add(time.Hour)
		}
		headEnd := hours
		if before == &less {
			headEnd = first
		}
		for _, part := range []struct {
			width    Width
			from, to time.Time
			into     *Rollup
		}{{Minute, head, headEnd, before}, {Hour, hours, lastHour, &sum}, {Minute, end, lastHour, &less}} {
			if !part.from.Before(part.to) {
				continue
			}
			if err := sumRollups(ctx, tx, part.width, part.from, part.to, envs, which, part.into); err != nil {
				return err
			}
		}
		sum.subtract(&less)
		return nil
	})
	return sum, err
}

// subtract takes away the counts of o, which are part of r.
func (r *Rollup) subtract(o *Rollup) {
	r.Permitted -= o.Permitted
	r.Denied -= o.Denied
	r.Masked -= o.Masked
	r.PolicyDenials -= o.PolicyDenials
	r.Errors -= o.Errors
	r.CacheHits -= o.CacheHits
	r.EvaluationUS -= o.EvaluationUS
	r.Latencies.Subtract(&o.Latencies)
}
