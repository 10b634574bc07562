package event

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// insertEvents stores events at the next positions. The highest position so far is in event_cursors
// under the empty name, because old events are removed.
func insertEvents(ctx context.Context, tx *db.Tx, events []stored) error {
	last, err := db.One[int64](ctx, tx, `INSERT INTO event_cursors (sink, seq) VALUES ('', $1)
		ON CONFLICT (sink) DO UPDATE SET seq = event_cursors.seq + excluded.seq RETURNING seq`, len(events))
	if err != nil {
		return err
	}
	rows := make([][]any, len(events))
	for i, e := range events {
		rows[i] = []any{last - int64(len(events)-1-i), e.At, e.Type, e.Env, e.Data}
	}
	return db.DoRows(ctx, tx, `INSERT INTO events (seq, at, type, environment, data) VALUES `, rows, "")
}

// cursorOf returns the position of the last event that a sink has received. It is 0 for a new sink,
// which begins with the oldest stored event.
func cursorOf(ctx context.Context, tx *db.Tx, sink string) (int64, error) {
	return db.OneOrZero[int64](ctx, tx, `SELECT seq FROM event_cursors WHERE sink = $1`, sink)
}

func saveCursor(ctx context.Context, tx *db.Tx, sink string, seq int64) error {
	return tx.Do(ctx, `INSERT INTO event_cursors (sink, seq) VALUES ($1, $2) ON CONFLICT (sink) DO UPDATE SET seq = excluded.seq`, sink, seq)
}

func eventsAfter(ctx context.Context, tx *db.Tx, seq int64, n int) ([]stored, error) {
	return db.All[stored](ctx, tx, `SELECT seq, at, type, environment, data FROM events WHERE seq > $1 ORDER BY seq LIMIT $2`, seq, n)
}

// deleteOld removes at most n events from before a time with positions up to upTo.
func deleteOld(ctx context.Context, tx *db.Tx, before time.Time, upTo int64, n int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq <= $1 AND at < $2 ORDER BY seq LIMIT $3)`, upTo, before, n)
}
