package audit

import (
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
)

// cell is one row of decision_counts: a key in one time bucket.
type cell struct {
	Key         string    `db:"key"`
	Bucket      time.Time `db:"bucket"`
	Environment string    `db:"environment"`
	Decision    string    `db:"decision"`
	Tally
}

// Tally counts decisions.
type Tally struct {
	// Logged counts the rows that are now in the log. Counted counts all decisions, including
	// those at audit level none and those past retention.
	Logged       int64 `json:"logged" db:"logged"`
	Counted      int64 `json:"counted" db:"counted"`
	EvaluationUS int64 `json:"evaluation_us" db:"evaluation_us"`
	CacheHits    int64 `json:"cache_hits" db:"cache_hits"`
	Errors       int64 `json:"errors" db:"errors"`
}

func (t *Tally) add(o Tally) {
	t.Logged += o.Logged
	t.Counted += o.Counted
	t.EvaluationUS += o.EvaluationUS
	t.CacheHits += o.CacheHits
	t.Errors += o.Errors
}

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// The keys of decision_counts. allKey counts every decision. The counters of users are by day,
// all others by hour.
const allKey = ""

func policyKey(id int64) string { return string(stats.TopPolicies) + strconv.FormatInt(id, 10) }

func resourceKey(resource string) string              { return string(stats.TopResources) + resource }
func pairKey(policy int64, resource string) string    { return policyKey(policy) + "|" + resource }
func userKey(user string) string                      { return string(stats.BusyUsers) + user }
func bucketOf(t time.Time, w time.Duration) time.Time { return t.UTC().Truncate(w) }

type cellID struct {
	key, environment, decision string
	bucket                     int64
}

// tallies collects the cells that a batch of rows changes.
type tallies map[cellID]*cell

// add adds t to the counters of all keys of the row. For a row that leaves the log, only Logged is
// set: Counted includes rows past retention.
func (ts tallies) add(r *row, t Tally) {
	ts.addCell(allKey, r, hour, t)
	if r.PolicyID != 0 {
		ts.addCell(policyKey(r.PolicyID), r, hour, t)
	}
	if r.ResourceKey != "" {
		ts.addCell(resourceKey(r.ResourceKey), r, hour, t)
		if r.PolicyID != 0 {
			ts.addCell(pairKey(r.PolicyID, r.ResourceKey), r, hour, t)
		}
	}
	// A counter that outlives the row must not reveal the user.
	if r.UserID != "" && t.Logged != 0 {
		ts.addCell(userKey(r.UserID), r, day, t)
	}
}

func (ts tallies) addCell(key string, r *row, width time.Duration, t Tally) {
	b := bucketOf(r.At, width)
	id := cellID{key, r.Environment, r.Decision, b.UnixMicro()}
	c := ts[id]
	if c == nil {
		c = &cell{Key: key, Bucket: b, Environment: r.Environment, Decision: r.Decision}
		ts[id] = c
	}
	c.add(t)
}

// span is a half-open period of time.
type span struct{ lo, hi time.Time }

func (s span) empty() bool { return !s.lo.Before(s.hi) }

// cover splits s into the whole buckets inside it and the partial ones before and after them. If
// no whole bucket fits, inside is empty.
func (s span) cover(width time.Duration) (inside span, ends []span) {
	lo, hi := bucketOf(s.lo, width), bucketOf(s.hi, width)
	if lo.Before(s.lo) {
		lo = lo.Add(width)
	}
	if !lo.Before(hi) {
		if hi.After(s.lo) && hi.Before(s.hi) {
			return span{}, []span{{s.lo, hi}, {hi, s.hi}}
		}
		return span{}, []span{s}
	}
	inside = span{lo, hi}
	if head := (span{s.lo, lo}); !head.empty() {
		ends = append(ends, head)
	}
	if tail := (span{hi, s.hi}); !tail.empty() {
		ends = append(ends, tail)
	}
	return inside, ends
}
