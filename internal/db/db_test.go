package db_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type named struct {
	Name  string `db:"name"`
	Value string `db:"value"`
}

// tenant returns a tenant's store.
func tenant(t testing.TB, c *db.Cluster, id scope.TenantID) *db.DB {
	t.Helper()
	d, err := c.Tenant(context.Background(), id)
	errtest.Must(t, err)
	return d
}

// put inserts one setting.
func put(t testing.TB, d *db.DB, name, value string) {
	t.Helper()
	err := d.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `INSERT INTO settings (name, value) VALUES ($1, $2)`, name, value)
		return err
	})
	errtest.Must(t, err)
}

// settings returns a store's settings, ordered by name.
func settings(t testing.TB, d *db.DB) []named {
	t.Helper()
	list, err := db.ReadStore(context.Background(), d, func(tx *db.Tx) ([]named, error) {
		return db.All[named](context.Background(), tx, `SELECT * FROM settings ORDER BY name`)
	})
	errtest.Must(t, err)
	return list
}

// TestTenantIsolation: concurrent readers of two tenants see only the rows of their own.
func TestTenantIsolation(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		a, b := tenant(t, c, "default"), tenant(t, c, "t2")
		put(t, a, "same", "of default")
		put(t, b, "same", "of t2")
		var wg sync.WaitGroup
		for i := range 40 {
			d, want := a, "of default"
			if i%2 == 1 {
				d, want = b, "of t2"
			}
			wg.Go(func() {
				for range 10 {
					if got := settings(t, d); len(got) != 1 || got[0].Value != want {
						t.Errorf("settings = %v, want one with %q", got, want)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestCommitAndRollback: an error or a panic rolls a transaction back, and a read cannot write.
func TestCommitAndRollback(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		d := tenant(t, c, "default")
		put(t, d, "kept", "1")
		stop := errors.New("stop")
		err := d.Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE settings SET value = $1`, "2"); err != nil {
				return err
			}
			return stop
		})
		if !errors.Is(err, stop) {
			t.Fatalf("Write = %v, want %v", err, stop)
		}
		func() {
			defer func() { _ = recover() }()
			_ = d.Write(ctx, func(tx *db.Tx) error {
				_, _ = tx.Exec(ctx, `UPDATE settings SET value = $1`, "3")
				panic("a bug")
			})
		}()
		if diff := cmp.Diff([]named{{"kept", "1"}}, settings(t, d)); diff != "" {
			t.Errorf("settings after the rollbacks (-want +got)\n%s", diff)
		}
		if err := d.Read(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM settings`)
			return err
		}); err == nil {
			t.Error("a read transaction deletes rows, want an error")
		}
	})
}

// TestReadReturnsValue: Read returns what its function returns, even with an error, and nothing of
// a tenant that does not exist.
func TestReadReturnsValue(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		for _, want := range []error{nil, errors.New("refused")} {
			n, err := db.Read(ctx, c, scope.DefaultTenant, func(*db.Tx) (int, error) { return 7, want })
			if n != 7 || !errors.Is(err, want) {
				t.Errorf("%d, %v; want 7, %v", n, err, want)
			}
		}
		n, err := db.Read(ctx, c, "unknown", func(*db.Tx) (int, error) { return 7, nil })
		if n != 0 || !fault.Is(err, fault.NotFound) {
			t.Errorf("of an unknown tenant: %d, %v", n, err)
		}
	})
}

// TestFailedTransactionStaysFailed: after an error no statement runs, and the transaction is rolled back
// even if its function returns no error.
func TestFailedTransactionStaysFailed(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		d := tenant(t, c, "default")
		put(t, d, "a", "1")
		err := d.Write(ctx, func(tx *db.Tx) error {
			insert := `INSERT INTO settings (name, value) VALUES ($1, $2)`
			if _, err := tx.Exec(ctx, insert, "b", "2"); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, insert, "a", "again"); !fault.Is(err, fault.Conflict) {
				t.Errorf("insert of a name that exists: got %v, want a conflict", err)
			}
			if _, err := tx.Exec(ctx, insert, "c", "3"); err == nil {
				t.Error("an insert after an error succeeds, want an error")
			}
			return nil
		})
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("Write = %v, want the conflict", err)
		}
		if got := settings(t, d); len(got) != 1 {
			t.Errorf("settings = %v, want only the first", got)
		}
	})
}

