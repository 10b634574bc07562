package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// open opens a log until the end of the test.
func open(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	errtest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// add appends records.
func add(t testing.TB, l *Log, recs ...string) {
	t.Helper()
	for _, r := range recs {
		errtest.Must(t, l.Append([]byte(r)))
	}
}

// drain reads all records.
func drain(t testing.TB, l *Log, max int) (recs []string, last Batch) {
	t.Helper()
	for {
		b, err := l.read(max)
		errtest.Must(t, err)
		if len(b.Records) == 0 {
			return recs, last
		}
		last = b
		for _, r := range b.Records {
			recs = append(recs, string(r))
		}
	}
}

// numbers returns records with numbers.
func numbers(from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("record %d", i))
	}
	return out
}

// same fails unless both lists are equal.
func same(t testing.TB, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %d records %.10q, want %d %.10q", len(got), got[:min(len(got), 20)], len(want), want[:min(len(want), 20)])
	}
}

// Records are delivered in order, also after the log is opened again, until they are acknowledged.
func TestOrderAckAndReopen(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir, SegmentBytes: 200})
	add(t, l, numbers(1, 50)...)
	b, err := l.Next(context.Background(), 20)
	if err != nil || len(b.Records) == 0 {
		t.Fatal(err)
	}
	var got []string
	for len(got) < 20 {
		for _, r := range b.Records {
			got = append(got, string(r))
		}
		errtest.Must(t, l.Ack(b))
		if len(got) < 20 {
			if b, err = l.Next(context.Background(), 20-len(got)); err != nil {
				t.Fatal(err)
			}
		}
	}
	same(t, got, numbers(1, 20))
	if _, err := l.Next(context.Background(), 5); err != nil { // delivered, not acknowledged
		t.Fatal(err)
	}
	if l.Depth() != 30 {
		t.Errorf("the depth is %d, want 30", l.Depth())
	}
	errtest.Must(t, l.Close())
	if err := l.Append([]byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v, want ErrClosed", err)
	}
	l = open(t, Config{Dir: dir, SegmentBytes: 200})
	if l.Depth() != 30 || l.recovery.Records != 30 || l.recovery.DamagedBytes != 0 {
		t.Errorf("the depth is %d, the recovery %+v, want 30 records without damage", l.Depth(), l.recovery)
	}
	add(t, l, numbers(51, 60)...)
	rest, last := drain(t, l, 7)
	same(t, rest, numbers(21, 60))
	errtest.Must(t, l.Ack(last))
	if l.Depth() != 0 || l.Bytes() != 0 {
		t.Errorf("%d records of %d bytes wait, want none", l.Depth(), l.Bytes())
	}
	add(t, l, "one more")
	rest, last = drain(t, l, 7)
	same(t, rest, []string{"one more"})
	errtest.Must(t, l.Ack(last))
	if files, _ := filepath.Glob(filepath.Join(dir, "*.seg")); len(files) > 2 {
		t.Errorf("%d files, want at most 2", len(files))
	}
}

// Next waits for a record, and ends when the log is closed.
func TestNextWaits(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir()})
	got := make(chan string)
	go func() {
		for range 3 {
			b, err := l.Next(context.Background(), 10)
			if err != nil {
				got <- err.Error()
				return
			}
			got <- string(b.Records[0])
			_ = l.Ack(b)
		}
		_, err := l.Next(context.Background(), 10)
		got <- err.Error()
	}()
	for _, r := range numbers(1, 3) {
		add(t, l, r)
		if s := <-got; s != r {
			t.Errorf("Next returned %q, want %q", s, r)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := l.Wait(ctx); err != nil {
		t.Errorf("Wait: %v", err)
	}
	_ = l.Close()
	if s := <-got; s != ErrClosed.Error() {
		t.Errorf("Next returned %q, want ErrClosed", s)
	}
}

// A folder belongs to one log.
func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	open(t, Config{Dir: dir})
	if _, err := Open(Config{Dir: dir}); err == nil {
		t.Error("a second log in a folder: no error")
	}
}

// A log has a limit for all records, and each record has one.
func TestLimits(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir(), MaxBytes: 10 * frameSize(100)})
	rec := bytes.Repeat([]byte("x"), 100)
	for range 10 {
		errtest.Must(t, l.Append(rec))
	}
	if err := l.Append(rec); !fault.Is(err, fault.StorageFull) {
		t.Errorf("an append over the limit: %v, want StorageFull", err)
	}
	_, last := drain(t, l, 100)
	errtest.Must(t, l.Ack(last))
	if err := l.Append(rec); err != nil {
		t.Errorf("an append after the acknowledgement: %v", err)
	}
	for _, bad := range [][]byte{nil, make([]byte, MaxRecord+1)} {
		if err := l.Append(bad); !fault.Is(err, fault.TooLarge) {
			t.Errorf("a record of %d bytes: %v, want TooLarge", len(bad), err)
		}
	}
}

