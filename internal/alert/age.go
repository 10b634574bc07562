package alert

import (
	"context"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// sourceAge is the metric for the age of the data of data sources.
const sourceAge = "data_source_age"

// keptSyncs is how many syncs of a data source are kept (package pip).
const keptSyncs = 100

// ageAt returns the age of the oldest data at a time, in seconds. It returns false if there is no
// data source. The age of a source without data counts from its creation.
func ageAt(ctx context.Context, tx *db.Tx, connection int64, at time.Time) (float64, bool, error) {
	all, err := sourcesOf(ctx, tx, connection)
	oldest, there := 0.0, false
	for _, s := range all {
		oldest, there = max(oldest, at.Sub(s.Since).Seconds()), true
	}
	return oldest, there, err
}

// freshness lists when the data of one source was read or confirmed, oldest first.
type freshness []time.Time

// ages returns the freshness of the data sources of a rule, as far as it is known, and the time
// from which it is known for all of them, at the earliest from.
func ages(ctx context.Context, tx *db.Tx, connection int64, from time.Time) ([]freshness, time.Time, error) {
	all, err := sourcesOf(ctx, tx, connection)
	if err != nil {
		return nil, from, err
	}
	var out []freshness
	for _, s := range all {
		good, err := goodSyncs(ctx, tx, s.ID)
		if err != nil {
			return nil, from, err
		}
		f := freshness{}
		for _, g := range good {
			f = append(f, g.At)
		}
		if len(f) == 0 || s.Since.Before(f[0]) { // its last good sync is older than the kept ones
			f = slices.Insert(f, 0, s.Since)
		}
		if s.Syncs < keptSyncs { // all its syncs are kept
			f = slices.Insert(f, 0, s.CreatedAt)
		} else if f[0].After(from) {
			from = f[0]
		}
		out = append(out, f)
	}
	return out, from, nil
}

// age returns the age of the data at a time, in seconds. It returns false if the source did not
// exist yet.
func (f freshness) age(at time.Time) (float64, bool) {
	i, exact := slices.BinarySearchFunc(f, at, time.Time.Compare)
	if !exact {
		i--
	}
	if i < 0 {
		return 0, false
	}
	return at.Sub(f[i]).Seconds(), true
}

// oldest returns the greatest age of several sources at a time. It returns false if there are none.
func oldest(all []freshness, at time.Time) (float64, bool) {
	most, there := 0.0, false
	for _, f := range all {
		if age, is := f.age(at); is {
			most, there = max(most, age), true
		}
	}
	return most, there
}
