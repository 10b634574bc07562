package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestIdleFilesAreClosed: only some files of many tenants stay open, a file in use is never closed,
// and handles stay valid.
func TestIdleFilesAreClosed(t *testing.T) {
	ctx := context.Background()
	cfg := dbtest.Config(t, dbtest.SQLite)
	cfg.MaxOpenTenants, cfg.Readers = 2, 1
	c := dbtest.OpenConfig(t, cfg)
	var stores []*db.DB
	for i := range 8 {
		id := scope.TenantID(fmt.Sprintf("tenant%d", i))
		errtest.Must(t, c.CreateTenant(ctx, id))
		stores = append(stores, tenant(t, c, id))
	}
	hold, held := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := stores[0].Write(ctx, func(tx *db.Tx) error {
			close(held)
			<-hold
			_, err := tx.Exec(ctx, `INSERT INTO settings (name, value) VALUES ('held', 'x')`)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-held
	for round := range 5 {
		for i, d := range stores[1:] {
			wg.Go(func() {
				put(t, d, fmt.Sprint(round), "x")
				if got := settings(t, d); len(got) == 0 {
					t.Errorf("tenant %d has no settings", i+1)
				}
			})
		}
	}
	close(hold)
	wg.Wait()
	if n := c.Health(ctx).Connections; n > 2*2+2 {
		t.Errorf("%d connections stay open, want at most %d", n, 2*2+2)
	}
	for i, d := range stores {
		want := 5
		if i == 0 {
			want = 1
		}
		if got := settings(t, d); len(got) != want {
			t.Errorf("tenant %d has %d settings, want %d", i, len(got), want)
		}
	}
}

// TestFilesOfASweepAreClosed: a sweep over all tenants leaves few files open.
func TestFilesOfASweepAreClosed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := dbtest.OpenConfig(t, dbtest.Config(t, dbtest.SQLite))
	const tenants, atOnce, atRest = 48, 32, 16 // of files that were opened just now, and that nobody uses
	for i := range tenants {
		id := scope.TenantID(fmt.Sprintf("tenant%d", i))
		errtest.Must(t, c.CreateTenant(ctx, id))
		put(t, tenant(t, c, id), "a", "x")
	}
	most := func(files int) int { return 2*files + 5 } // each has a writer and a reader here; the system store has some
	if n := c.Health(ctx).Connections; n > most(atOnce) {
		t.Errorf("%d connections are open after the sweep, want at most %d", n, most(atOnce))
	}
	until := time.After(time.Minute)
	for c.Health(ctx).Connections > most(atRest) {
		select {
		case <-until:
			t.Fatalf("%d connections stay open, want at most %d", c.Health(ctx).Connections, most(atRest))
		case <-time.After(50 * time.Millisecond):
		}
	}
	for i := range tenants {
		if got := settings(t, tenant(t, c, scope.TenantID(fmt.Sprintf("tenant%d", i)))); len(got) != 1 {
			t.Errorf("tenant %d has %d settings, want 1", i, len(got))
		}
	}
}

// TestGroupMembersFailAlone: if one of the transactions that share a commit fails, only that one is
// rolled back.
func TestGroupMembersFailAlone(t *testing.T) {
	ctx := context.Background()
	d := tenant(t, dbtest.Open(t, dbtest.SQLite), "default")
	put(t, d, "taken", "x")
	const writers = 20
	running, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // it holds the turn while the others queue
		_ = d.Write(ctx, func(*db.Tx) error {
			close(running)
			<-goOn
			return errUndo
		})
	})
	<-running
	errs := make([]error, writers)
	var queued sync.WaitGroup
	queued.Add(writers)
	for i := range writers {
		wg.Go(func() {
			queued.Done()
			name := fmt.Sprint(i)
			if i%4 == 1 {
				name = "taken"
			}
			errs[i] = d.Write(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, 'x')`, name)
				return err
			})
		})
	}
	queued.Wait()
	close(goOn)
	wg.Wait()
	for i, err := range errs {
		if (err != nil) != (i%4 == 1) || (err != nil && !fault.Is(err, fault.Conflict)) {
			t.Errorf("writer %d: got %v, want a conflict only for the name that is taken", i, err)
		}
	}
	if got := settings(t, d); len(got) != 1+writers-writers/4 {
		t.Errorf("%d settings, want %d", len(got), 1+writers-writers/4)
	}
}

// TestSnapshotReads: a read keeps its snapshot while others write.
func TestSnapshotReads(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		d := tenant(t, c, "default")
		put(t, d, "a", "1")
		err := d.Read(ctx, func(tx *db.Tx) error {
			before, err := db.All[named](ctx, tx, `SELECT * FROM settings`)
			if err != nil {
				return err
			}
			put(t, d, "b", "2")
			after, err := db.All[named](ctx, tx, `SELECT * FROM settings`)
			if len(before) != 1 || len(after) != 1 {
				t.Errorf("%d rows in the snapshot, then %d, want 1", len(before), len(after))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if got := settings(t, d); len(got) != 2 {
			t.Errorf("settings after the read = %v, want 2", got)
		}
	})
}

// TestCancelledQuery: a long query ends with its context, and the connection can be used again.
func TestCancelledQuery(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		d := tenant(t, c, "default")
		for range 6 {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			start := time.Now()
			err := d.Read(ctx, func(tx *db.Tx) error {
				_, err := db.One[int64](ctx, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000) SELECT count(*) FROM n`)
				return err
			})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 5*time.Second {
				t.Errorf("a long query with a deadline: got %v after %v, want context.DeadlineExceeded within 5 s", err, time.Since(start))
			}
		}
		settings(t, d)
		put(t, d, "a", "1")
	})
}