// Records larger than a file are delivered, also after the log is opened again.
func TestLargeRecords(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i, n := range []int{1, 3 << 20, 2 << 20, 9 << 20, 10, 5 << 20} {
		want = append(want, strings.Repeat(string(rune('a'+i)), n))
	}
	l := open(t, Config{Dir: dir})
	add(t, l, want...)
	got, _ := drain(t, l, 100)
	same(t, got, want)
	_ = l.Close()
	got, _ = drain(t, open(t, Config{Dir: dir}), 100)
	same(t, got, want)
}

// TestDamage changes every byte of a log, and truncates it to every length. All records except the
// damaged one are delivered, after Open and while the log is open.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir, Sync: SyncNever})
	want := numbers(1, 9)
	add(t, l, want...)
	path := l.segments[len(l.segments)-1].path
	_ = l.Close()
	good, err := os.ReadFile(path)
	errtest.Must(t, err)
	size := len(good) / len(want)
	reread := func(data []byte) []string {
		old, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
		for _, f := range old {
			_ = os.Remove(f)
		}
		errtest.Must(t, os.WriteFile(path, data, 0o600))
		l := open(t, Config{Dir: dir, Sync: SyncNever})
		defer l.Close()
		add(t, l, "new")
		got, _ := drain(t, l, 100)
		return got
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 1 << (i % 8)
		same(t, reread(bad), append(slices.Delete(slices.Clone(want), i/size, i/size+1), "new"))
		b, _ := collect(bad, 1, 100, true)
		if len(b.Records) != len(want)-1 {
			t.Errorf("with byte %d damaged, %d records are read, want %d", i, len(b.Records), len(want)-1)
		}
		same(t, reread(good[:i]), append(slices.Clone(want[:i/size]), "new"))
	}
}

// If somebody removes a part of a file in use, only that part is lost. The consumer gets the records
// after it, and waits if there are none.
func TestCutWhileOpen(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir, Sync: SyncNever})
	defer l.Close()
	add(t, l, "a", "b", "c")
	files, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	errtest.Must(t, os.Truncate(files[0], 0))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := l.Next(ctx, 10)
		ended <- err
	}()
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Next without records: %v, want Canceled", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Next does not end with its context")
	}
	add(t, l, "d", "e")
	got, last := drain(t, l, 10)
	same(t, got, []string{"d", "e"})
	if err := l.Ack(last); err != nil || l.Depth() != 0 || l.Bytes() != 0 {
		t.Errorf("%d records of %d bytes wait, error %v, want none", l.Depth(), l.Bytes(), err)
	}
	add(t, l, "f")
	if l.Depth() != 1 {
		t.Errorf("%d records wait, want 1", l.Depth())
	}
}

// Each writer's records are delivered once and in order, while all write.
func TestConcurrent(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir, SegmentBytes: 10_000})
	const writers, each = 8, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				add(t, l, fmt.Sprintf("%d %d", w, i))
			}
		})
	}
	next := [writers]int{}
	for n := 0; n < writers*each; {
		b, err := l.Next(context.Background(), 100)
		errtest.Must(t, err)
		for _, r := range b.Records {
			var w, i int
			if _, err := fmt.Sscanf(string(r), "%d %d", &w, &i); err != nil || next[w] != i {
				t.Fatalf("the record is %q, want %d of writer %d", r, next[w], w)
			}
			next[w]++
			n++
		}
		errtest.Must(t, l.Ack(b))
	}
	wg.Wait()
	if l.Depth() != 0 || l.Bytes() != 0 {
		t.Errorf("%d records of %d bytes wait, want none", l.Depth(), l.Bytes())
	}
}

// FuzzFrames checks that records that are read from any bytes can be written and read again.
func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, 1, []byte("a")), 2, []byte("b")))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		b, used := collect(data, 1, 1<<20, true)
		if used > len(data) {
			t.Fatalf("%d of %d bytes are read", used, len(data))
		}
		var clean []byte
		for i, r := range b.Records {
			if len(r) == 0 {
				t.Fatalf("record %d is empty", i)
			}
			clean = appendFrame(clean, uint64(i+1), r)
		}
		again, _ := collect(clean, 1, 1<<20, true)
		if len(again.Records) != len(b.Records) {
			t.Fatalf("%d records, written and read again %d", len(b.Records), len(again.Records))
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, bench := range []struct {
		sync    SyncPolicy
		callers int
	}{{SyncNever, 1}, {SyncInterval, 1}, {SyncInterval, 32}, {SyncAlways, 1}, {SyncAlways, 32}} {
		b.Run(fmt.Sprintf("%s/callers=%d", bench.sync, bench.callers), func(b *testing.B) {
			l := open(b, Config{Dir: b.TempDir(), Sync: bench.sync})
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					batch, err := l.Next(context.Background(), 1000)
					if err != nil {
						return
					}
					_ = l.Ack(batch)
				}
			}()
			rec := bytes.Repeat([]byte("x"), 600)
			b.SetBytes(600)
			b.SetParallelism(max(1, bench.callers/2))
			b.ResetTimer()
			if bench.callers == 1 {
				for range b.N {
					_ = l.Append(rec)
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						_ = l.Append(rec)
					}
				})
			}
			b.StopTimer()
			_ = l.Close()
			<-done
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
