package notify

import (
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestQuietHoursUntil tests hours over midnight, on some days, without a gap between them, and on
// days when the clocks change.
func TestQuietHoursUntil(t *testing.T) {
	night := QuietHours{From: "22:00", To: "07:00", TimeZone: "Europe/Dublin"}
	weekend := QuietHours{From: "00:00", To: "00:00", TimeZone: "UTC", Days: []string{"saturday", "sunday"}}
	friday := QuietHours{From: "22:00", To: "07:00", TimeZone: "UTC", Days: []string{"friday"}}
	noon := QuietHours{From: "12:00", To: "13:30", TimeZone: "Asia/Kolkata"}
	for name, c := range map[string]struct {
		hours      QuietHours
		now, until string // until is "" outside the hours
	}{
		"before":                         {night, "2026-11-23T21:59:59Z", ""},
		"at the beginning":               {night, "2026-11-23T22:00:00Z", "2026-11-24T07:00:00Z"},
		"after midnight":                 {night, "2026-11-24T06:59:59Z", "2026-11-24T07:00:00Z"},
		"at the end":                     {night, "2026-11-24T07:00:00Z", ""},
		"in summer time":                 {night, "2026-07-01T21:30:00Z", "2026-07-02T06:00:00Z"},
		"the night that is an hour less": {night, "2026-03-28T23:00:00Z", "2026-03-29T06:00:00Z"},
		"the night that is an hour more": {night, "2026-10-24T22:00:00Z", "2026-10-25T07:00:00Z"},
		"the last night of a year":       {night, "2026-12-31T23:00:00Z", "2027-01-01T07:00:00Z"},
		"days that follow each other":    {weekend, "2026-11-21T10:00:00Z", "2026-11-23T00:00:00Z"},
		"before such days":               {weekend, "2026-11-20T23:59:00Z", ""},
		"the evening of the day":         {friday, "2026-11-20T23:00:00Z", "2026-11-21T07:00:00Z"},
		"the morning after the day":      {friday, "2026-11-21T06:00:00Z", "2026-11-21T07:00:00Z"},
		"the morning of the day":         {friday, "2026-11-20T06:00:00Z", ""},
		"half an hour from full hours":   {noon, "2026-11-23T07:00:00Z", "2026-11-23T08:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, c.now)
			errtest.Must(t, err)
			got, quiet := c.hours.until(now)
			if quiet != (c.until != "") || quiet && got.Format(time.RFC3339) != c.until {
				t.Errorf("until(%s) = %s, %v, want %q", c.now, got.Format(time.RFC3339), quiet, c.until)
			}
		})
	}
	var none *QuietHours
	if _, quiet := none.until(time.Now()); quiet {
		t.Error("until without quiet hours = true, want false")
	}
}

// TestQuietHoursOffencesAreInOrder checks that the same errors are always listed in the same order.
func TestQuietHoursOffencesAreInOrder(t *testing.T) {
	q := (&QuietHours{From: "8", To: "9"}).filled()
	for range 50 {
		if got := q.offences(); len(got) != 2 || got[0].Pointer != "/quiet_hours/from" || got[1].Pointer != "/quiet_hours/to" {
			t.Fatalf("%v, want the offence of from before that of to", got)
		}
	}
}

// TestQuietHoursOffences checks that invalid hours are refused with the right pointer.
func TestQuietHoursOffences(t *testing.T) {
	all := weekdays()
	for want, q := range map[string]QuietHours{
		"":                        {From: "22:00", To: "07:00"},
		"/quiet_hours/from":       {From: "24:00", To: "07:00"},
		"/quiet_hours/to":         {From: "08:00", To: "08:00"},
		"/quiet_hours/to ":        {From: "08:00", To: "08:00", Days: all},
		"/quiet_hours/time_zone":  {From: "22:00", To: "07:00", TimeZone: "Local"},
		"/quiet_hours/time_zone ": {From: "22:00", To: "07:00", TimeZone: "../../etc/passwd"},
	} {
		var got string
		for _, d := range q.filled().offences() {
			got = d.Pointer
		}
		for len(got) < len(want) {
			got += " " // spaces make the keys of the map unique
		}
		if got != want {
			t.Errorf("%+v: an offence at %q, want %q", q, got, want)
		}
	}
	if q := (&QuietHours{From: "08:00", To: "08:00", Days: all[:6]}).filled(); len(q.offences()) > 0 {
		t.Errorf("six whole days: %v, want no offence", q.offences())
	}
}
