package spool

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// disk is a disk that fails as the test sets it. After a failed sync, the unsynced data of the file
// is lost, and the next sync reports success, like the page cache of Linux.
type disk struct {
	mu                          sync.Mutex
	write, truncate, sync, open error
}

// set changes how the disk fails.
func (d *disk) set(change func(d *disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// heal ends all failures.
func (d *disk) heal() {
	d.set(func(d *disk) { d.write, d.truncate, d.sync, d.open = nil, nil, nil, nil })
}

func (d *disk) create(path string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil {
		return nil, d.open
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	return &diskFile{File: f, disk: d}, err
}

type diskFile struct {
	*os.File
	disk   *disk
	synced int64 // guarded by disk.mu, as size
	size   int64
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.write != nil {
		p = p[:len(p)*2/3]
	}
	n, err := f.File.WriteAt(p, off)
	f.size = max(f.size, off+int64(n))
	if f.disk.write != nil {
		err = f.disk.write
	}
	return n, err
}

func (f *diskFile) Truncate(n int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.truncate != nil && n > 0 {
		return f.disk.truncate
	}
	f.size = n
	return f.File.Truncate(n)
}

func (f *diskFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.sync == nil {
		f.synced = f.size
		return nil
	}
	if lost := f.size - f.synced; lost > 0 {
		_, _ = f.File.WriteAt(make([]byte, lost), f.synced)
	}
	f.synced = f.size
	return f.disk.sync
}

// A log refuses records that it cannot write, and continues as soon as it can.
func TestFailingDisk(t *testing.T) {
	for _, policy := range []SyncPolicy{SyncAlways, SyncInterval, SyncNever} {
		t.Run(string(policy), func(t *testing.T) {
			dir, d := t.TempDir(), &disk{}
			l := open(t, Config{Dir: dir, Sync: policy, Interval: time.Hour, create: d.create})
			add(t, l, "a")
			d.set(func(d *disk) { d.write = syscall.ENOSPC })
			if err := l.Append([]byte("lost")); !fault.Is(err, fault.StorageFull) || !l.Stats().Refuses() {
				t.Errorf("a full disk: %v, %+v, want StorageFull", err, l.Stats())
			}
			d.heal()
			add(t, l, "b")
			if s := l.Stats(); s.Refuses() || s.Refused != 1 {
				t.Errorf("with room again: %+v, want one refused and no more", s)
			}
			d.set(func(d *disk) { d.write, d.truncate = syscall.EIO, syscall.EIO })
			if err := l.Append([]byte("lost too")); !fault.Is(err, fault.Unavailable) || !l.Stats().Refuses() {
				t.Errorf("a broken disk: %v, %+v, want Unavailable", err, l.Stats())
			}
			d.heal()
			l.tried = time.Time{} // end the pause between two attempts
			add(t, l, "c")
			got, _ := drain(t, l, 100)
			same(t, got, []string{"a", "b", "c"})
			_ = l.Close()
			got, _ = drain(t, open(t, Config{Dir: dir}), 100)
			same(t, got, []string{"a", "b", "c"})
		})
	}
}

// TestFailedSync checks that, after a failed sync, the log continues in a new file, with everything that the old
// one may have lost.
func TestFailedSync(t *testing.T) {
	for _, read := range []int{0, 2, 3, 5} { // before the sync fails
		for _, synced := range []int{0, 3} {
			t.Run(fmt.Sprintf("read %d synced %d", read, synced), func(t *testing.T) {
				dir, d := t.TempDir(), &disk{}
				l := open(t, Config{Dir: dir, Sync: SyncInterval, Interval: time.Hour, create: d.create})
				add(t, l, numbers(1, synced)...)
				l.syncConcurrently()
				add(t, l, numbers(synced+1, 5)...)
				var got []string
				if read > 0 {
					b, err := l.read(read)
					errtest.Must(t, err)
					for _, r := range b.Records {
						got = append(got, string(r))
					}
				}
				d.set(func(d *disk) { d.sync = syscall.EIO })
				l.syncConcurrently()
				if err := l.Append([]byte("refused")); !fault.Is(err, fault.Unavailable) || l.Stats().Failing == nil {
					t.Errorf("while no sync succeeds: %v, %+v, want Unavailable", err, l.Stats())
				}
				d.heal()
				l.tried = time.Time{}
				add(t, l, numbers(6, 7)...)
				if s := l.Stats(); s.Failing != nil || s.Healed != 1 || s.Records != 7 {
					t.Errorf("after the failure: %+v, want 7 records and one recovery", s)
				}
				rest, _ := drain(t, l, 100)
				same(t, append(got, rest...), numbers(1, 7))
				errtest.Must(t, l.Close())
				l = open(t, Config{Dir: dir})
				if r := l.recovery; r.Records != 7 {
					t.Errorf("recovered %+v, want 7 records", r)
				}
				rest, last := drain(t, l, 100)
				same(t, rest, numbers(1, 7))
				if err := l.Ack(last); err != nil || l.Bytes() != 0 || l.Depth() != 0 {
					t.Errorf("after the acknowledgement: %d bytes of %d records, %v, want none", l.Bytes(), l.Depth(), err)
				}
			})
		}
	}
}

// TestHealsWithoutAppends checks that a log that cannot be written recovers even if nobody appends. The
// time is that of synctest.
func TestHealsWithoutAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		l := open(t, Config{Dir: t.TempDir(), Sync: SyncInterval, create: d.create})
		add(t, l, "a")
		d.set(func(d *disk) { d.sync = syscall.EIO })
		time.Sleep(time.Second)
		if l.Stats().Failing == nil {
			t.Fatal("a second after the sync failed, the log does not report it")
		}
		d.heal()
		time.Sleep(3 * time.Second)
		if s := l.Stats(); s.Failing != nil || s.Healed != 1 {
			t.Errorf("after the failure: %+v, want one recovery", s)
		}
		d.set(func(d *disk) { d.write = syscall.ENOSPC })
		if l.Append([]byte("b")) == nil || l.Stats().Failing == nil {
			t.Fatal("an append to a full disk: no error, or no report")
		}
		time.Sleep(3 * time.Second)
		if l.Stats().Failing == nil {
			t.Fatal("the log reports no failure, although the disk is full")
		}
		d.heal()
		time.Sleep(3 * time.Second)
		if s := l.Stats(); s.Failing != nil {
			t.Errorf("with room again: %+v, want no failure", s)
		}
		if s := l.Stats(); s.Records != 1 || s.Lag < 9*time.Second || s.Lag > 11*time.Second {
			t.Errorf("%+v, want one record that waits for 10 s", s)
		}
		_ = l.Close()
	})
}

