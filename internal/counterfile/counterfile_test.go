package counterfile

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// open opens a book that is closed when the test ends.
func open(t testing.TB, dir string) *Dir {
	t.Helper()
	b, err := Open(dir, slog.New(slog.DiscardHandler))
	errtest.Must(t, err)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func start(t testing.TB, b *Dir, key string) *Counter {
	t.Helper()
	c, err := b.New(key)
	errtest.Must(t, err)
	return c
}

// counts returns the counts by key.
func counts(list []*Counter) map[string]int64 {
	out := map[string]int64{}
	for _, c := range list {
		out[c.Key] += c.Count()
	}
	return out
}

func TestCountsOutliveTheirProcess(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	want := map[string]int64{"a": 8000, "b": 1, strings.Repeat("k", MaxKey): 3}
	a := start(t, first, "a")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				a.Add(1)
			}
		})
	}
	all.Wait()
	for key, n := range want {
		if key != "a" {
			start(t, first, key).Add(n)
		}
	}
	gone := start(t, first, "freed")
	gone.Add(5)
	first.Free(gone)

	second := open(t, dir) // the first is not closed, as if its process had been killed
	left := second.Leftover()
	if got := counts(left); !maps.Equal(got, want) {
		t.Errorf("an earlier process left %v, want %v", got, want)
	}
	for _, c := range left {
		if c.Key == "a" && c.Source != a.Source {
			t.Errorf("the source was %d and is %d", a.Source, c.Source)
		}
	}
	if again := second.Leftover(); len(again) != 0 {
		t.Errorf("%d counters are left a second time", len(again))
	}
}

func TestASlotIsUsedAgainFromZero(t *testing.T) {
	b := open(t, t.TempDir())
	sources := map[int64]bool{}
	for range 3 * slots {
		c := start(t, b, "key")
		if c.Count() != 0 || sources[c.Source] {
			t.Fatalf("a new counter has the count %d and the source %d", c.Count(), c.Source)
		}
		sources[c.Source] = true
		c.Add(7)
		b.Free(c)
	}
	if len(b.files) != 1 {
		t.Errorf("one counter at a time took %d files", len(b.files))
	}
	for range slots + 1 {
		start(t, b, "key").Add(1)
	}
	if len(b.files) != 2 {
		t.Errorf("%d counters took %d files", slots+1, len(b.files))
	}
}

// TestATornSlotIsFree: a slot with a wrong byte, as after a power cut, is not a counter.
func TestATornSlotIsFree(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	start(t, b, "key").Add(1)
	names, err := filepath.Glob(filepath.Join(dir, "*.tally"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	good, err := os.ReadFile(names[0])
	errtest.Must(t, err)
	last := len(good) - slotSize // the slot that is used first
	for i := sourceAt; i < keyAt+len("key"); i++ {
		bad := slices.Clone(good)
		bad[last+i] ^= 0xff
		other := t.TempDir()
		errtest.Must(t, os.WriteFile(filepath.Join(other, "0.tally"), bad, 0o600))
		if left := open(t, other).Leftover(); len(left) != 0 {
			t.Errorf("with byte %d wrong, %q is left", i, left[0].Key)
		}
	}
}

func TestAKeyMustFit(t *testing.T) {
	b := open(t, t.TempDir())
	for _, key := range []string{"", strings.Repeat("k", MaxKey+1)} {
		c, err := b.New(key)
		if err == nil {
			t.Errorf("a key of %d bytes was taken", len(key))
		}
		c.Add(2)
		if c.Count() != 2 {
			t.Errorf("the counter beside the book has %d", c.Count())
		}
		b.Free(c)
	}
	if _, err := Open(filepath.Join(dirWithout(t), "file", "below"), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a book was opened below a file")
	}
}

// dirWithout returns a directory in which "file" is not a directory.
func dirWithout(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	errtest.Must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))
	return dir
}

// TestAFileOfAnotherSizeIsMended: a file that is too short or too long gives its readable
// counters, and has the right size afterwards. A directory in its place stops nothing.
func TestAFileOfAnotherSizeIsMended(t *testing.T) {
	for _, size := range []int{0, 1, 100, slotSize, 5 * slotSize, 700*slotSize + 30, slots*slotSize - 1, slots*slotSize + 1, 3 * slots * slotSize} {
		dir := t.TempDir()
		b := open(t, dir)
		for range slots {
			start(t, b, "key").Add(2)
		}
		errtest.Must(t, os.Truncate(b.files[0].name, int64(size)))
		errtest.Must(t, os.Mkdir(filepath.Join(dir, "other.tally"), 0o700))
		again := open(t, dir)
		left := again.Leftover()
		if want := min((size+slotSize-keyAt-len("key"))/slotSize, slots); len(left) != want || counts(left)["key"] != int64(2*want) {
			t.Errorf("of %d bytes, %d counters are left with %v", size, len(left), counts(left))
		}
		for range slots { // also in the part that was missing
			start(t, again, "key").Add(3)
		}
		if info, err := os.Stat(b.files[0].name); err != nil || info.Size() != slots*slotSize {
			t.Errorf("the file of %d bytes has %v %v", size, info, err)
		}
	}
}

// TestALostFileEndsNothing: if a file loses its end or everything while it is in use, its
// counters continue, new counters can be created, and the loss is logged once.
func TestALostFileEndsNothing(t *testing.T) {
	for _, size := range []int64{0, 4096, 100 * slotSize} {
		dir, told := t.TempDir(), &bytes.Buffer{}
		b, err := Open(dir, slog.New(slog.NewTextHandler(told, nil)))
		errtest.Must(t, err)
		old := start(t, b, "old")
		var rest []*Counter
		for range slots - 10 {
			rest = append(rest, start(t, b, "rest"))
		}
		old.Add(5)
		first := b.files[0]
		errtest.Must(t, os.Truncate(first.name, size))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 100 {
					old.Add(1)
				}
				for _, c := range rest {
					c.Add(1)
				}
			})
		}
		all.Wait()
		if old.Count() != 805 || rest[0].Count() != 8 || rest[len(rest)-1].Count() != 8 {
			t.Errorf("cut to %d bytes, the counts are %d, %d and %d", size, old.Count(), rest[0].Count(), rest[len(rest)-1].Count())
		}
		for range 20 {
			start(t, b, "new").Add(1)
		}
		b.Free(rest[0])
		b.Free(old)
		if n := strings.Count(told.String(), "level=ERROR"); n != 1 {
			t.Errorf("cut to %d bytes, the log tells of it %d times: %s", size, n, told)
		}
		if got := counts(open(t, dir).Leftover()); got["new"] != 20 {
			t.Errorf("cut to %d bytes, the next process finds %v", size, got)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	c := start(b, open(b, b.TempDir()), "key")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Add(1)
		}
	})
}
