package spool

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// smallDisk mounts a file system of about that many bytes.
func smallDisk(t *testing.T, bytes string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+bytes); err != nil {
		if os.Getenv("GATEHOUSE_TEST_REQUIRE") == "all" && os.Geteuid() == 0 {
			t.Fatalf("a small disk is required: %v", err)
		}
		t.Skipf("no small disk can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fillDisk fills the disk of a folder completely.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	errtest.Must(t, err)
	for n := 1 << 20; n > 0; {
		if _, err := f.Write(make([]byte, n)); err != nil {
			n /= 2
		}
	}
	errtest.Must(t, f.Close())
	return func() {
		errtest.Must(t, os.Remove(path))
	}
}

// TestReserve checks that, on a full disk, records are accepted until the reserve is used up, less important
// records do not use it, and the log works normally again when there is room.
func TestReserve(t *testing.T) {
	dir := smallDisk(t, "16m")
	r, err := ReserveSpace(dir, 4<<20)
	errtest.Must(t, err)
	defer r.Close()
	if s := r.Check(); s.Held != 4<<20 || s.Low || s.InUse {
		t.Fatalf("an empty disk: %+v, want 4 MiB held and not low", s)
	}
	l := open(t, Config{Dir: filepath.Join(dir, "log"), Reserve: r, SegmentBytes: 1 << 20})
	add(t, l, "before")
	free := fillDisk(t, dir)
	if s := r.Check(); !s.Low {
		t.Errorf("a full disk: %+v, want it low", s)
	}
	rec := make([]byte, 10_000)
	rec[0] = 1
	accepted := 0
	for ; ; accepted++ {
		if err := l.Append(rec); err != nil {
			if !fault.Is(err, fault.StorageFull) {
				t.Fatal(err)
			}
			break
		}
		if accepted == 50 {
			if err := l.AppendIfRoom(rec); !fault.Is(err, fault.StorageFull) {
				t.Errorf("a less important record on a full disk: %v, want StorageFull", err)
			}
		}
	}
	if size := accepted * len(rec); size < 3<<20 {
		t.Errorf("the reserve has room for %d bytes, want at least 3 MiB", size)
	}
	if s := l.Stats(); !s.Refuses() || s.Refused != 2 {
		t.Errorf("without a reserve: %+v, want 2 refused", s)
	}
	free()
	tick := time.NewTicker(5 * time.Millisecond) // the log tries the disk itself
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); l.Stats().Refuses() && time.Now().Before(deadline); {
		<-tick.C
	}
	if s := l.Stats(); s.Refuses() {
		t.Errorf("with room again: %+v, want records accepted", s)
	}
	if s := r.Check(); s.Held != 4<<20 || s.Low || s.InUse {
		t.Errorf("with room again: %+v, want 4 MiB held and not low", s)
	}
	if err := l.AppendIfRoom(rec); err != nil {
		t.Errorf("a less important record with room again: %v", err)
	}
}

// TestReserveSurvives checks that a process that starts on a full disk has the reserve of the previous one.
func TestReserveSurvives(t *testing.T) {
	dir := smallDisk(t, "8m")
	r, err := ReserveSpace(dir, 1<<20)
	errtest.Must(t, err)
	_ = r.Close()
	fillDisk(t, dir)
	if r, err = ReserveSpace(dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if s := r.Stats(); s.Held < 512<<10 || !s.Low {
		t.Errorf("the reserve of the next process is %+v, want 512 KiB at least, and low", s)
	}
	if none, err := ReserveSpace(dir, 0); none != nil || err != nil || none.InUse() || none.Release() {
		t.Error("HoldBack(0) returns a reserve, want none")
	}
}

// TestCeiling checks that less important records leave the last tenth of the limit to the others, and refused
// records are counted.
func TestCeiling(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir(), MaxBytes: 100 * frameSize(100)})
	rec := make([]byte, 100)
	rec[0] = 1
	accepted := map[bool]int{}
	for range 200 {
		if l.AppendIfRoom(rec) == nil {
			accepted[false]++
		}
	}
	if s := l.Stats(); !s.Filling() || s.Full || s.Refused != 110 {
		t.Errorf("%d accepted, %+v, want 110 refused", accepted[false], s)
	}
	for range 50 {
		if l.Append(rec) == nil {
			accepted[true]++
		}
	}
	if s := l.Stats(); accepted[false] != 90 || accepted[true] != 10 || !s.Full || s.Refused != 150 {
		t.Errorf("%v accepted, %+v, want 90 and 10, and 150 refused", accepted, s)
	}
}
