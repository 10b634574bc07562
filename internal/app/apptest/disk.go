package apptest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// SmallDisk mounts a file system of a size such as "64m" and returns its path. If that is not
// permitted, the test is skipped; with GATEHOUSE_TEST_REQUIRE=all, it fails for root.
func SmallDisk(t testing.TB, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		if os.Getenv("GATEHOUSE_TEST_REQUIRE") == "all" && os.Geteuid() == 0 {
			t.Fatalf("a small disk is required: %v", err)
		}
		t.Skipf("no small disk can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// smallReserve sets the disk reserve of a process to 1 MiB. With the default, a process warns if
// its disk has less than 64 MiB free, and most tests must not depend on the free space of the
// machine.
func smallReserve(name string) string { return name + "=1048576" }

// FillDisk fills the disk of a folder completely. It can be called again to fill space that was freed.
// free removes what it wrote.
func FillDisk(t testing.TB, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "stuffing")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
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
