package alert

import (
	"context"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// previewed is how far a preview looks back.
	previewed = 7 * 24 * time.Hour
	// keptSteps is how long roll-ups of minutes keep their latencies (package stats).
	keptSteps = 2 * 24 * time.Hour
	// maxEntries is how many entries of the decision log a preview reads at most, if there are no
	// roll-ups for the filter.
	maxEntries = 50_000
	// maxShown is how many firings a preview lists at most.
	maxShown = 50
)

// Firing is one time at which a rule would have fired.
type Firing struct {
	At    time.Time `json:"at" doc:"When it would have fired."`
	Value float64   `json:"value" doc:"The value at that time."`
}

// Preview is what a rule would have done.
type Preview struct {
	Since    time.Time `json:"since" doc:"Start of the recorded data that is used: 7 days ago, or 2 days for percentiles of latency, or less if the log has too many entries that match the filter, or the kept syncs of a data source begin later."`
	Until    time.Time `json:"until" doc:"The last evaluation."`
	Fires    int       `json:"would_have_fired" doc:"How often it would have fired, with cooldown and daily maximum."`
	Resolved int       `json:"would_have_resolved" doc:"How often it would have ended."`
	Held     int       `json:"evaluations_held" doc:"Number of evaluations at which the condition held."`
	Total    int       `json:"evaluations" doc:"Number of evaluations."`
	Highest  *float64  `json:"highest_value" doc:"The highest value; null: there was none."`
	Firings  []Firing  `json:"firings" doc:"The last times that it would have fired, newest first, at most 50."`
}

// Preview evaluates a rule that is not stored over the last 7 days, or as far back as there is
// data.
func (s *Service) Preview(ctx context.Context, sc scope.Scope, d Draft) (Preview, error) {
	env, err := sc.CreateIn(d.Environment)
	if err != nil {
		return Preview{}, err
	}
	r := d.rule()
	r.Environment = env
	var p Preview
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		if wrong := r.Trigger.offences(); len(wrong) > 0 {
			return invalid(wrong)
		}
		until := s.Now().Add(-lag).UTC().Truncate(r.interval())
		if r.Trigger.Metric == sourceAge {
			all, since, err := ages(ctx, tx, r.Trigger.Filter.ConnectionID, until.Add(-previewed))
			p = previewAt(r, since.Truncate(r.interval()).Add(r.interval()), until, func(end time.Time) (float64, bool) { return oldest(all, end) })
			return err
		}
		minutes, since, err := history(ctx, tx, r, until)
		p = previewRule(r, minutes, since, until)
		return err
	})
	return p, err
}

// minute holds the counts of one minute, or the sum over a window.
type minute struct {
	at      time.Time
	sum     stats.Rollup
	entries int64
}

// history returns the minutes that the windows of the last 7 days consist of, and the time from
// which they are known.
func history(ctx context.Context, tx *db.Tx, r Rule, until time.Time) ([]minute, time.Time, error) {
	from := until.Add(-previewed - r.Frequency.window())
	if r.Trigger.Metric == auditEvents {
		rows, err := entriesByMinute(ctx, tx, r.Environment, r.Trigger.Filter.EventType, from, until)
		out := make([]minute, len(rows))
		for i, row := range rows {
			out[i] = minute{at: time.Unix(row.Minute*60, 0).UTC(), entries: row.N}
		}
		return out, from, err
	}
	var rollups []stats.Rollup
	var err error
	if r.series() == (stats.Series{Environment: r.Environment}) {
		if unit(r.Trigger.Metric) == " ms" {
			from = until.Add(-keptSteps)
		}
		rollups, err = stats.Read(ctx, tx, stats.Minute, r.series(), from, until)
	} else {
		rollups, from, err = audit.Recount(ctx, tx, r.series(), from, until, maxEntries)
	}
	out := make([]minute, len(rollups))
	for i, sum := range rollups {
		out[i] = minute{at: sum.Start, sum: sum}
	}
	return out, from, err
}

// previewRule evaluates a rule at each of its times, as the Evaluator would have done.
func previewRule(r Rule, minutes []minute, since, until time.Time) Preview {
	window := r.Frequency.window()
	first, last, in := 0, 0, minute{}
	return previewAt(r, since.Add(window).Truncate(r.interval()), until, func(end time.Time) (float64, bool) {
		for last < len(minutes) && minutes[last].at.Before(end) {
			in.add(&minutes[last])
			last++
		}
		for first < last && minutes[first].at.Before(end.Add(-window)) {
			in.subtract(&minutes[first])
			first++
		}
		return in.measure(r.Trigger.Metric)
	})
}

// previewAt evaluates a rule from begin until a time. It calls valueAt for each evaluation, in the
// order of time.
func previewAt(r Rule, begin, until time.Time, valueAt func(end time.Time) (float64, bool)) Preview {
	p := Preview{Since: begin, Until: until, Firings: []Firing{}}
	for end := begin; !end.After(until); end = end.Add(r.interval()) {
		value, there := valueAt(end)
		p.Total++
		if r.Trigger.holds(value, there) {
			p.Held++
		}
		if there && (p.Highest == nil || value > *p.Highest) {
			p.Highest = &value
		}
		fires, ends := r.next(end, value, there)
		r = r.after(end, value, there, fires, ends)
		if fires {
			p.Fires++
			p.Firings = append(p.Firings, Firing{end, value})
		}
		if ends {
			p.Resolved++
		}
	}
	p.Firings = p.Firings[max(0, len(p.Firings)-maxShown):]
	slices.Reverse(p.Firings)
	return p
}

// add adds a minute to a window, and subtract removes it. So each minute is added once, however long
// the window is.
func (m *minute) add(o *minute) {
	m.sum.Merge(&o.sum)
	m.entries += o.entries
}

func (m *minute) subtract(o *minute) {
	m.sum.Subtract(&o.sum)
	m.entries -= o.entries
}

// measure returns the value of a metric over a window. It returns false if there is none.
func (m *minute) measure(metric string) (float64, bool) {
	if metric == auditEvents {
		return float64(m.entries), true
	}
	return measure(metric, &m.sum)
}
