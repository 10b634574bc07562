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
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type named struct {
	Name  string `db:"name"`
	Value string `db:"value"`
}

func tenant(t testing.TB, c *db.Cluster, id scope.TenantID) *db.DB {
	t.Helper()
	d, err := c.Tenant(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func put(t testing.TB, d *db.DB, name, value string) {
	t.Helper()
	err := d.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `INSERT INTO settings (name, value) VALUES ($1, $2)`, name, value)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func settings(t testing.TB, d *db.DB) []named {
	t.Helper()
	list, err := db.ReadStore(context.Background(), d, func(tx *db.Tx) ([]named, error) {
		return db.All[named](context.Background(), tx, `SELECT * FROM settings ORDER BY name`)
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

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
						t.Errorf("got %v, want %q", got, want)
					}
				}
			})
		}
		wg.Wait()
	})
}

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
			t.Fatalf("got %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = d.Write(ctx, func(tx *db.Tx) error {
				_, _ = tx.Exec(ctx, `UPDATE settings SET value = $1`, "3")
				panic("a bug")
			})
		}()
		if diff := cmp.Diff([]named{{"kept", "1"}}, settings(t, d)); diff != "" {
			t.Error(diff)
		}
		if err := d.Read(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM settings`)
			return err
		}); err == nil {
			t.Error("a read transaction may write")
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
				t.Errorf("got %v, want a conflict", err)
			}
			if _, err := tx.Exec(ctx, insert, "c", "3"); err == nil {
				t.Error("the transaction continues after an error")
			}
			return nil
		})
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v, want the conflict", err)
		}
		if got := settings(t, d); len(got) != 1 {
			t.Errorf("got %v", got)
		}
	})
}

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
			t.Errorf("no rows: %v", err)
		}
		if err := read(`SELECT * FROM settings WHERE name = $1`, "nul\x00"); !fault.Is(err, fault.Invalid) {
			t.Errorf("NUL: %v", err)
		}
		put(t, d, "a", "1")
		if err := read(`SELECT name AS nmae FROM settings`); err == nil {
			t.Error("an unknown column was accepted")
		}
		if _, err := c.Tenant(ctx, "nobody"); !fault.Is(err, fault.NotFound) {
			t.Errorf("unknown tenant: %v", err)
		}
		for _, id := range []scope.TenantID{"", "../x", "A", "a_b", "-a", "a\"; DROP SCHEMA x"} {
			if _, err := c.Tenant(ctx, id); !fault.Is(err, fault.NotFound) {
				t.Errorf("tenant %q: %v", id, err)
			}
		}
		done, cancel := context.WithCancel(ctx)
		cancel()
		if err := d.Write(done, func(*db.Tx) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

type color string

type inner struct {
	Flag *bool `json:"flag"`
}

type embedded struct {
	Count uint32 `db:"count"`
}

type wide struct {
	embedded
	ID      int64             `db:"id"`
	Color   color             `db:"color"`
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

func TestMapping(t *testing.T) {
	yes, note := true, "note"
	made := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	want := wide{
		embedded: embedded{7}, ID: 1, Color: "rød", On: true, Ratio: 1.5, Made: made, Ended: &made, Note: &note,
		Tags: []string{"a", `b"<`}, None: []string{}, Labels: map[string]string{}, Inner: inner{&yes},
		Any: map[string]any{"x": 1.0}, Raw: json.RawMessage(`{"b":1,"a":2}`), Bytes: []byte{0, 1, 255}, Addr: netip.MustParseAddr("::1"),
	}
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		create := `CREATE TABLE wide (count BIGINT, id BIGINT, color TEXT, on_ BOOLEAN, ratio DOUBLE PRECISION, made BIGINT, never BIGINT,
			ended BIGINT, note TEXT, missing TEXT, tags TEXT, none TEXT, labels TEXT, inner_ TEXT, any_ TEXT, raw TEXT, bytes BYTEA, addr TEXT)`
		insert := `INSERT INTO wide VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18) RETURNING *`
		err := tenant(t, c, "default").Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, create); err != nil {
				return err
			}
			var none []string
			var labels map[string]string
			got, err := db.One[wide](ctx, tx, insert, want.Count, want.ID, want.Color, want.On, want.Ratio, want.Made, want.Never, want.Ended,
				want.Note, want.Missing, want.Tags, none, labels, want.Inner, want.Any, want.Raw, want.Bytes, want.Addr)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(wide{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
			if err != nil {
				return err
			}
			sum, err := db.One[int64](ctx, tx, `SELECT sum(count) FROM wide`)
			if err != nil || sum != 7 {
				t.Errorf("sum: %d, %v", sum, err)
			}
			mean, err := db.One[float64](ctx, tx, `SELECT avg(count) FROM wide`)
			if err != nil || mean != 7 {
				t.Errorf("mean: %f, %v", mean, err)
			}
			empty, err := db.All[string](ctx, tx, `SELECT color FROM wide WHERE on_ = FALSE`)
			if err != nil || empty == nil || len(empty) != 0 {
				t.Errorf("empty: %v, %v", empty, err)
			}
			if _, err = db.One[time.Time](ctx, tx, `SELECT missing FROM wide`); err == nil {
				t.Error("NULL fits a time")
			}
			return errors.New("undo")
		})
		if err == nil {
			t.Error("no error")
		}
	})
}

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
			heard := make(chan string, 10)
			stop := there.Watch(func(id scope.TenantID, name string) { heard <- string(id) + "/" + name })
			d := tenant(t, here, "t2")
			var after atomic.Int32
			for want := int64(1); want <= 3; want++ {
				err := d.Write(ctx, func(tx *db.Tx) error {
					tx.AfterCommit(func() { after.Add(1) })
					got, err := tx.Bump(ctx, "policies")
					if err == nil && got != want {
						t.Errorf("got %d, want %d", got, want)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if got := wait(t, heard); got != "t2/policies" {
					t.Errorf("notified of %q", got)
				}
			}
			_ = d.Write(ctx, func(tx *db.Tx) error {
				_, _ = tx.Bump(ctx, "policies")
				tx.AfterCommit(func() { after.Add(1) })
				return errors.New("undo")
			})
			stop()
			if n, err := d.Revision(ctx, "policies"); n != 3 || err != nil {
				t.Errorf("revision %d, %v", n, err)
			}
			if after.Load() != 3 || len(heard) != 0 {
				t.Errorf("%d after commit, %d notifications", after.Load(), len(heard))
			}
		})
	}
}

