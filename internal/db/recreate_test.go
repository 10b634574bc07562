package db_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// readAtOnce runs n reads of a tenant that all have a connection at the same time.
func readAtOnce(t *testing.T, c *db.Cluster, id scope.TenantID, n int) {
	t.Helper()
	var met, running sync.WaitGroup
	met.Add(n)
	for range n {
		running.Go(func() {
			once := sync.OnceFunc(met.Done)
			defer once()
			err := c.Read(context.Background(), id, func(tx *db.Tx) error {
				_, err := db.All[string](context.Background(), tx, `SELECT name FROM settings`)
				once()
				met.Wait()
				return err
			})
			if err != nil {
				t.Errorf("Read: %v", err)
			}
		})
	}
	running.Wait()
}

// TestRecreatedTenant: users of a dropped tenant's store do not affect a new store of the same
// name: neither a connection with the role of the old one, nor a reader of the old file.
func TestRecreatedTenant(t *testing.T) {
	for _, kind := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(kind, func(t *testing.T) {
			ctx := context.Background()
			c := dbtest.OpenConfig(t, dbtest.Config(t, kind))
			const id = "again" // a role of this name is in no other test's database
			for n := range 3 {
				errtest.Must(t, c.CreateTenant(ctx, id))
				readAtOnce(t, c, id, 4)
				store(t, tenant(t, c, id), fmt.Sprint(n), "new")
				if got := stored(t, tenant(t, c, id)); len(got) != 1 {
					t.Errorf("settings of the new store = %v, want 1", got)
				}
				errtest.Must(t, c.DropTenant(ctx, id))
			}
		})
	}
}

// TestDropWhileRead: a reader of a dropped file finishes undisturbed, and only then is a
// new file of the same name created. SQLite deletes the WAL file by name when the last connection
// closes.
func TestDropWhileRead(t *testing.T) {
	ctx := context.Background()
	cfg := dbtest.Config(t, dbtest.SQLite)
	c := dbtest.OpenConfig(t, cfg)
	store(t, tenant(t, c, dbtest.Second), "a", "old")
	var dropped, read sync.WaitGroup
	dropped.Add(1)
	reads := make(chan struct{})
	read.Go(func() {
		err := c.Read(ctx, dbtest.Second, func(tx *db.Tx) error {
			if _, err := db.One[string](ctx, tx, `SELECT value FROM settings`); err != nil {
				return err
			}
			close(reads)
			dropped.Wait()
			got, err := db.One[string](ctx, tx, `SELECT value FROM settings`)
			if err == nil && got != "old" {
				err = fmt.Errorf("the value is %q, want old", got)
			}
			return err
		})
		if err != nil {
			t.Errorf("read of the dropped file: %v", err)
		}
	})
	<-reads
	errtest.Must(t, c.DropTenant(ctx, dbtest.Second))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := c.CreateTenant(short, dbtest.Second); err == nil {
		t.Error("CreateTenant succeeds while the old store is read, want an error")
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "tenants", string(dbtest.Second)+".db")); !os.IsNotExist(err) {
		t.Errorf("stat of the new file while the old one is read: got %v, want none", err)
	}
	dropped.Done()
	read.Wait()
	if err := c.CreateTenant(ctx, dbtest.Second); err != nil && !fault.Is(err, fault.Conflict) {
		t.Fatal(err)
	}
	store(t, tenant(t, c, dbtest.Second), "b", "new")
	readAtOnce(t, c, dbtest.Second, 4)
	if got := stored(t, tenant(t, c, dbtest.Second)); len(got) != 1 || got["b"] != "new" {
		t.Errorf("settings of the new store = %v, want only b", got)
	}
}

// TestStaleStoreAfterMove: a transaction that uses a store that no longer exists runs again in the
// current one, even if this replica was not notified of the move. The old store is not created
// again.
func TestStaleStoreAfterMove(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(kind, func(t *testing.T) {
			c := dbtest.OpenConfig(t, dbtest.Config(t, kind))
			was := tenant(t, c, dbtest.Second)
			store(t, was, "a", "old")
			name := db.NewStore("own/eu-west-1")
			to, err := c.At(dbtest.Second, name)
			if err == nil {
				err = to.Provision(ctx)
			}
			errtest.Must(t, err)
			store(t, to, "a", "new")
			from, err := c.At(dbtest.Second, "")
			errtest.Must(t, err)
			err = c.System().Write(ctx, func(tx *db.Tx) error { // without a notification
				_, err := tx.Exec(ctx, `UPDATE tenants SET store = $2 WHERE id = $1`, dbtest.Second, name)
				return err
			})
			if err == nil {
				err = from.Discard(ctx, func(*db.Tx) error { return nil })
			}
			errtest.Must(t, err)
			if got := stored(t, was); got["a"] != "new" {
				t.Errorf("settings read with the stale handle = %v, want a = new", got)
			}
			store(t, was, "b", "new")
			stores, err := c.StoresOf(ctx, dbtest.Second)
			if err != nil || len(stores) != 1 || stores[0] != name {
				t.Errorf("StoresOf = %q, %v, want %s", stores, err, name)
			}
		})
	}
}
