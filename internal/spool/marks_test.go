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

// TestMarks: a mark is there for the next process until it is cleared, one that was
// damaged is left out, and places run out.
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
