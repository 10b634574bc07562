package audit

import (
	"context"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// Recount computes the roll-ups of a series by minutes, oldest first, from the entries of the
// decision log. Use it for a series that was not counted when its decisions were stored. It reads
// the newest n entries of [from, to); since is the time from which the roll-ups are complete.
func Recount(ctx context.Context, tx *db.Tx, s stats.Series, from, to time.Time, n int) (minutes []stats.Rollup, since time.Time, err error) {
	rows, err := entriesOf(ctx, tx, s, from, to, n)
	if err != nil {
		return nil, from, err
	}
	since = from
	if len(rows) == n {
		since = rows[n-1].At
	}
	for _, row := range slices.Backward(rows) {
		r, err := toRow([]byte(row.Record))
		if err != nil {
			return nil, since, err
		}
		start := stats.Minute.Start(r.At)
		if len(minutes) == 0 || !minutes[len(minutes)-1].Start.Equal(start) {
			minutes = append(minutes, stats.Rollup{Start: start})
		}
		minutes[len(minutes)-1].Count(r.decided())
	}
	return minutes, since, nil
}
