package notify

import (
	"cmp"
	"slices"
	"time"
	_ "time/tzdata" // a container may have no time zones of its own

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
)

// QuietHours is a daily period in which a channel holds its messages.
type QuietHours struct {
	From     string   `json:"from" pattern:"^([01][0-9]|2[0-3]):[0-5][0-9]$" doc:"When they begin, hh:mm." example:"22:00"`
	To       string   `json:"to" pattern:"^([01][0-9]|2[0-3]):[0-5][0-9]$" doc:"When they end, hh:mm. If this is not after from, they end on the next day." example:"07:00"`
	TimeZone string   `json:"time_zone,omitempty" maxLength:"64" doc:"Time zone of the IANA database; UTC by default." example:"Europe/Dublin"`
	Days     []string `json:"days,omitempty" maxItems:"7" uniqueItems:"true" enum:"monday,tuesday,wednesday,thursday,friday,saturday,sunday" doc:"The days on which they begin; absent: every day."`
	Except   string   `json:"except_severity,omitempty" enum:"warning,error,critical" doc:"Messages of this severity or a higher one are sent anyway; critical by default."`
}

// weekdays returns the names of the days in QuietHours, in the order of time.Weekday.
func weekdays() []string {
	return []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}
}

// filled returns q with defaults filled in; nil stays nil.
func (q *QuietHours) filled() *QuietHours {
	if q == nil {
		return nil
	}
	out := *q
	out.TimeZone = cmp.Or(out.TimeZone, "UTC")
	if len(out.Days) == 0 {
		out.Days = nil
	}
	out.Except = cmp.Or(out.Except, format.Critical)
	return &out
}

// zone returns the time zone. It refuses Local, which would be the zone of the server.
func (q *QuietHours) zone() (*time.Location, bool) {
	zone, err := time.LoadLocation(q.TimeZone)
	return zone, err == nil && q.TimeZone != "Local"
}

// offences returns the errors in quiet hours. It returns none for nil.
func (q *QuietHours) offences() []fault.Detail {
	if q == nil {
		return nil
	}
	var wrong []fault.Detail
	add := func(member, message string) {
		wrong = append(wrong, fault.Detail{Pointer: "/quiet_hours/" + member, Message: message})
	}
	for _, c := range []struct{ member, text string }{{"from", q.From}, {"to", q.To}} {
		if _, err := time.Parse("15:04", c.text); err != nil {
			add(c.member, "must be a time such as 22:00")
		}
	}
	if _, known := q.zone(); !known {
		add("time_zone", "is not a time zone of the IANA database, such as Europe/Dublin")
	}
	if q.From == q.To && (len(q.Days) == 0 || len(q.Days) == len(weekdays())) {
		add("to", "leaves no time at which messages are sent")
	}
	return wrong
}

// until returns the end of the quiet hours that contain now. It returns false if none do. If the
// hours of the next day follow without a gap, it returns the end of those.
func (q *QuietHours) until(now time.Time) (time.Time, bool) {
	if q == nil {
		return now, false
	}
	zone, known := q.zone()
	if !known {
		return now, false // the time zone database no longer has it: hold nothing
	}
	end, quiet := now, false
	for range weekdays() {
		next, in := q.endAfter(end.In(zone))
		if !in {
			break
		}
		end, quiet = next, true
	}
	return end.UTC(), quiet
}

// endAfter returns the end of the quiet hours that contain at and began on that day or the day
// before. It returns false if there are none.
func (q *QuietHours) endAfter(at time.Time) (time.Time, bool) {
	year, month, day := at.Date()
	on := func(day int, clock string) time.Time {
		t, err := time.Parse("15:04", clock)
		if err != nil {
			return at
		}
		return time.Date(year, month, day, t.Hour(), t.Minute(), 0, 0, at.Location())
	}
	for _, first := range []int{day, day - 1} {
		last := first
		if q.To <= q.From {
			last++
		}
		weekday := time.Date(year, month, first, 12, 0, 0, 0, time.UTC).Weekday()
		if len(q.Days) > 0 && !slices.Contains(q.Days, weekdays()[weekday]) {
			continue
		}
		if end := on(last, q.To); !at.Before(on(first, q.From)) && at.Before(end) {
			return end, true
		}
	}
	return at, false
}