// TestDamagedFile: a file that is not a database, or is missing, causes an error and is not
// changed.
func TestDamagedFile(t *testing.T) {
	ctx := context.Background()
	cfg := dbtest.Config(t, dbtest.SQLite)
	path := filepath.Join(cfg.Dir, "tenants", "t2.db")
	errtest.Must(t, os.WriteFile(path, []byte("this is no database at all, is it?"), 0o600))
	c := dbtest.OpenConfig(t, cfg)
	if _, err := c.Tenant(ctx, "t2"); err == nil {
		t.Error("Tenant opens a damaged file, want an error")
	}
	if data, _ := os.ReadFile(path); string(data[:4]) != "this" {
		t.Errorf("the damaged file now starts with %q", data)
	}
}

// TestFullDisk: a write that finds the disk full fails with storage_full and changes nothing.
func TestFullDisk(t *testing.T) {
	ctx := context.Background()
	d := tenant(t, dbtest.Open(t, dbtest.SQLite), "default")
	err := d.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `PRAGMA max_page_count = 1`); err != nil { // a full disk, for SQLite
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO settings (name, value) VALUES ('big', $1)`, strings.Repeat("x", 1<<20))
		return err
	})
	if !fault.Is(err, fault.StorageFull) {
		t.Errorf("Write = %v, want storage_full", err)
	}
	if got := settings(t, d); len(got) != 0 {
		t.Errorf("settings = %d, want none", len(got))
	}
}

func BenchmarkStore(b *testing.B) {
	ctx := context.Background()
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		d := tenant(b, dbtest.Open(b, backend), "default")
		put(b, d, "one", "value")
		get := func() {
			err := d.Read(ctx, func(tx *db.Tx) error {
				_, err := db.One[named](ctx, tx, `SELECT * FROM settings WHERE name = $1`, "one")
				return err
			})
			if err != nil {
				b.Error(err)
			}
		}
		var n atomic.Int64 // SQLite writes nothing for a row that stays the same
		update := func() {
			err := d.Write(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, `UPDATE settings SET value = $2 WHERE name = $1`, "one", fmt.Sprint(n.Add(1)))
				return err
			})
			if err != nil {
				b.Error(err)
			}
		}
		b.Run(backend+"/get", func(b *testing.B) {
			for range b.N {
				get()
			}
		})
		b.Run(backend+"/get-in-one-transaction", func(b *testing.B) {
			_ = d.Read(ctx, func(tx *db.Tx) error {
				for range b.N {
					if _, err := db.One[named](ctx, tx, `SELECT * FROM settings WHERE name = $1`, "one"); err != nil {
						b.Error(err)
					}
				}
				return nil
			})
		})
		b.Run(backend+"/write", func(b *testing.B) {
			for range b.N {
				update()
			}
		})
		b.Run(backend+"/write-32-callers", func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					update()
				}
			})
		})
		b.Run(backend+"/500-rows", func(b *testing.B) {
			for range b.N {
				err := d.Write(ctx, func(tx *db.Tx) error {
					for i := range 500 {
						if _, err := tx.Exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, fmt.Sprint(i), fmt.Sprint(n.Add(1))); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
}
