package alert

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// auditEvents is the metric that counts entries of the administrative log.
const auditEvents = "audit_event_count"

// unit returns the text that follows the values of a metric: a space and the unit, or "".
func unit(metric string) string {
	switch metric {
	case "denial_rate", "error_rate", "mask_rate":
		return " %"
	case "latency_avg", "latency_p50", "latency_p95", "latency_p99":
		return " ms"
	case sourceAge:
		return " s"
	}
	return ""
}

// measure returns the value of a metric of decisions. It returns false if there is none.
func measure(metric string, r *stats.Rollup) (float64, bool) {
	switch metric {
	case "decision_count":
		return float64(r.Total()), true
	case "denial_count":
		return float64(r.Denied), true
	case "error_count":
		return float64(r.Errors), true
	}
	total := float64(r.Total())
	if total == 0 {
		return 0, false
	}
	switch metric {
	case "denial_rate":
		return 100 * float64(r.Denied) / total, true
	case "error_rate":
		return 100 * float64(r.Errors) / total, true
	case "mask_rate":
		return 100 * float64(r.Masked) / total, true
	case "latency_avg":
		return float64(r.EvaluationUS) / 1000 / total, true
	}
	quantiles := map[string]float64{"latency_p50": 0.50, "latency_p95": 0.95, "latency_p99": 0.99}
	q, known := quantiles[metric]
	if !known || r.Latencies.Count() == 0 {
		return 0, false
	}
	return r.Latencies.Quantile(q), true
}

// holds reports whether the condition holds for a value. there is false if there is no value.
func (t Trigger) holds(value float64, there bool) bool {
	if !there {
		return false
	}
	switch t.Operator {
	case ">":
		return value > t.Threshold
	case ">=":
		return value >= t.Threshold
	}
	return value == t.Threshold
}

// interval returns how often a rule is evaluated: each minute, or every five minutes if one
// evaluation reads more rows.
func (r Rule) interval() time.Duration {
	if r.Trigger.Metric == auditEvents || r.Frequency.window() > time.Hour {
		return 5 * time.Minute
	}
	return time.Minute
}

// series returns the roll-ups that a rule reads.
func (r Rule) series() stats.Series {
	f := r.Trigger.Filter
	return stats.Series{Environment: r.Environment, Resource: f.ResourceID, Control: f.ControlID, Bouncer: f.BouncerID, Subject: f.SubjectID}
}

// sums caches roll-ups during one evaluation, so that rules share them.
type sums map[sumKey]stats.Rollup

type sumKey struct {
	series stats.Series
	from   time.Time
}

// value returns the value of a rule over its window, which ends at a time. It returns false if
// there is none.
func (s sums) value(ctx context.Context, tx *db.Tx, r Rule, end time.Time) (float64, bool, error) {
	window := r.Frequency.window()
	if r.Trigger.Metric == auditEvents {
		n, err := countEntries(ctx, tx, r.Environment, r.Trigger.Filter.EventType, end.Add(-window), end)
		return float64(n), err == nil, err
	}
	if r.Trigger.Metric == sourceAge {
		return ageAt(ctx, tx, r.Trigger.Filter.ConnectionID, end)
	}
	key := sumKey{r.series(), end.Add(-window)}
	sum, known := s[key]
	if !known {
		var err error
		if sum, err = stats.Sum(ctx, tx, stats.Minute, key.series, key.from, end); err != nil {
			return 0, false, err
		}
		s[key] = sum
	}
	v, there := measure(r.Trigger.Metric, &sum)
	return v, there, nil
}

// sentence returns a condition as text.
func (t Trigger) sentence(window time.Duration) string {
	return fmt.Sprintf("%s %s %s%s in %s", t.Metric, t.Operator, number(t.Threshold), unit(t.Metric), window)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// rounded returns a value with at most two decimals.
func rounded(v float64) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	for s[len(s)-1] == '0' {
		s = s[:len(s)-1]
	}
	if s[len(s)-1] == '.' {
		s = s[:len(s)-1]
	}
	return s
}
