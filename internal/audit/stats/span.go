package stats

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Minutes adds up the decisions from the minute of from to that of to, both included, in the
// scope's environment or in all. from must be at most two days ago: histograms of minutes are not
// stored longer.
func (rd *Reader) Minutes(ctx context.Context, sc scope.Scope, from, to time.Time) (Rollup, error) {
	return rd.minutes(ctx, sc, from, to, allMeasures)
}

// Outcomes is like Minutes, but counts only Permitted and Denied, which costs a tenth.
func (rd *Reader) Outcomes(ctx context.Context, sc scope.Scope, from, to time.Time) (Rollup, error) {
	return rd.minutes(ctx, sc, from, to, outcomes)
}

// minutes reads the roll-ups of whole hours. For the hour in which the span begins, it reads the
// minutes inside the span or subtracts those before it, whichever are fewer: at most 30. It also
// subtracts the minutes after the span in its last hour, which usually have no decisions yet.
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
		sum.Subtract(&less)
		return nil
	})
	return sum, err
}
