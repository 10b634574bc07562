package telemetry

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// The frequencies of reports.
const (
	twiceMonthly = "twice_monthly"
	weekly       = "weekly"
	monthly      = "monthly"
	daily        = "daily"
)

// grace is how long a report waits after the end of its period, until all replicas have stored the
// period's last decisions.
const grace = 2 * time.Minute

// dueDay reports whether a report is due at the start of a day.
func dueDay(frequency string, day time.Time) bool {
	switch frequency {
	case weekly:
		return day.Weekday() == time.Monday
	case monthly:
		return day.Day() == 1
	case daily:
		return true
	}
	return day.Day() == 1 || day.Day() == 15
}

// lastDue returns the last time at or before t when a report was due, in UTC.
func lastDue(frequency string, t time.Time) time.Time {
	day := t.UTC().Truncate(24 * time.Hour)
	for !dueDay(frequency, day) {
		day = day.AddDate(0, 0, -1)
	}
	return day
}

// nextDue returns the first time after t when a report is due, in UTC.
func nextDue(frequency string, t time.Time) time.Time {
	day := t.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	for !dueDay(frequency, day) {
		day = day.AddDate(0, 0, 1)
	}
	return day
}

// period is a number of whole days in UTC, from the start of the first day to the start of the day
// after the last.
type period struct{ from, until time.Time }

// String returns the ISO 8601 interval of two dates. The second date is not part of the period.
func (p period) String() string {
	return p.from.Format(time.DateOnly) + "/" + p.until.Format(time.DateOnly)
}

// currentPeriod returns the period of the next report.
func (st state) currentPeriod(now time.Time) period {
	p := period{lastDue(st.Frequency, now), nextDue(st.Frequency, now)}
	if st.PeriodStart != nil {
		p.from = st.PeriodStart.UTC()
	}
	if st.NextAt != nil {
		p.until = st.NextAt.UTC()
	}
	return p
}

// plan sets when the next report is due, after a change of the configuration. It keeps the start of
// the current period, so that no day is missing between two reports.
func (st state) plan(now time.Time) state {
	if !st.Enabled {
		st.NextAt, st.PeriodStart = nil, nil
		return st
	}
	next := db.Stamp(nextDue(st.Frequency, now))
	if st.NextAt != nil && !st.NextAt.After(now) {
		next = *st.NextAt // it is due now
	}
	if st.PeriodStart == nil || st.PeriodStart.After(now) {
		from := db.Stamp(lastDue(st.Frequency, now))
		st.PeriodStart = &from
	}
	st.NextAt = &next
	return st
}

// isAhead reports whether a clock that was ahead made the schedule: the next report is due later
// than any that this clock would plan.
func (st state) isAhead(now time.Time) bool {
	return st.Enabled && st.NextAt != nil && st.NextAt.After(nextDue(st.Frequency, now.Add(db.ClockSkew)))
}

// advance moves the schedule past the report that is due.
func (st state) advance() state {
	from := *st.NextAt
	next := db.Stamp(nextDue(st.Frequency, from))
	st.PeriodStart, st.NextAt = &from, &next
	return st
}

// longestRetry is the longest pause between two attempts to send a report.
const longestRetry = 6 * time.Hour

// retryAfter returns the pause before a failed report is sent again: 5 minutes, doubled each time
// up to longestRetry.
func retryAfter(retries int64) time.Duration {
	return min(5*time.Minute<<min(retries, 10), longestRetry)
}

// maxRetries is how often the scheduler sends a failed report again. Then only a person does.
const maxRetries = 12
