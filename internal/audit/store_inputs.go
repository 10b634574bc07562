package audit

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// inputEnd is the newest row of replay_inputs.
type inputEnd struct {
	Pos   int64 `db:"pos"`
	Total int64 `db:"total"`
}

// inputsEnd returns the position and the total size of the newest input; both are zero if there
// is none.
func inputsEnd(ctx context.Context, tx *db.Tx) (inputEnd, error) {
	rows, err := db.All[inputEnd](ctx, tx, `SELECT pos, total FROM replay_inputs ORDER BY pos DESC LIMIT 1`)
	if err != nil || len(rows) == 0 {
		return inputEnd{}, err
	}
	return rows[0], nil
}

// insertInputs adds the inputs of rows after end, and returns the new end.
func insertInputs(ctx context.Context, tx *db.Tx, end inputEnd, rows []row) (inputEnd, error) {
	list := make([][]any, len(rows))
	for i := range rows {
		r := &rows[i]
		end.Pos++
		end.Total += int64(len(r.input))
		list[i] = []any{end.Pos, r.Seq, r.At, r.Environment, end.Total, r.input}
	}
	err := db.DoRows(ctx, tx, `INSERT INTO replay_inputs (pos, seq, at, environment, total, input) VALUES `, list, ``)
	return end, err
}

// deleteInputs removes inputs among the n oldest: those up to the position pos, and those that
// began before the running total of bytes had reached total.
func deleteInputs(ctx context.Context, tx *db.Tx, pos, total int64, n int) (int64, error) {
	if pos <= 0 && total <= 0 {
		return 0, nil
	}
	return tx.Exec(ctx, `DELETE FROM replay_inputs WHERE pos IN (SELECT pos FROM replay_inputs ORDER BY pos LIMIT $3) AND (pos <= $1 OR total - length(input) < $2)`, pos, total, n)
}

func deleteInputsBefore(ctx context.Context, tx *db.Tx, before time.Time, n int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM replay_inputs WHERE pos IN (SELECT pos FROM replay_inputs ORDER BY pos LIMIT $2) AND at < $1`, before, n)
}

type inputRow struct {
	At     time.Time `db:"at"`
	Seq    int64     `db:"seq"`
	Record string    `db:"record"`
	Input  string    `db:"input"`
}

// keptLines returns the records of a recording whose input is stored beside the log, newest
// first.
func keptLines(ctx context.Context, tx *db.Tx, r Recording, before position, n, maxBytes int) (out []inputRow, more bool, err error) {
	bytes := 0
	for row, err := range db.Rows[inputRow](ctx, tx, `SELECT i.at, i.seq, d.record, i.input FROM replay_inputs i JOIN decisions d ON d.seq = i.seq
		WHERE i.environment = $1 AND i.at >= $2 AND (i.at, i.seq) < ($3, $4) ORDER BY i.at DESC, i.seq DESC LIMIT $5`,
		string(r.Env), r.From, before.At, before.Seq, n) {
		if err != nil {
			return nil, false, err
		}
		out = append(out, row)
		if bytes += len(row.Record) + len(row.Input); bytes >= maxBytes {
			return out, true, nil
		}
	}
	return out, len(out) == n, nil
}

func countKept(ctx context.Context, tx *db.Tx, r Recording) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM replay_inputs WHERE environment = $1 AND at >= $2 AND at < $3`, string(r.Env), r.From, r.To)
}

type inputOfID struct {
	ID    string `db:"decision_id"`
	Input string `db:"input"`
}

// inputsByID adds the inputs of decisions made at or after from to found, by decision id.
func inputsByID(ctx context.Context, tx *db.Tx, ids []string, from time.Time, found map[string]string) error {
	rows, err := db.AllIn[inputOfID](ctx, tx, `SELECT d.decision_id, i.input FROM decisions d JOIN replay_inputs i ON i.seq = d.seq
		WHERE i.at >= $1 AND d.decision_id IN ($in)`, ids, from)
	for _, r := range rows {
		found[r.ID] = r.Input
	}
	return err
}