func wait(t *testing.T, heard <-chan string) string {
	t.Helper()
	select {
	case s := <-heard:
		return s
	case <-time.After(30 * time.Second):
		t.Fatal("no notification")
		return ""
	}
}

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
			t.Errorf("%d rows, counter %s, acknowledged %d, refused %d", len(list)-1, list[len(list)-1].Value, ok.Load(), refused.Load())
		}
		if refused.Load() < 8*5 {
			t.Errorf("only %d refused", refused.Load())
		}
	})
}

func TestDropTenant(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		put(t, tenant(t, c, "t2"), "old", "data")
		if err := c.CreateTenant(ctx, "t2"); !fault.Is(err, fault.Conflict) {
			t.Errorf("a second t2: %v", err)
		}
		if err := c.DropTenant(ctx, "t2"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Tenant(ctx, "t2"); !fault.Is(err, fault.NotFound) {
			t.Errorf("after the drop: %v", err)
		}
		if ids, err := c.Tenants(ctx); err != nil || len(ids) != 1 {
			t.Errorf("tenants %v, %v", ids, err)
		}
		if err := c.CreateTenant(ctx, "t2"); err != nil {
			t.Fatal(err)
		}
		if got := settings(t, tenant(t, c, "t2")); len(got) != 0 {
			t.Errorf("the new t2 has %v", got)
		}
		if err := c.DropTenant(ctx, "t2"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHealth(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		h := c.Health(context.Background())
		if h.Status != "up" || h.Connections < 1 {
			t.Errorf("%+v", h)
		}
	})
}
