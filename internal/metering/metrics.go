package metering

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Service returns what tenants use, and what it costs.
type Service struct {
	Stores  *db.Cluster
	Tenants *tenant.Service
	Calls   *Calls
	// Box seals the token of the payment method.
	Box    *secret.Box
	Prices Prices
	Now    func() time.Time
}

// The granularities of a series of points.
const (
	byHour = "hour"
	byDay  = "day"
	byWeek = "week"
	// ByMonth divides a series into calendar months in UTC.
	ByMonth = "month"
)

const (
	// usualPeriod is the length of the period if the request does not name its start.
	usualPeriod = 30 * 24 * time.Hour
	// maxPoints is how many points a series may have.
	maxPoints = 2000
)

// Metrics is what a tenant used in a period.
type Metrics struct {
	Metrics Figures `json:"metrics" doc:"Calls are counted over the period; the other figures are current."`
	Period  Period  `json:"period" doc:"The period."`
	Series  []Point `json:"series" nullable:"false" doc:"Calls of the period by granularity, oldest first, including points without calls."`
}

// Figures are the totals of a period, and current numbers.
type Figures struct {
	APICalls APICalls     `json:"api_calls"`
	Policies PolicyCount  `json:"policies"`
	Bouncers BouncerCount `json:"bouncers"`
	Users    UserCount    `json:"users"`
}

// APICalls are the API calls in a period.
type APICalls struct {
	Total      int64            `json:"total" doc:"Requests with an API key or by a signed-in person. Traffic of bouncers, refused credentials, requests over the limit and server errors (5xx) are not counted."`
	ByEndpoint map[string]int64 `json:"by_endpoint" doc:"The same by operation id."`
}

// PolicyCount is the number of controls and libraries, without deleted ones.
type PolicyCount struct {
	Total   int64 `json:"total" db:"total" doc:"In both environments."`
	Active  int64 `json:"active" db:"active" doc:"Number of active ones."`
	Sandbox int64 `json:"sandbox" db:"sandbox" doc:"Number in sandbox."`
}

// BouncerCount is the number of bouncers.
type BouncerCount struct {
	Total             int64   `json:"total" db:"total" doc:"In both environments."`
	Active            int64   `json:"active" db:"active" doc:"Number of connected or degraded ones."`
	RequestsPerMinute float64 `json:"requests_per_minute" db:"requests_per_minute" doc:"Sum of the last reports of active bouncers."`
}

// UserCount is the number of people.
type UserCount struct {
	Total  int64 `json:"total" db:"total" doc:"All people, including disabled ones."`
	Active int64 `json:"active" db:"active" doc:"Number who were signed in during the period."`
}

// Period is a period of time.
type Period struct {
	Start time.Time `json:"start" doc:"Start of the period; a full hour."`
	End   time.Time `json:"end" doc:"End of the period."`
}

// Point is one hour, day, week or month of a series.
type Point struct {
	Start    time.Time `json:"start" doc:"Start of the hour, the day, the week (Monday) or the month, in UTC."`
	APICalls int64     `json:"api_calls" doc:"Calls in it."`
}

// Metrics returns what a tenant used from start to end, with a series by granularity. A zero end
// means now, a zero start 30 days before the end. Calls are counted by the hour, so start is
// rounded down to the hour; calls older than 62 days are stored by the day. Fault: BadRequest if
// the series would have more than maxPoints points.
func (s *Service) Metrics(ctx context.Context, sc scope.Scope, id scope.TenantID, start, end time.Time, granularity string) (Metrics, error) {
	if _, err := s.Tenants.Get(ctx, sc, id); err != nil {
		return Metrics{}, err
	}
	if end.IsZero() {
		end = s.Now()
	}
	if start.IsZero() {
		start = end.Add(-usualPeriod)
	}
	start = start.UTC().Truncate(time.Hour)
	points, err := cut(start, end, granularity)
	if err != nil {
		return Metrics{}, err
	}
	_ = s.Calls.CopyTenant(ctx, id) // ignore the error: a store that cannot be written can still be read
	out := Metrics{Period: Period{start, db.Stamp(end)}, Series: points}
	out.Metrics.APICalls.ByEndpoint = map[string]int64{}
	var calls []callsOf
	err = s.Stores.Read(ctx, id, func(tx *db.Tx) (err error) {
		if calls, err = selectCalls(ctx, tx, start, end); err != nil {
			return err
		}
		if out.Metrics.Policies, err = countPolicies(ctx, tx); err != nil {
			return err
		}
		if out.Metrics.Bouncers, err = countBouncers(ctx, tx); err != nil {
			return err
		}
		out.Metrics.Users, err = countUsers(ctx, tx, start, end)
		return err
	})
	at := 0
	for _, c := range calls {
		out.Metrics.APICalls.Total += c.N
		out.Metrics.APICalls.ByEndpoint[c.Operation] += c.N
		for at+1 < len(points) && !c.Bucket.Before(points[at+1].Start) {
			at++
		}
		points[at].APICalls += c.N
	}
	return out, err
}

// cut returns the points of a period. The first one contains its start.
func cut(start, end time.Time, granularity string) ([]Point, error) {
	var out []Point
	for at := floor(start, granularity); at.Before(end) || len(out) == 0; at = next(at, granularity) {
		if len(out) == maxPoints {
			f := fault.Newf(fault.BadRequest, "invalid_parameter", "the period has more than %d points: request a shorter one, or a coarser granularity", maxPoints)
			f.Details = []fault.Detail{{Pointer: "query.granularity", Message: f.Message}}
			return nil, f
		}
		out = append(out, Point{Start: at})
	}
	return out, nil
}

// floor returns the start of the point that contains a time.
func floor(t time.Time, granularity string) time.Time {
	day := t.Truncate(24 * time.Hour)
	switch granularity {
	case byHour:
		return t.Truncate(time.Hour)
	case byWeek:
		return day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
	case ByMonth:
		return day.AddDate(0, 0, 1-day.Day())
	}
	return day
}

// next returns the start of the next point.
func next(start time.Time, granularity string) time.Time {
	switch granularity {
	case byHour:
		return start.Add(time.Hour)
	case byWeek:
		return start.AddDate(0, 0, 7)
	case ByMonth:
		return start.AddDate(0, 1, 0)
	}
	return start.AddDate(0, 0, 1)
}
