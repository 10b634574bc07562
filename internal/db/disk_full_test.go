package db_test

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestFreeDiskAndRetry: a write that finds the disk full runs again if space was freed. A read, or
// another failure, does not.
func TestFreeDiskAndRetry(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	full := fault.New(fault.StorageFull, "storage_full", "the disk is full")
	freed, has := 0, true
	c.OnDiskFull(func() bool { freed++; return has })
	write := func(failures int, err error) (int, error) {
		runs := 0
		got := c.Write(context.Background(), scope.DefaultTenant, func(*db.Tx) error {
			if runs++; runs <= failures {
				return err
			}
			return nil
		})
		return runs, got
	}
	if runs, err := write(1, full); runs != 2 || err != nil || freed != 1 {
		t.Errorf("the disk is full once: %d runs, freed %d times, %v, want 2 runs, freed once", runs, freed, err)
	}
	if runs, err := write(9, full); runs != 2 || !fault.Is(err, fault.StorageFull) {
		t.Errorf("the disk stays full: %d runs, %v, want 2 and storage_full", runs, err)
	}
	has = false
	if runs, err := write(1, full); runs != 1 || !fault.Is(err, fault.StorageFull) || freed != 3 {
		t.Errorf("nothing can be freed: %d runs, freed %d times, %v, want 1 run and storage_full", runs, freed, err)
	}
	if runs, _ := write(1, fault.New(fault.Conflict, "x", "y")); runs != 1 || freed != 3 {
		t.Errorf("a conflict: %d runs, freed %d times, want 1 run and no more freeing", runs, freed)
	}
	runs := 0
	_ = c.Read(context.Background(), scope.DefaultTenant, func(*db.Tx) error { runs++; return full })
	if runs != 1 || freed != 3 {
		t.Errorf("a read on a full disk: %d runs, freed %d times, want 1 run and no more freeing", runs, freed)
	}
}
