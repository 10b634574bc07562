package region

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/db/tablecopy"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// flood replaces many rows in each transaction, so that changes are faster than the copy. Its last
// row counts the transactions.
func flood(s *Service, writer int, n int64) error {
	ctx := context.Background()
	prefix := fmt.Sprintf("flood %d ", writer)
	rows := make([][]any, 500)
	for i := range rows {
		rows[i] = []any{fmt.Sprint(prefix, n, " ", i), "1"}
	}
	return s.Stores.Write(ctx, dbtest.Second, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM settings WHERE name LIKE $1`, prefix+"%"); err != nil {
			return err
		}
		if _, err := db.ExecRows(ctx, tx, `INSERT INTO settings (name, value) VALUES `, rows, ""); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2)`, prefix+"count", fmt.Sprint(n))
		return err
	})
}

// TestFloodOfChanges: a tenant that changes faster than its changes are copied can still be moved,
// and loses no acknowledged write.
func TestFloodOfChanges(t *testing.T) {
	for _, way := range [][2]string{{fileRegion, serverRegion}, {serverRegion, fileRegion}} {
		t.Run(way[0], func(t *testing.T) {
			skipLong(t)
			s := process(t, config(t, dbtest.SQLite), nil)
			populate(t, s, way[0])
			var end atomic.Bool
			var running sync.WaitGroup
			var counts [4]int64
			for w := range counts {
				running.Go(func() {
					for !end.Load() {
						if err := patiently(func() error { return flood(s, w, counts[w]+1) }); err != nil {
							t.Errorf("write: %v", err)
							return
						}
						counts[w]++
					}
				})
			}
			stop := sync.OnceFunc(func() { end.Store(true); running.Wait() })
			defer stop()
			d, err := s.Start(context.Background(), root, dbtest.Second, Request{Region: way[1]})
			errtest.Must(t, err)
			d = finish(t, s, d.ID)
			stop()
			t.Logf("%d changes, a pause of %d ms", d.ChangesCopied, d.WritePauseMS)
			if d.Status != Completed || regionOfTenant(t, s) != way[1] {
				t.Errorf("deployment = %+v (%s), want it completed in %s", d, d.ReasonText, way[1])
			}
			have := names(t, s)
			for w, n := range counts {
				found := 0
				for _, name := range have {
					if strings.HasPrefix(name, fmt.Sprintf("flood %d %d ", w, n)) {
						found++
					}
				}
				if found != 500 {
					t.Errorf("writer %d: %d rows of its last transaction, want 500", w, found)
				}
			}
		})
	}
}

// TestBrake: a brake refuses some writes and allows others while changes are copied. After its
// release, it refuses none.
func TestBrake(t *testing.T) {
	for _, way := range [][2]string{{fileRegion, serverRegion}, {serverRegion, fileRegion}} {
		t.Run(way[0], func(t *testing.T) {
			ctx := context.Background()
			s := process(t, config(t, dbtest.SQLite), nil)
			populate(t, s, way[0])
			from, err := s.Stores.At(dbtest.Second, way[0])
			errtest.Must(t, err)
			to, err := s.Stores.At(dbtest.Second, way[1])
			errtest.Must(t, err)
			errtest.Must(t, to.Provision(ctx))
			c := &tablecopy.Copy{From: from, To: to, Token: 1}
			errtest.Must(t, c.Begin(ctx))
			errtest.Must(t, c.Tables(ctx))
			d := Deployment{Tenant: dbtest.Second, brake: 2}
			b := s.newBrake(ctx, &d, c)
			defer b.release()
			write := func(n int) error {
				return from.Write(ctx, func(tx *db.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, '1')`, fmt.Sprint("braked ", n))
					return err
				})
			}
			taken, refused, n := 0, 0, 0
			for ; taken < 3 || refused < 3; n++ {
				switch err := write(n); {
				case err == nil:
					taken++
				case fault.Is(err, fault.Unavailable):
					refused++
				default:
					t.Fatalf("write: got %v, want unavailable", err)
				}
				_, _, err := c.CatchUp(ctx)
				errtest.Must(t, err)
			}
			b.release()
			for range 20 {
				n++
				errtest.Must(t, write(n))
			}
		})
	}
}