// TestFaultsAtRandom appends while the disk fails at random in every way, and sometimes simulates a
// crash. Each record whose Append returned nil must be delivered once, in order.
func TestFaultsAtRandom(t *testing.T) {
	for seed := range uint64(fulltest.Rounds(15, 400)) {
		for _, policy := range []SyncPolicy{SyncAlways, SyncInterval} {
			faultsAtRandom(t, seed, policy)
		}
	}
}

func faultsAtRandom(t *testing.T, seed uint64, policy SyncPolicy) {
	rng := rand.New(rand.NewPCG(seed, 7))
	dir, d := t.TempDir(), &disk{}
	begin := func() *Log {
		return open(t, Config{Dir: dir, Sync: policy, Interval: time.Hour, SegmentBytes: 300, create: d.create})
	}
	l := begin()
	acked, n, seen := map[string]bool{}, 0, map[string]int{}
	take := func(max int) {
		b, err := l.read(max)
		errtest.Must(t, err)
		for _, r := range b.Records {
			seen[string(r)]++
		}
		if len(b.Records) > 0 {
			errtest.Must(t, l.Ack(b))
		}
	}
	for range 400 {
		l.tried = time.Time{}
		switch rng.IntN(15) {
		case 0:
			d.set(func(d *disk) { d.sync = syscall.EIO })
		case 1:
			d.set(func(d *disk) { d.write = []error{syscall.EIO, syscall.ENOSPC}[rng.IntN(2)] })
		case 2:
			d.set(func(d *disk) { d.truncate = syscall.EIO })
		case 3:
			d.set(func(d *disk) { d.open = syscall.EMFILE })
		case 4, 5, 6:
			d.heal()
		case 7:
			l.syncConcurrently()
		case 8:
			take(1 + rng.IntN(5))
		case 14:
			_ = l.Rotate() // it may fail because the disk does
		case 9:
			if rng.IntN(4) > 0 || l.Stats().Failing != nil {
				break // a process loses what it could not write before it ends
			}
			d.heal()
			_ = l.Close()
			l = begin()
		default:
			name := fmt.Sprint(n)
			n++
			if l.Append([]byte(name)) == nil {
				acked[name] = true
			}
		}
	}
	d.heal()
	l.tried = time.Time{}
	errtest.Must(t, l.Append([]byte("last")))
	acked["last"] = true
	errtest.Must(t, l.Close())
	l = begin()
	for l.Depth() > 0 {
		take(10)
	}
	for name := range acked {
		if seen[name] != 1 {
			t.Errorf("seed %d, %s: %s was delivered %d times, want once", seed, policy, name, seen[name])
		}
	}
	for name, times := range seen {
		if times > 1 {
			t.Errorf("seed %d, %s: %s was delivered %d times, want once at most", seed, policy, name, times)
		}
	}
	_ = l.Close()
	if left, _ := filepath.Glob(filepath.Join(dir, "*"+healing)); len(left) > 0 {
		t.Errorf("the files %v stay, want none of a recovery", left)
	}
}

// TestCopy checks that a copy that is made while records are appended and acknowledged contains every record
// that was appended before it began and is not acknowledged when it ends.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir, SegmentBytes: 500})
	add(t, l, numbers(1, 40)...)
	b, err := l.read(25)
	for got := len(b.Records); err == nil && got < 25; got += len(b.Records) {
		b, err = l.read(25 - got)
	}
	if err != nil || l.Ack(b) != nil {
		t.Fatal(err)
	}
	var load sync.WaitGroup
	load.Go(func() { add(t, l, numbers(41, 500)...) })
	to := filepath.Join(t.TempDir(), "copy")
	if files, err := Copy(dir, to); err != nil || files == 0 {
		t.Fatalf("Copy: %d files, %v", files, err)
	}
	load.Wait()
	got, _ := drain(t, open(t, Config{Dir: to}), 100)
	if len(got) < 15 {
		t.Fatalf("the copy has %d records, want at least 15", len(got))
	}
	same(t, got, numbers(26, 25+len(got)))
	if _, err := Copy(dir, to); err == nil {
		t.Error("a copy over another: no error")
	}
	if files, err := Copy(filepath.Join(dir, "none"), filepath.Join(t.TempDir(), "x")); files != 0 || err != nil {
		t.Errorf("a copy of no folder: %d files, %v, want none", files, err)
	}
}
