package db

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// portions are the possible numbers of rows in one statement of ExecRows. There are only a few, so
// that the backend can keep a prepared statement for each.
var portions = []int{250, 50, 10, 1}

// DoRows is ExecRows for callers that do not need the number of rows.
func DoRows(ctx context.Context, tx *Tx, head string, rows [][]any, tail string, types ...string) error {
	_, err := ExecRows(ctx, tx, head, rows, tail, types...)
	return err
}

// ExecRows runs a statement with a VALUES list of any number of rows. The list is inserted between
// head and tail:
//
//	INSERT INTO t (a, b) VALUES | ($1, $2), ($3, $4) | ON CONFLICT …
//	WITH v(id, b) AS (VALUES | … | ) UPDATE t SET b = v.b FROM v WHERE t.id = v.id
//
// types are the SQL types of a row's columns. They are required if no table determines the types,
// as in the second example. For many rows, ExecRows runs several statements in the transaction. It
// returns the number of rows that changed.
func ExecRows(ctx context.Context, tx *Tx, head string, rows [][]any, tail string, types ...string) (int64, error) {
	changed := int64(0)
	for len(rows) > 0 {
		n := tx.rowsAtOnce(portion(len(rows)))
		args := make([]any, 0, n*len(rows[0]))
		for _, row := range rows[:n] {
			if len(row) != len(rows[0]) {
				return changed, tx.failed(ctx, fmt.Errorf("a row has %d values, the first row has %d", len(row), len(rows[0])))
			}
			args = append(args, row...)
		}
		affected, err := tx.Exec(ctx, rowsText(head, n, len(rows[0]), tail, types), args...)
		if err != nil {
			return changed, err
		}
		changed += affected
		rows = rows[n:]
	}
	return changed, nil
}

// rowsAtOnce returns how many of n rows one statement should have. On PostgreSQL each statement is
// a network round trip, so it is all of them. On SQLite it is one: a statement of several rows
// needs a journal to undo the first rows if a later one fails.
func (tx *Tx) rowsAtOnce(n int) int {
	if tx.at.name() == "sqlite" {
		return min(n, 1)
	}
	return n
}

// portion returns how many of n rows the next statement takes.
func portion(n int) int {
	for _, size := range portions {
		if n >= size {
			return size
		}
	}
	return 1
}

// rowsText returns the statement for n rows. Only the first row needs types: they hold for all
// rows.
func rowsText(head string, n, width int, tail string, types []string) string {
	var b strings.Builder
	b.Grow(len(head) + n*width*6 + len(tail) + width*32)
	b.WriteString(head)
	for i := range n * width {
		switch {
		case i%width > 0:
			b.WriteString(", ")
		case i > 0:
			b.WriteString("), (")
		default:
			b.WriteByte('(')
		}
		place := "$" + strconv.Itoa(i+1)
		if i < len(types) {
			place = "CAST(" + place + " AS " + types[i] + ")"
		}
		b.WriteString(place)
	}
	b.WriteByte(')')
	b.WriteString(tail)
	return b.String()
}
