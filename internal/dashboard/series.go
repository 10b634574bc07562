package dashboard

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Series has the figures of decisions over time, for charts.
type Series struct {
	Environment *scope.Env `json:"environment" nullable:"true" doc:"The environment in the request; null: both." example:"production"`
	Window      string     `json:"window" enum:"15m,1h,6h,24h,7d,30d,90d,365d" doc:"How far back it goes."`
	Step        int64      `json:"step_seconds" doc:"How long each point lasts, in seconds."`
	From        time.Time  `json:"from" doc:"Start of the first point."`
	To          time.Time  `json:"to" doc:"The current time. The last point is not yet complete."`
	Points      []Point    `json:"points" doc:"Oldest first and without gaps."`
}

// Point has the figures of one period of a series.
type Point struct {
	Start         time.Time `json:"start" doc:"Start of the point, RFC 3339 UTC."`
	Permitted     int64     `json:"permitted" doc:"PERMIT, including masked ones."`
	Denied        int64     `json:"denied" doc:"DENY."`
	Masked        int64     `json:"masked" doc:"PERMIT with a mask."`
	PolicyDenials int64     `json:"policy_denials" doc:"DENY by a control."`
	Errors        int64     `json:"errors" doc:"DENY because a control failed or reached a limit."`
	CacheHits     int64     `json:"cache_hits" doc:"Decisions answered from the decision cache."`
	P50           float64   `json:"latency_p50" doc:"Median evaluation time in milliseconds; 0 without decisions."`
	P95           float64   `json:"latency_p95" doc:"95th percentile in milliseconds."`
	P99           float64   `json:"latency_p99" doc:"99th percentile in milliseconds."`
}

// resolution is how a window is divided: its length, the width of the roll-ups that are read, and
// the length of a point.
type resolution struct {
	long  time.Duration
	width stats.Width
	step  time.Duration
}

// resolve returns the resolution of a window. It gives 72 to 122 points. ok is false for an unknown
// window.
func resolve(window string) (resolution, bool) {
	const hour, day = time.Hour, 24 * time.Hour
	r, ok := map[string]resolution{
		"15m":  {15 * time.Minute, stats.TenSeconds, 10 * time.Second},
		"1h":   {hour, stats.TenSeconds, 30 * time.Second},
		"6h":   {6 * hour, stats.Minute, 5 * time.Minute},
		"24h":  {day, stats.Minute, 15 * time.Minute},
		"7d":   {7 * day, stats.Hour, 2 * hour},
		"30d":  {30 * day, stats.Hour, 6 * hour},
		"90d":  {90 * day, stats.Day, day},
		"365d": {365 * day, stats.Day, 3 * day},
	}[window]
	return r, ok
}

// DefaultWindow is the window if the caller names none.
const DefaultWindow = "24h"

// Series returns the figures of a window, in the scope's environment or in both. Fault: BadRequest
// for an unknown window.
func (s *Service) Series(ctx context.Context, sc scope.Scope, window string) (Series, error) {
	if window == "" {
		window = DefaultWindow
	}
	cut, ok := resolve(window)
	if !ok {
		return Series{}, unknownWindow(window)
	}
	s.Log.WaitShipped(ctx)
	now := s.Now().UTC()
	from := now.Add(-cut.long).Truncate(cut.step).Add(cut.step)
	rows, err := s.Log.Rollups(ctx, sc, cut.width, from, now)
	if err != nil {
		return Series{}, err
	}
	out := Series{Window: window, Step: int64(cut.step / time.Second), From: from, To: now}
	if sc.Env != scope.AnyEnv {
		out.Environment = &sc.Env
	}
	out.Points = points(rows, from, now, cut.step)
	return out, nil
}

// points adds up the roll-ups of each step. The figures of a step without roll-ups are 0.
func points(rows []stats.Rollup, from, to time.Time, step time.Duration) []Point {
	out := make([]Point, 0, int(to.Sub(from)/step)+1)
	for start := from; !start.After(to); start = start.Add(step) {
		var sum stats.Rollup
		for len(rows) > 0 && rows[0].Start.Before(start.Add(step)) {
			sum.Merge(&rows[0])
			rows = rows[1:]
		}
		out = append(out, Point{
			Start: start, Permitted: sum.Permitted, Denied: sum.Denied, Masked: sum.Masked, PolicyDenials: sum.PolicyDenials,
			Errors: sum.Errors, CacheHits: sum.CacheHits,
			P50: round(sum.Latencies.Quantile(0.50)), P95: round(sum.Latencies.Quantile(0.95)), P99: round(sum.Latencies.Quantile(0.99)),
		})
	}
	return out
}
