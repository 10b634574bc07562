package spool

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// filesWith returns the files of a folder that contain a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(globSafe(dir), "*"))
	errtest.Must(t, err)
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(text)) {
			found = append(found, filepath.Base(path))
		}
	}
	return found
}

// TestTurn checks that, after Turn, no acknowledged record is on disk, and all others are. Records that are
// acknowledged later are removed then.
func TestTurn(t *testing.T) {
	for _, policy := range []SyncPolicy{SyncNever, SyncInterval, SyncAlways} {
		t.Run(string(policy), func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, Config{Dir: dir, Sync: policy})
			add(t, l, "zebra 1", "zebra 2")
			_, last := drain(t, l, 10)
			errtest.Must(t, l.Ack(last))
			if len(filesWith(t, dir, "zebra")) == 0 {
				t.Fatal("no file has the records, want the one that is still open")
			}
			errtest.Must(t, l.Rotate())
			if left := filesWith(t, dir, "zebra"); len(left) > 0 {
				t.Errorf("acknowledged records are in %q, want nowhere", left)
			}
			add(t, l, "zebra 3", "other 4")
			for range 3 { // another Turn changes nothing
				errtest.Must(t, l.Rotate())
			}
			add(t, l, "other 5")
			recs, last := drain(t, l, 10)
			same(t, recs, []string{"zebra 3", "other 4", "other 5"})
			if len(filesWith(t, dir, "zebra")) == 0 {
				t.Error("no file has zebra 3, which is not acknowledged")
			}
			errtest.Must(t, l.Ack(last))
			if left := filesWith(t, dir, "zebra"); len(left) > 0 {
				t.Errorf("acknowledged records are in %q, want nowhere", left)
			}
			add(t, l, "other 6")
			errtest.Must(t, l.Close())
			if err := l.Rotate(); err == nil {
				t.Error("Turn of a closed log: no error")
			}
			recs, _ = drain(t, open(t, Config{Dir: dir}), 10)
			same(t, recs, []string{"other 6"})
		})
	}
}

// TestTurnMeanwhile checks that, if Turn is called during appends and reads, every record is delivered once and
// in order.
func TestTurnMeanwhile(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir, SegmentBytes: 4000})
	const each = 400
	var writers, turners sync.WaitGroup
	stop := make(chan struct{})
	for w := range 4 {
		writers.Go(func() {
			for i := range each {
				if err := l.Append(fmt.Appendf(nil, "%d %d", w, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	turners.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := l.Rotate(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	next, total := map[int]int{}, 0
	for total < 4*each {
		b, err := l.Next(t.Context(), 50)
		errtest.Must(t, err)
		for _, rec := range b.Records {
			var w, i int
			if _, err := fmt.Sscan(string(rec), &w, &i); err != nil || next[w] != i {
				t.Fatalf("%q, want number %d: %v", rec, next[w], err)
			}
			next[w]++
		}
		total += len(b.Records)
		errtest.Must(t, l.Ack(b))
	}
	writers.Wait()
	close(stop)
	turners.Wait()
	errtest.Must(t, l.Rotate())
	if files, _ := filepath.Glob(filepath.Join(globSafe(dir), "*.seg")); len(files) > 0 {
		t.Errorf("the files %q stay, want none", files)
	}
	if l.Depth() != 0 || l.Bytes() != 0 {
		t.Errorf("%d records of %d bytes wait, want none", l.Depth(), l.Bytes())
	}
}
