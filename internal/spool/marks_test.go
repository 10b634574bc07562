package spool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func openMarks(t *testing.T, path string, places int) (*Marks, map[int][]byte) {
	t.Helper()
	m, left, err := OpenMarks(path, places)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m, left
}

// TestMarks: the next process gets a mark until it is cleared, damaged marks are skipped, and Take
// returns false when all places are used.
func TestMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks")
	m, left := openMarks(t, path, 3)
	if len(left) != 0 {
		t.Fatalf("a new file has %v", left)
	}
	for i := range 3 {
		place, ok := m.Take()
		if !ok || place != i {
			t.Fatalf("place %d, %t", place, ok)
		}
		for _, text := range []string{strings.Repeat("long", 60), "mark " + string(rune('a'+i))} {
			if err := m.Set(place, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, ok := m.Take(); ok {
		t.Error("a fourth place")
	}
	for _, bad := range [][]byte{nil, make([]byte, MaxMark+1)} {
		if m.Set(0, bad) == nil {
			t.Errorf("a mark of %d bytes was taken", len(bad))
		}
	}
	if err := m.Clear(1); err != nil {
		t.Fatal(err)
	}
	if place, ok := m.Take(); !ok || place != 1 {
		t.Errorf("the place that was cleared: %d, %t", place, ok)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[2*markBytes+9] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, left = openMarks(t, path, 3)
	if len(left) != 1 || string(left[0]) != "mark a" {
		t.Errorf("the next process finds %v", left)
	}
	if grown, left := openMarks(t, path, 5); len(left) != 1 || len(grown.taken) != 5 {
		t.Errorf("with more places it finds %v", left)
	}
	var none *Marks
	if _, ok := none.Take(); ok || none.Close() != nil {
		t.Error("no marks have a place")
	}
}

// TestCopyMarks: in a copy that is made while marks are overwritten, each mark is complete.
func TestCopyMarks(t *testing.T) {
	dir := t.TempDir()
	if n, err := CopyMarks(filepath.Join(dir, "none"), filepath.Join(dir, "copy-of-none")); n != 0 || err != nil {
		t.Errorf("marks that are not there: %d, %v", n, err)
	}
	path := filepath.Join(dir, "marks")
	m, _ := openMarks(t, path, 8)
	for range 3 {
		m.Take()
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	texts := []string{strings.Repeat("a", MaxMark), "b"}
	set := func(n int) error {
		for place := range 3 {
			if err := m.Set(place, []byte(texts[n%2])); err != nil {
				return err
			}
		}
		return nil
	}
	if err := set(0); err != nil {
		t.Fatal(err)
	}
	go func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := set(n); err != nil {
				done <- err
				return
			}
		}
	}()
	for i := range 50 {
		to := filepath.Join(dir, "copies", strings.Repeat("x", i+1))
		n, err := CopyMarks(path, to)
		if err != nil {
			t.Fatal(err)
		}
		_, left := openMarks(t, to, 8)
		if n != 3 || len(left) != 3 {
			t.Fatalf("%d marks are copied, %d are there", n, len(left))
		}
		for place, text := range left {
			if string(text) != texts[0] && string(text) != texts[1] {
				t.Fatalf("mark %d is %q", place, text)
			}
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := CopyMarks(path, filepath.Join(dir, "copies", "x")); err == nil {
		t.Error("a copy replaced another")
	}
}
