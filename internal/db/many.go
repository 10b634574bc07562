package db

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// portions are the possible numbers of rows in one statement of ExecRows. A few sizes make
// few texts, and each backend keeps a prepared statement for each.
var portions = []int{250, 50, 10, 1}

// ExecRows runs one statement for many rows, which go where VALUES ends head:
//
//	INSERT INTO t (a, b) VALUES | ($1, $2), ($3, $4) | ON CONFLICT …
//	WITH v(id, b) AS (VALUES | … | ) UPDATE t SET b = v.b FROM v WHERE t.id = v.id
//
// types are the SQL types of a row's columns. They are needed for a VALUES like the second one,
// whose types no table determines. Many rows become several statements of the transaction. It
// returns the number of rows that changed.
func ExecRows(ctx context.Context, tx *Tx, head string, rows [][]any, tail string, types ...string) (int64, error) {
	changed := int64(0)
	for len(rows) > 0 {
		n := tx.rowsAtOnce(portion(len(rows)))
		args := make([]any, 0, n*len(rows[0]))
		for _, row := range rows[:n] {
			if len(row) != len(rows[0]) {
				return changed, tx.failed(ctx, fmt.Errorf("a row of %d values among those of %d", len(row), len(rows[0])))
			}
			args = append(args, row...)
		}
		did, err := tx.Exec(ctx, rowsText(head, n, len(rows[0]), tail, types), args...)
		if err != nil {
			return changed, err
		}
		changed += did
		rows = rows[n:]
	}
	return changed, nil
}

// rowsAtOnce returns how many of n rows a statement should have: all of them if each statement is a
// network round trip; one in SQLite, which calls no server, and for a statement of several rows
// keeps what it needs to undo the first ones.
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

// rowsText returns the statement for n rows. Only the first row has types: the others follow it.
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
