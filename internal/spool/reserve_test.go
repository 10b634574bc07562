package spool

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

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
	path := filepath.Join(dir, "stuffing")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1 << 20; n > 0; {
		if _, err := f.Write(make([]byte, n)); err != nil {
			n /= 2
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReserve: on a full disk, records are accepted until the reserve is used up, less important
// records do not use it, and the log works normally again when there is room.
func TestReserve(t *testing.T) {
	dir := smallDisk(t, "16m")
	r, err := ReserveSpace(dir, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if s := r.Check(); s.Held != 4<<20 || s.Low || s.InUse {
		t.Fatalf("an empty disk: %+v", s)
	}
	l := open(t, Config{Dir: filepath.Join(dir, "log"), Reserve: r, SegmentBytes: 1 << 20})
	add(t, l, "before")
	free := fillDisk(t, dir)
	if s := r.Check(); !s.Low {
		t.Errorf("a full disk: %+v", s)
	}
	rec := make([]byte, 10_000)
	rec[0] = 1
	kept := 0
	for ; ; kept++ {
		if err := l.Append(rec); err != nil {
			if !fault.Is(err, fault.StorageFull) {
				t.Fatal(err)
			}
			break
		}
		if kept == 50 {
			if err := l.AppendIfRoom(rec); !fault.Is(err, fault.StorageFull) {
				t.Errorf("what matters less on a full disk: %v", err)
			}
		}
	}
	if size := kept * len(rec); size < 3<<20 {
		t.Errorf("only %d bytes found room in the reserve", size)
	}
	if s := l.Stats(); !s.Refuses() || s.Refused != 2 {
		t.Errorf("the reserve is used up: %+v", s)
	}
	free()
	tick := time.NewTicker(5 * time.Millisecond) // the log tries the disk itself
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); l.Stats().Refuses() && time.Now().Before(deadline); {
		<-tick.C
	}
	if s := l.Stats(); s.Refuses() {
		t.Errorf("with room again: %+v", s)
	}
	if s := r.Check(); s.Held != 4<<20 || s.Low || s.InUse {
		t.Errorf("with room again: %+v", s)
	}
	if err := l.AppendIfRoom(rec); err != nil {
		t.Error(err)
	}
}

// TestReserveSurvives: a process that starts on a full disk has the reserve of the previous one.
func TestReserveSurvives(t *testing.T) {
	dir := smallDisk(t, "8m")
	r, err := ReserveSpace(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	fillDisk(t, dir)
	if r, err = ReserveSpace(dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if s := r.Stats(); s.Held < 512<<10 || !s.Low {
		t.Errorf("%+v", s)
	}
	if none, err := ReserveSpace(dir, 0); none != nil || err != nil || none.InUse() || none.Release() {
		t.Error("a reserve of nothing")
	}
}

// TestCeiling: less important records leave the last tenth of the limit to the others, and refused
// records are counted.
func TestCeiling(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir(), MaxBytes: 100 * frameSize(100)})
	rec := make([]byte, 100)
	rec[0] = 1
	kept := map[bool]int{}
	for range 200 {
		if l.AppendIfRoom(rec) == nil {
			kept[false]++
		}
	}
	if s := l.Stats(); !s.Filling() || s.Full || s.Refused != 110 {
		t.Errorf("%d kept: %+v", kept[false], s)
	}
	for range 50 {
		if l.Append(rec) == nil {
			kept[true]++
		}
	}
	if s := l.Stats(); kept[false] != 90 || kept[true] != 10 || !s.Full || s.Refused != 150 {
		t.Errorf("%v kept: %+v", kept, s)
	}
}
