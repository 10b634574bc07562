package tally

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// open opens a book that is closed when the test ends.
func open(t testing.TB, dir string) *Book {
	t.Helper()
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func start(t testing.TB, b *Book, key string) *Counter {
	t.Helper()
	c, err := b.New(key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// counts are the counts by key.
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
	left := second.Left()
	if got := counts(left); !maps.Equal(got, want) {
		t.Errorf("an earlier process left %v, want %v", got, want)
	}
	for _, c := range left {
		if c.Key == "a" && c.Source != a.Source {
			t.Errorf("the source was %d and is %d", a.Source, c.Source)
		}
	}
	if again := second.Left(); len(again) != 0 {
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

// A slot that a power cut left torn counts for nobody, whichever byte is wrong.
func TestATornSlotIsFree(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	start(t, b, "key").Add(1)
	names, err := filepath.Glob(filepath.Join(dir, "*.tally"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	good, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	last := len(good) - slotSize // the slot that was given out first
	for i := sourceAt; i < keyAt+len("key"); i++ {
		bad := slices.Clone(good)
		bad[last+i] ^= 0xff
		other := t.TempDir()
		if err := os.WriteFile(filepath.Join(other, "0.tally"), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if left := open(t, other).Left(); len(left) != 0 {
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
	if _, err := Open(filepath.Join(dirWithout(t), "file", "below")); err == nil {
		t.Error("a book was opened below a file")
	}
}

// dirWithout is a directory in which "file" is no directory.
func dirWithout(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A file of another size is refused: mapped, it would end the process.
func TestAShortFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "0.tally"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Open(dir); err == nil {
		b.Close()
		t.Error("a short file was opened")
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
