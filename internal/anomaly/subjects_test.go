package anomaly

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// The people and resources of a shape of traffic. Some people are much busier than others. Most of
// them share one address, and a few join during the simulated weeks.
const (
	people    = 40
	joining   = 6 // of the people, one every three days
	behindOne = 25
	places    = 20
)

// crowd simulates who uses which resources in a shape of traffic.
type crowd struct {
	*world
	users, resources map[string]map[time.Time]int64 // by day and by hour
	last             []crowdMinute                  // the minutes in the window of Sources
}

// crowdMinute is what the people did in one minute.
type crowdMinute struct {
	permitted, denied [people]int64
}

// weights returns n shares that follow Zipf's law: a few are most of the sum.
func weights(n int) []float64 {
	sum, out := 0.0, make([]float64, n)
	for k := range out {
		out[k] = 1 / float64(k+1)
		sum += out[k]
	}
	for k := range out {
		out[k] /= sum
	}
	return out
}

var ofPeople, ofPlaces = weights(people), weights(places)

// tick simulates one minute of all people.
func (c *crowd) tick() {
	now := c.now
	c.world.tick(nil)
	var m crowdMinute
	for i := range people {
		if i >= people-joining && now.Sub(began) < time.Duration(i-people+joining+1)*72*time.Hour+7*24*time.Hour {
			continue // joins later
		}
		if away := (int(now.Sub(began)/(24*time.Hour)) + i) % 9; away == 0 {
			continue // has a day off
		}
		n := c.poisson(c.rate(now) * ofPeople[i])
		m.denied[i] = min(n, c.poisson(float64(n)*c.denied(now)))
		m.permitted[i] = n - m.denied[i]
		add(c.users, fmt.Sprint("user ", i), stats.Day.Start(now), n)
	}
	for i := range places {
		add(c.resources, fmt.Sprint("resource ", i), stats.Hour.Start(now), c.poisson(c.rate(now)*ofPlaces[i]))
	}
	if c.last = append(c.last, m); len(c.last) > int(sources/time.Minute) {
		c.last = c.last[1:]
	}
}

var began = time.Date(2026, 9, 7, 0, 0, 0, 0, time.UTC)

// add adds to the count of a subject in a bucket.
func add(counts map[string]map[time.Time]int64, subject string, bucket time.Time, n int64) {
	if n == 0 {
		return
	}
	if counts[subject] == nil {
		counts[subject] = map[time.Time]int64{}
	}
	counts[subject][bucket] += n
}

// activity returns what audit.Reader.Activity would return for the counts.
func activity(counts map[string]map[time.Time]int64, width time.Duration, running, from time.Time) []stats.Activity {
	var out []stats.Activity
	for subject, buckets := range counts {
		a := stats.Activity{Subject: subject, Now: buckets[running]}
		if a.Now < leastAccesses {
			continue
		}
		for at := running.Add(-width); !at.Before(from); at = at.Add(-width) {
			if n := buckets[at]; n > 0 {
				a.Before = append(a.Before, n)
			}
		}
		out = append(out, a)
	}
	return out
}

// addresses returns what audit.Reader.Sources would return: many people share one address, the
// others have one each.
func (c *crowd) addresses() []stats.Source {
	by := map[string]*stats.Source{}
	for i := range people {
		address := fmt.Sprint("10.0.0.", i)
		if i < behindOne {
			address = "192.0.2.1"
		}
		s := by[address]
		if s == nil {
			s = &stats.Source{Address: address, Resources: places}
			by[address] = s
		}
		var n int64
		for _, m := range c.last {
			s.Permitted, s.Denied, n = s.Permitted+m.permitted[i], s.Denied+m.denied[i], n+m.permitted[i]+m.denied[i]
		}
		if n > 0 {
			s.Users++
		}
	}
	var out []stats.Source
	for _, s := range by {
		out = append(out, *s)
	}
	return out
}

// TestFalseAlarmsAboutSubjects is TestFalseAlarms for the detectors of resources,
// users and addresses.
func TestFalseAlarmsAboutSubjects(t *testing.T) {
	fulltest.Only(t)
	alarms, checked, weeks := map[Kind]int{}, map[Kind]int{}, 0
	for name, s := range shapes() {
		c := &crowd{world: newWorld(s, 13), users: map[string]map[time.Time]int64{}, resources: map[string]map[time.Time]int64{}}
		last := map[string]time.Time{}
		for minute := range 21 * 24 * 60 {
			c.tick()
			if minute < 7*24*60 || minute%30 != 0 {
				continue
			}
			at := c.now.Add(-time.Minute)
			resources := activity(c.resources, time.Hour, stats.Hour.Start(at), at.Add(-baseline))
			users := activity(c.users, 24*time.Hour, stats.Day.Start(at), at.Add(-days))
			from := c.addresses()
			checked[ResourceSpike], checked[UserSpike], checked[SuspiciousPlace] = checked[ResourceSpike]+len(resources), checked[UserSpike]+len(users), checked[SuspiciousPlace]+len(from)
			found := DetectSpikes(ResourceSpike, time.Hour, baseline, resources, usual)
			found = append(found, DetectSpikes(UserSpike, 24*time.Hour, days, users, usual)...)
			found = append(found, DetectSources(from, sources, c.hours[:len(c.hours)-1], usual)...)
			for _, f := range found {
				about := string(f.Kind) + f.Subject
				if at.Sub(last[about]) > pause {
					alarms[f.Kind]++
					t.Logf("%s, %s: %+v", name, at.Format("Mon 15:04"), f)
				}
				last[about] = at
			}
		}
		weeks += 2
	}
	t.Logf("in %d weeks of traffic: %d false alarms about resources, %d about users, %d about addresses",
		weeks, alarms[ResourceSpike], alarms[UserSpike], alarms[SuspiciousPlace])
	for _, kind := range []Kind{ResourceSpike, UserSpike, SuspiciousPlace} {
		if alarms[kind] > 2 || checked[kind] < 5_000 {
			t.Errorf("%s: %d false alarms in %d checks of a subject, want at most 2 in at least 5,000", kind, alarms[kind], checked[kind])
		}
	}
}
