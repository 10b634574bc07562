package db_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestExecRows: for any number of rows, each is written once, including NULL, and with explicit
// types if no table gives them.
func TestExecRows(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		err := c.System().Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `CREATE TABLE many (id BIGINT NOT NULL PRIMARY KEY, word TEXT, share DOUBLE PRECISION)`)
			return err
		})
		errtest.Must(t, err)
		type row struct {
			ID    int64    `db:"id"`
			Word  string   `db:"word"`
			Share *float64 `db:"share"`
		}
		for _, n := range []int{0, 1, 2, 49, 311, 562} {
			err := c.System().Write(ctx, func(tx *db.Tx) error {
				if _, err := tx.Exec(ctx, `DELETE FROM many`); err != nil {
					return err
				}
				made, changes := [][]any{}, [][]any{}
				for i := range n {
					made = append(made, []any{i, "as it was", nil})
					share := any(float64(i) / 4)
					if i%3 == 0 {
						share = nil
					}
					changes = append(changes, []any{i + 1, fmt.Sprint("word ", i+1), share})
				}
				did, err := db.ExecRows(ctx, tx, `INSERT INTO many (id, word, share) VALUES `, made, ` ON CONFLICT (id) DO NOTHING`)
				if err != nil || did != int64(n) {
					return fmt.Errorf("%d of %d inserted: %w", did, n, err)
				}
				did, err = db.ExecRows(ctx, tx, `WITH v(id, word, share) AS (VALUES `, changes,
					`) UPDATE many SET word = v.word, share = v.share FROM v WHERE many.id = v.id`, "BIGINT", "TEXT", "DOUBLE PRECISION")
				if err != nil || did != int64(max(n-1, 0)) {
					return fmt.Errorf("%d of %d changed: %w", did, n, err)
				}
				rows, err := db.All[row](ctx, tx, `SELECT id, word, share FROM many ORDER BY id`)
				if err != nil || len(rows) != n {
					return fmt.Errorf("%d of %d rows: %w", len(rows), n, err)
				}
				for i, r := range rows {
					word, was := fmt.Sprint("word ", i), i-1
					if i == 0 {
						word, was = "as it was", 0
					}
					if r.ID != int64(i) || r.Word != word || (r.Share == nil) != (was%3 == 0) || r.Share != nil && *r.Share != float64(was)/4 {
						t.Errorf("row %d of %d = %+v", i, n, r)
					}
				}
				return nil
			})
			errtest.Must(t, err)
		}
		err = c.System().Write(ctx, func(tx *db.Tx) error {
			_, err := db.ExecRows(ctx, tx, `INSERT INTO many (id, word, share) VALUES `, [][]any{{1, "a", nil}, {2, "b"}}, "")
			return err
		})
		if err == nil {
			t.Error("ExecRows with rows of different lengths succeeds, want an error")
		}
	})
}