// TestErrors: errors of queries and of tenants that do not exist have the kinds that callers expect.
func TestErrors(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		d := tenant(t, c, "default")
		read := func(sql string, args ...any) error {
			return d.Read(ctx, func(tx *db.Tx) error {
				_, err := db.One[named](ctx, tx, sql, args...)
				return err
			})
		}
		if err := read(`SELECT * FROM settings WHERE name = $1`, "x"); !errors.Is(err, db.ErrNoRows) || !fault.Is(err, fault.NotFound) {
			t.Errorf("query without rows: got %v, want ErrNoRows", err)
		}
		if err := read(`SELECT * FROM settings WHERE name = $1`, "nul\x00"); !fault.Is(err, fault.Invalid) {
			t.Errorf("query with NUL: got %v, want invalid", err)
		}
		put(t, d, "a", "1")
		if err := read(`SELECT name AS nmae FROM settings`); err == nil {
			t.Error("query with an unknown column succeeds, want an error")
		}
		if _, err := c.Tenant(ctx, "nobody"); !fault.Is(err, fault.NotFound) {
			t.Errorf("Tenant of an unknown id: got %v, want not found", err)
		}
		for _, id := range []scope.TenantID{"", "../x", "A", "a_b", "-a", "a\"; DROP SCHEMA x"} {
			if _, err := c.Tenant(ctx, id); !fault.Is(err, fault.NotFound) {
				t.Errorf("Tenant(%q): got %v, want not found", id, err)
			}
		}
		done, cancel := context.WithCancel(ctx)
		cancel()
		if err := d.Write(done, func(*db.Tx) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("Write with a cancelled context: got %v, want context.Canceled", err)
		}
	})
}

type colour string

type inner struct {
	Flag *bool `json:"flag"`
}

type embedded struct {
	Count uint32 `db:"count"`
}

type wide struct {
	embedded
	ID      int64             `db:"id"`
	Colour  colour            `db:"colour"`
	On      bool              `db:"on_"`
	Ratio   float64           `db:"ratio"`
	Made    time.Time         `db:"made"`
	Never   time.Time         `db:"never"`
	Ended   *time.Time        `db:"ended"`
	Note    *string           `db:"note"`
	Missing *string           `db:"missing"`
	Tags    []string          `db:"tags"`
	None    []string          `db:"none"`
	Labels  map[string]string `db:"labels"`
	Inner   inner             `db:"inner_"`
	Any     any               `db:"any_"`
	Raw     json.RawMessage   `db:"raw"`
	Bytes   []byte            `db:"bytes"`
	Addr    netip.Addr        `db:"addr"`
	Skipped string            `db:"-"`
}

// TestMapping: a row of every type that a record may have is read as it was written.
func TestMapping(t *testing.T) {
	yes, note := true, "note"
	made := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	want := wide{
		embedded: embedded{7}, ID: 1, Colour: "rød", On: true, Ratio: 1.5, Made: made, Ended: &made, Note: &note,
		Tags: []string{"a", `b"<`}, None: []string{}, Labels: map[string]string{}, Inner: inner{&yes},
		Any: map[string]any{"x": 1.0}, Raw: json.RawMessage(`{"b":1,"a":2}`), Bytes: []byte{0, 1, 255}, Addr: netip.MustParseAddr("::1"),
	}
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		create := `CREATE TABLE wide (count BIGINT, id BIGINT, colour TEXT, on_ BOOLEAN, ratio DOUBLE PRECISION, made BIGINT, never BIGINT,
			ended BIGINT, note TEXT, missing TEXT, tags TEXT, none TEXT, labels TEXT, inner_ TEXT, any_ TEXT, raw TEXT, bytes BYTEA, addr TEXT)`
		insert := `INSERT INTO wide VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18) RETURNING *`
		err := tenant(t, c, "default").Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, create); err != nil {
				return err
			}
			var none []string
			var labels map[string]string
			got, err := db.One[wide](ctx, tx, insert, want.Count, want.ID, want.Colour, want.On, want.Ratio, want.Made, want.Never, want.Ended,
				want.Note, want.Missing, want.Tags, none, labels, want.Inner, want.Any, want.Raw, want.Bytes, want.Addr)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(wide{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("row (-want +got)\n%s", diff)
			}
			if err != nil {
				return err
			}
			sum, err := db.One[int64](ctx, tx, `SELECT sum(count) FROM wide`)
			if err != nil || sum != 7 {
				t.Errorf("sum = %d, %v, want 7", sum, err)
			}
			mean, err := db.One[float64](ctx, tx, `SELECT avg(count) FROM wide`)
			if err != nil || mean != 7 {
				t.Errorf("avg = %f, %v, want 7", mean, err)
			}
			empty, err := db.All[string](ctx, tx, `SELECT colour FROM wide WHERE on_ = FALSE`)
			if err != nil || empty == nil || len(empty) != 0 {
				t.Errorf("All without rows = %v, %v, want an empty list", empty, err)
			}
			if _, err = db.One[time.Time](ctx, tx, `SELECT missing FROM wide`); err == nil {
				t.Error("NULL is read as a time.Time, want an error")
			}
			return errUndo
		})
		if !errors.Is(err, errUndo) {
			t.Errorf("Write = %v, want %v", err, errUndo)
		}
	})
}

