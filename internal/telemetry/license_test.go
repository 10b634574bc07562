package telemetry

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// at returns a time from a text.
func at(t testing.TB, text string) time.Time {
	t.Helper()
	d, err := date(text)
	errtest.Must(t, err)
	return *d
}

// TestSchedule: reports are due at midnight UTC of fixed days.
func TestSchedule(t *testing.T) {
	for _, c := range []struct{ frequency, now, last, next string }{
		{twiceMonthly, "2026-11-01T00:00:00Z", "2026-11-01", "2026-11-15"},
		{twiceMonthly, "2026-11-14T23:59:59Z", "2026-11-01", "2026-11-15"},
		{twiceMonthly, "2026-11-15T00:00:00Z", "2026-11-15", "2026-12-01"},
		{twiceMonthly, "2026-12-31T10:00:00Z", "2026-12-15", "2027-01-01"},
		{weekly, "2026-11-23T00:00:00Z", "2026-11-23", "2026-11-30"}, // a Monday
		{weekly, "2026-11-22T23:00:00Z", "2026-11-16", "2026-11-23"},
		{monthly, "2028-02-29T12:00:00Z", "2028-02-01", "2028-03-01"},
		{daily, "2026-11-23T12:00:00Z", "2026-11-23", "2026-11-24"},
		{daily, "2026-11-23T23:30:00-05:00", "2026-11-24", "2026-11-25"},
	} {
		now := at(t, c.now)
		if got := lastDue(c.frequency, now); !got.Equal(at(t, c.last)) {
			t.Errorf("lastDue(%s, %s) = %s, want %s", c.frequency, c.now, got, c.last)
		}
		if got := nextDue(c.frequency, now); !got.Equal(at(t, c.next)) {
			t.Errorf("nextDue(%s, %s) = %s, want %s", c.frequency, c.now, got, c.next)
		}
	}
}

// TestPeriodsLeaveNoGap: after any change, each period starts where the one before ended, and none is
// empty.
func TestPeriodsLeaveNoGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 800*24*60).Draw(t, "start")) * time.Minute)
		st := state{Enabled: true, Frequency: twiceMonthly}.plan(now)
		end := *st.PeriodStart
		for range 30 {
			now = now.Add(time.Duration(rapid.IntRange(0, 40*24*60).Draw(t, "wait")) * time.Minute)
			for st.due(now) {
				p := st.currentPeriod(now)
				if !p.from.Equal(end) || !p.until.After(p.from) {
					t.Fatalf("period %s follows one that ended at %s", p, end)
				}
				end = p.until
				st = st.advance()
			}
			st.Frequency = rapid.SampledFrom([]string{twiceMonthly, weekly, monthly, daily}).Draw(t, "frequency")
			st = st.plan(now)
		}
	})
}

// TestJudge: the tier, the status and the end of a trial decide what a license allows.
func TestJudge(t *testing.T) {
	now := at(t, "2026-11-23T12:00:00Z")
	past, soon, far := at(t, "2026-11-20"), at(t, "2026-11-25"), at(t, "2027-06-01")
	for name, c := range map[string]struct {
		l       License
		allowed bool
		reason  string
		expired bool
		warned  bool
	}{
		"an empty license":        {License{}, false, reasonNoLicense, false, false},
		"an active subscription":  {License{Tier: "enterprise", Status: "active"}, true, reasonLicensed, false, false},
		"bought after a trial":    {License{Tier: "pro", Status: "active", TrialEnd: &past}, true, reasonLicensed, false, false},
		"a tier alone":            {License{Tier: "pro"}, true, reasonLicensed, false, false},
		"a payment overdue":       {License{Tier: "pro", Status: "past_due"}, true, reasonLicensed, false, true},
		"cancelled":               {License{Tier: "pro", Status: "canceled"}, false, reasonInactive, false, false},
		"cancelled in capitals":   {License{Tier: "pro", Status: "CANCELLED"}, false, reasonInactive, false, false},
		"suspended":               {License{Tier: "enterprise", Status: "suspended"}, false, reasonInactive, false, false},
		"an unknown status":       {License{Tier: "enterprise", Status: "frozen"}, false, reasonInactive, false, false},
		"a trial":                 {License{Tier: "trial", Status: "active", TrialEnd: &far}, true, reasonTrial, false, false},
		"a trial near its end":    {License{Tier: "pro", Status: "trialing", TrialEnd: &soon}, true, reasonTrial, false, true},
		"a trial without an end":  {License{Tier: "trial", Status: "trial"}, true, reasonTrial, false, false},
		"a trial that ended":      {License{Tier: "trial", Status: "active", TrialEnd: &past}, false, reasonTrialExpired, true, false},
		"a trial ending now":      {License{Tier: "trial", Status: "active", TrialEnd: &now}, false, reasonTrialExpired, true, false},
		"an expired trial":        {License{Tier: "trial", Status: "expired", TrialEnd: &far}, false, reasonTrialExpired, true, false},
		"trial_expired alone":     {License{Tier: "pro", Status: "trial_expired"}, false, reasonTrialExpired, true, false},
		"community after a trial": {License{Tier: "community", Status: "active", TrialEnd: &past}, false, reasonTrialExpired, true, false},
		"community":               {License{Tier: "community", Status: "active"}, true, reasonLicensed, false, false},
		"an expired subscription": {License{Tier: "pro", Status: "expired"}, false, reasonInactive, false, false},
	} {
		v := c.l.judge(now)
		if v.allowed != c.allowed || v.reason != c.reason || v.expired != c.expired || (v.warning != "") != c.warned || v.message == "" {
			t.Errorf("%s: judge = %+v", name, v)
		}
	}
	if v := (License{Tier: "trial", Status: "trial", TrialEnd: &soon}).judge(now); v.daysLeft != 2 {
		t.Errorf("daysLeft of a day and a half = %d, want 2", v.daysLeft)
	}
}

// TestLicensesAreOrdered: only a license that is not older replaces one with a date.
func TestLicensesAreOrdered(t *testing.T) {
	old, newer := at(t, "2026-01-01"), at(t, "2026-02-01")
	pushed := License{Tier: "pro", Status: "active", Effective: &newer, CustomerID: "c1"}
	for name, c := range map[string]struct {
		before, next License
		tier         string
	}{
		"the first":             {License{}, License{Tier: "trial"}, "trial"},
		"undated after undated": {License{Tier: "trial"}, License{Tier: "pro"}, "pro"},
		"dated after undated":   {License{Tier: "trial"}, pushed, "pro"},
		"undated after dated":   {pushed, License{Tier: "trial"}, "pro"},
		"older after newer":     {pushed, License{Tier: "trial", Effective: &old}, "pro"},
		"the same date again":   {pushed, License{Tier: "team", Effective: &newer}, "team"},
		"nothing":               {pushed, License{}, "pro"},
	} {
		got := c.next.merged(c.before)
		if got.Tier != c.tier || c.before.CustomerID != "" && got.CustomerID != "c1" {
			t.Errorf("%s: merged = %+v, want the tier %s", name, got, c.tier)
		}
	}
}
