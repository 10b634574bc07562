package db_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestAllIn: for any number of keys, each is looked up once, also if the query has other arguments
// and names the keys in several places.
func TestAllIn(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		err := c.System().Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, `CREATE TABLE keyed (id BIGINT NOT NULL PRIMARY KEY, odd BIGINT NOT NULL)`); err != nil {
				return err
			}
			var rows [][]any
			for i := range 1500 {
				rows = append(rows, []any{i, i % 2})
			}
			_, err := db.ExecRows(ctx, tx, `INSERT INTO keyed (id, odd) VALUES `, rows, ``)
			return err
		})
		errtest.Must(t, err)
		for _, n := range []int{0, 1, 4, 5, 26, 131, 500, 1234} {
			keys := make([]int64, n)
			for i := range keys {
				keys[i] = int64(i)
			}
			err := c.System().Read(ctx, func(tx *db.Tx) error {
				found, err := db.AllIn[int64](ctx, tx, `SELECT id FROM keyed WHERE odd = $1 AND id IN ($in) UNION ALL SELECT id FROM keyed WHERE odd = $2 AND id IN ($in)`, keys, 0, 1)
				if err != nil {
					return err
				}
				seen := map[int64]int{}
				for _, id := range found {
					seen[id]++
				}
				if len(found) != n || len(seen) != n {
					return fmt.Errorf("AllIn of %d keys gives %d rows, %d different", n, len(found), len(seen))
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func TestPlaceholders(t *testing.T) {
	for _, c := range []struct {
		first, n int
		want     string
	}{{1, 0, ""}, {1, 1, "$1"}, {4, 3, "$4, $5, $6"}, {9, 2, "$9, $10"}} {
		if got := db.Placeholders(c.first, c.n); got != c.want {
			t.Errorf("Placeholders(%d, %d) = %q, want %q", c.first, c.n, got, c.want)
		}
	}
}
