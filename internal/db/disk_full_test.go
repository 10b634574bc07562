package db_test

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestWritesAskForRoom: a write that finds the disk full is run once more where room
// was made, and a reading or another failure is not.
func TestWritesAskForRoom(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	full := fault.New(fault.StorageFull, "storage_full", "the disk is full")
	asked, has := 0, true
	c.OnDiskFull(func() bool { asked++; return has })
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
	if runs, err := write(1, full); runs != 2 || err != nil || asked != 1 {
		t.Errorf("full once: %d runs, asked %d times, %v", runs, asked, err)
	}
	if runs, err := write(9, full); runs != 2 || !fault.Is(err, fault.StorageFull) {
		t.Errorf("full for good: %d runs, %v", runs, err)
	}
	has = false
	if runs, err := write(1, full); runs != 1 || !fault.Is(err, fault.StorageFull) || asked != 3 {
		t.Errorf("no room: %d runs, asked %d times, %v", runs, asked, err)
	}
	if runs, _ := write(1, fault.New(fault.Conflict, "x", "y")); runs != 1 || asked != 3 {
		t.Errorf("a conflict: %d runs, asked %d times", runs, asked)
	}
	runs := 0
	_ = c.Read(context.Background(), scope.DefaultTenant, func(*db.Tx) error { runs++; return full })
	if runs != 1 || asked != 3 {
		t.Errorf("a reading: %d runs, asked %d times", runs, asked)
	}
}
