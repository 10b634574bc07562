package stats

import (
	"context"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/digest"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Series selects decisions of one environment that are counted separately. Empty members select
// all.
type Series struct {
	Environment scope.Env `db:"environment"`
	// Resource is the id of a resource, or the name that callers use if it is not registered.
	Resource string `db:"resource_key"`
	// Control is the control that decided.
	Control int64  `db:"policy_id"`
	Bouncer int64  `db:"bouncer_id"`
	Subject string `db:"user_id"`
}

// whole reports whether the series is the whole environment, which is always counted.
func (s Series) whole() bool { return s == Series{Environment: s.Environment} }

// key returns the value of the environment column in the roll-ups of the series.
func (s Series) key() string {
	if s.whole() {
		return string(s.Environment)
	}
	return string(s.Environment) + "|" + digest.Key(strconv.FormatInt(s.Control, 10)+"|"+strconv.FormatInt(s.Bouncer, 10)+"|"+strconv.Quote(s.Resource)+s.Subject)
}

// Has reports whether a decision belongs to the series.
func (s Series) Has(d Series) bool {
	return s.Environment == d.Environment && (s.Resource == "" || digest.Key(s.Resource) == d.Resource) && (s.Control == 0 || s.Control == d.Control) &&
		(s.Bouncer == 0 || s.Bouncer == d.Bouncer) && (s.Subject == "" || digest.Key(s.Subject) == d.Subject)
}

// Count sets the series that are counted from now on. The counts of earlier series stay until
// their retention ends.
func Count(ctx context.Context, tx *db.Tx, all []Series) error {
	parts := map[Series]bool{}
	for _, s := range all {
		if !s.whole() {
			parts[s] = true
		}
	}
	return replaceSeries(ctx, tx, parts)
}

// AddTo counts decisions in a series.
func (rs Rollups) AddTo(s Series, d Decided) {
	d.Environment = s.key()
	rs.Add(d)
}

// Sum adds up a series in [from, to). Both are rounded down to the start of a period of the width.
func Sum(ctx context.Context, tx *db.Tx, w Width, s Series, from, to time.Time) (Rollup, error) {
	sum := Rollup{Start: w.Start(from)}
	err := sumRollups(ctx, tx, w, sum.Start, w.Start(to), []string{s.key()}, allMeasures, &sum)
	return sum, err
}

// Read returns the roll-ups of a series in [from, to), oldest first. Periods without decisions
// are left out.
func Read(ctx context.Context, tx *db.Tx, w Width, s Series, from, to time.Time) ([]Rollup, error) {
	return readRollups(ctx, tx, w, w.Start(from), w.Start(to), []string{s.key()})
}