// TestBumpAndWatch: each committed Bump raises the revision and notifies watchers, on PostgreSQL also those
// of other replicas. A rolled back one does neither.
func TestBumpAndWatch(t *testing.T) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(backend, func(t *testing.T) {
			ctx := context.Background()
			cfg := dbtest.Config(t, backend)
			here := dbtest.OpenConfig(t, cfg)
			there := here
			if backend == dbtest.Postgres {
				there = dbtest.OpenConfig(t, cfg)
			}
			notified := make(chan string, 10)
			stop := there.Watch(func(id scope.TenantID, name string) { notified <- string(id) + "/" + name })
			d := tenant(t, here, "t2")
			var after atomic.Int32
			for want := int64(1); want <= 3; want++ {
				err := d.Write(ctx, func(tx *db.Tx) error {
					tx.AfterCommit(func() { after.Add(1) })
					got, err := tx.Bump(ctx, "policies")
					if err == nil && got != want {
						t.Errorf("Bump = %d, want %d", got, want)
					}
					return err
				})
				errtest.Must(t, err)
				if got := wait(t, notified); got != "t2/policies" {
					t.Errorf("notification = %q, want t2/policies", got)
				}
			}
			_ = d.Write(ctx, func(tx *db.Tx) error {
				_, _ = tx.Bump(ctx, "policies")
				tx.AfterCommit(func() { after.Add(1) })
				return errUndo
			})
			stop()
			if n, err := d.Revision(ctx, "policies"); n != 3 || err != nil {
				t.Errorf("Revision = %d, %v, want 3", n, err)
			}
			if after.Load() != 3 || len(notified) != 0 {
				t.Errorf("%d calls after a commit and %d more notifications, want 3 and none", after.Load(), len(notified))
			}
		})
	}
}

// errUndo makes a transaction roll back.
var errUndo = errors.New("undo")

// wait returns the next notification.
func wait(t *testing.T, notified <-chan string) string {
	t.Helper()
	select {
	case s := <-notified:
		return s
	case <-time.After(30 * time.Second):
		t.Fatal("no notification")
		return ""
	}
}

// TestConcurrentWrites: concurrent transactions that fail, succeed and are cancelled leave exactly the rows
// of those that succeeded.
func TestConcurrentWrites(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		d := tenant(t, c, "default")
		put(t, d, "n", "0")
		var ok, refused atomic.Int64
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 25 {
					short, cancel := context.WithCancel(ctx)
					if i%7 == 3 {
						cancel()
					}
					err := d.Write(short, func(tx *db.Tx) error {
						if err := tx.Lock(ctx, "n"); err != nil {
							return err
						}
						if _, err := tx.Exec(ctx, `UPDATE settings SET value = CAST(CAST(value AS BIGINT) + 1 AS TEXT) WHERE name = $1`, "n"); err != nil {
							return err
						}
						if i%5 == 2 {
							return fmt.Errorf("refused")
						}
						_, err := tx.Exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2)`, fmt.Sprintf("%d.%d", w, i), "x")
						return err
					})
					cancel()
					if err == nil {
						ok.Add(1)
					} else {
						refused.Add(1)
					}
				}
			})
		}
		wg.Wait()
		list := settings(t, d)
		if int64(len(list)-1) != ok.Load() || list[len(list)-1].Value != fmt.Sprint(ok.Load()) {
			t.Errorf("%d rows, counter %s, want %d as acknowledged (%d refused)", len(list)-1, list[len(list)-1].Value, ok.Load(), refused.Load())
		}
		if refused.Load() < 8*5 {
			t.Errorf("%d transactions refused, want at least %d", refused.Load(), 8*5)
		}
	})
}

// TestDropTenant: a dropped tenant can be created again, without the old rows.
func TestDropTenant(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		put(t, tenant(t, c, "t2"), "old", "data")
		if err := c.CreateTenant(ctx, "t2"); !fault.Is(err, fault.Conflict) {
			t.Errorf("CreateTenant of a tenant that exists: got %v, want a conflict", err)
		}
		errtest.Must(t, c.DropTenant(ctx, "t2"))
		if _, err := c.Tenant(ctx, "t2"); !fault.Is(err, fault.NotFound) {
			t.Errorf("Tenant after the drop: got %v, want not found", err)
		}
		if ids, err := c.Tenants(ctx); err != nil || len(ids) != 1 {
			t.Errorf("Tenants after the drop = %v, %v, want 1", ids, err)
		}
		errtest.Must(t, c.CreateTenant(ctx, "t2"))
		if got := settings(t, tenant(t, c, "t2")); len(got) != 0 {
			t.Errorf("settings of the new t2 = %v, want none", got)
		}
		errtest.Must(t, c.DropTenant(ctx, "t2"))
	})
}

// TestHealth: the health of an open store is up, with its connections.
func TestHealth(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		h := c.Health(context.Background())
		if h.Status != "up" || h.Connections < 1 {
			t.Errorf("Health = %+v, want up with a connection", h)
		}
	})
}
