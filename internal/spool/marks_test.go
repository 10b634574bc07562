package spool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// openMarks opens marks until the end of the test. It returns those of the process before, too.
func openMarks(t *testing.T, path string, places int) (*Marks, map[int][]byte) {
	t.Helper()
	m, former, err := OpenMarks(path, places)
	errtest.Must(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m, former
}

// TestMarks checks that the next process gets a mark until it is cleared, damaged marks are skipped, and Take
// returns false when all places are used.
func TestMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks")
	m, former := openMarks(t, path, 3)
	if len(former) != 0 {
		t.Fatalf("a new file has the marks %v, want none", former)
	}
	for i := range 3 {
		place, ok := m.Take()
		if !ok || place != i {
			t.Fatalf("Take = %d, %t, want %d", place, ok, i)
		}
		for _, text := range []string{strings.Repeat("long", 60), "mark " + string(rune('a'+i))} {
			errtest.Must(t, m.Set(place, []byte(text)))
		}
	}
	if _, ok := m.Take(); ok {
		t.Error("Take returns a fourth of three places")
	}
	for _, bad := range [][]byte{nil, make([]byte, MaxMark+1)} {
		if m.Set(0, bad) == nil {
			t.Errorf("a mark of %d bytes: no error", len(bad))
		}
	}
	errtest.Must(t, m.Clear(1))
	if place, ok := m.Take(); !ok || place != 1 {
		t.Errorf("Take after Clear(1) = %d, %t, want 1", place, ok)
	}
	data, err := os.ReadFile(path)
	errtest.Must(t, err)
	data[2*markBytes+9] ^= 1
	errtest.Must(t, os.WriteFile(path, data, 0o600))
	_, former = openMarks(t, path, 3)
	if len(former) != 1 || string(former[0]) != "mark a" {
		t.Errorf("the next process gets %v, want mark a alone", former)
	}
	if grown, former := openMarks(t, path, 5); len(former) != 1 || len(grown.taken) != 5 {
		t.Errorf("with 5 places the next process gets %v, want one mark", former)
	}
	var none *Marks
	if _, ok := none.Take(); ok || none.Close() != nil {
		t.Error("Marks that are nil have a place, or an error on Close")
	}
}

// TestCopyMarks checks that, in a copy that is made while marks are overwritten, each mark is complete.
func TestCopyMarks(t *testing.T) {
	dir := t.TempDir()
	if n, err := CopyMarks(filepath.Join(dir, "none"), filepath.Join(dir, "copy-of-none")); n != 0 || err != nil {
		t.Errorf("a copy of no marks: %d, %v, want none", n, err)
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
	errtest.Must(t, set(0))
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
		errtest.Must(t, err)
		_, copied := openMarks(t, to, 8)
		if n != 3 || len(copied) != 3 {
			t.Fatalf("CopyMarks = %d, the copy has %d marks, want 3", n, len(copied))
		}
		for place, text := range copied {
			if string(text) != texts[0] && string(text) != texts[1] {
				t.Fatalf("mark %d is %q, want one of the texts", place, text)
			}
		}
	}
	close(stop)
	errtest.Must(t, <-done)
	if _, err := CopyMarks(path, filepath.Join(dir, "copies", "x")); err == nil {
		t.Error("a copy over another: no error")
	}
}
