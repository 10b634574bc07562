// Package spool is an append-only log of records on the local disk, between
// those who must not wait (a decision, a request through a bouncer) and those
// who store what happened (the shipper of package audit, the bridge).
//
//	Append ─┐                                    ┌─ Next ─ store ─ Ack
//	Append ─┼─ one write(2) ─► 0000000000000001.seg ──────────────► (deleted)
//	Append ─┘                  0000000000004711.seg
//
// When Append returns nil the record has been given to the kernel: it survives
// the death of the process, and with SyncAlways that of the machine. Concurrent
// appends share one write and one sync. Every record carries its number and a
// checksum; on Open a torn tail is cut off and damaged records are left out,
// while all others are kept.
//
// A record is delivered until it is acknowledged: a consumer that dies between
// storing and Ack sees it again, so it stores by an id of the record's own.
package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// SyncPolicy says when records are forced to the disk itself.
type SyncPolicy string

// The policies. Each of them survives the death of the process.
const (
	SyncNever    SyncPolicy = "never"    // the kernel decides; a power cut may lose some seconds
	SyncInterval SyncPolicy = "interval" // every Config.Interval
	SyncAlways   SyncPolicy = "always"   // before Append returns
)

// MaxRecord is the size of the largest record, in bytes.
const MaxRecord = 16 << 20

// maxBatchBytes bounds what Next holds in memory, but for one larger record.
const maxBatchBytes = 4 << 20

// ErrClosed says that the log was closed.
var ErrClosed = errors.New("spool: closed")

// Config says where and how records are kept.
type Config struct {
	// Dir is the log's own folder; it is made if missing. One process at a time
	// may have it open.
	Dir string
	// Sync is when records are forced to disk; empty means SyncInterval.
	Sync SyncPolicy
	// Interval is the pause of SyncInterval (100 ms).
	Interval time.Duration
	// SegmentBytes is the size at which a new file is begun (64 MiB). Files are
	// deleted as a whole, so this much more than MaxBytes may be on disk.
	SegmentBytes int64
	// MaxBytes bounds the records that are not acknowledged (8 GiB). Beyond it
	// Append answers a StorageFull fault. AppendIfRoom leaves the last tenth to Append.
	MaxBytes int64
	// Reserve is room on the same disk that a full disk gives back to the log; nil: none.
	Reserve *Reserve

	create func(path string) (file, error) // tests put failing disks here
}

// A write costs more than the records that it carries, so where several append at
// a time, the first lets the others go on before it writes. It knows that there
// are others by batches that had company: of companyLook one tries, and for
// companyLasts after one that had, all do. Somebody alone waits for nobody.
const (
	companyLook  = 32
	companyLasts = 64
)

// file is what the log writes to.
type file interface {
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// recovery is what Open found.
type recovery struct {
	Records      int64 // records that wait to be delivered
	CutBytes     int64 // the torn tail: no Append returned for what is in it
	DamagedBytes int64 // bytes among the records that were none
}

// Log is an open spool. Append is safe for concurrent use; Next and Ack are for
// one consumer.
type Log struct {
	cfg      Config
	lockFile *os.File
	recovery recovery
	more     chan struct{} // holds a token when there may be records to read
	closing  chan struct{}
	synced   sync.WaitGroup

	mu       sync.Mutex // guards what follows
	pending  *batch
	spare    []byte
	queued   int64 // bytes appended since Open, counting those still pending
	acked    int64 // bytes acknowledged since Open, in the same count
	nextSeq  uint64
	lastSeq  uint64     // the last record that was written
	segments []*segment // oldest first; the last one is written to
	closed   bool       // nothing more comes in
	over     bool       // nothing more is written
	led      uint       // batches that were begun
	company  int        // batches for which others are still expected to join
	tally    tally      // see Stats

	writing sync.Mutex // held by the one who writes to disk; guards what follows
	active  *output
	held    []byte    // the frames since the last sync, in case the next one fails
	flushed uint64    // how often held was emptied
	broken  error     // the active file failed and no other could take its place yet
	tried   time.Time // when another file was tried last

	reader reader
}

// segment is one file of the log.
type segment struct {
	path  string
	first uint64 // number of its first record
	last  uint64 // number of its last one; first-1 when empty
	end   int64  // where the next record goes
	made  int    // how often its file was replaced
}

// batch is what concurrent appends write together.
type batch struct {
	buf   []byte
	first uint64
	count int
	// done is closed once the batch is written; nil while nobody waits for that.
	// Guarded by the log's mu until the batch is no longer pending.
	done chan struct{}
	err  error
}

// Open opens the log and recovers what an earlier process left in it.
func Open(cfg Config) (*Log, error) {
	if cfg.Sync == "" {
		cfg.Sync = SyncInterval
	}
	if cfg.Interval <= 0 {
		cfg.Interval = 100 * time.Millisecond
	}
	if cfg.SegmentBytes <= 0 {
		cfg.SegmentBytes = 64 << 20
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 8 << 30
	}
	if cfg.create == nil {
		cfg.create = func(path string) (file, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) }
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg, lockFile: lock, more: make(chan struct{}, 1), closing: make(chan struct{}), pending: newBatch(nil)}
	if err := l.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("spool: recover: %w", err), lock.Close())
	}
	l.tally.setStart(l.lastSeq, oldest(l.segments))
	l.synced.Go(l.runPeriodic)
	l.wake()
	return l, nil
}

// lockDir keeps a second process out; the lock ends with the process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("spool: %s is in use by another process", dir), f.Close())
	}
	return f, nil
}

func newBatch(buf []byte) *batch { return &batch{buf: buf[:0]} }

// Append adds records and returns once they are written, together or not at
// all. An empty record, one over MaxRecord, a full log or a failing disk are
// faults, and then the records are not in the log, or were not promised to be.
func (l *Log) Append(recs ...[]byte) error { return l.append(l.cfg.MaxBytes, recs) }

// AppendIfRoom is Append for records that matter less. It leaves the last tenth
// of MaxBytes to Append, and the whole Reserve: then it answers a StorageFull fault.
func (l *Log) AppendIfRoom(recs ...[]byte) error {
	if l.cfg.Reserve.InUse() {
		l.refuse(len(recs))
		return fault.New(fault.StorageFull, "spool_full", "the disk is nearly full; the rest is reserved for other records")
	}
	return l.append(l.cfg.MaxBytes-l.cfg.MaxBytes/10, recs)
}

func (l *Log) append(limit int64, recs [][]byte) error {
	size := int64(0)
	for _, rec := range recs {
		if len(rec) == 0 || len(rec) > MaxRecord {
			return fault.Newf(fault.TooLarge, "record_size", "a spooled record must have 1 to %d bytes, not %d", MaxRecord, len(rec))
		}
		size += frameSize(len(rec))
	}
	if len(recs) == 0 {
		return nil
	}
	l.mu.Lock()
	if err := l.admit(size, limit, len(recs)); err != nil {
		l.mu.Unlock()
		return err
	}
	b := l.pending
	if b.count == 0 {
		b.first = l.nextSeq
	}
	leads, yields := b.count == 0, false
	if leads {
		l.led++
		yields = l.company > 0 || l.led%companyLook == 0
		l.company = max(l.company-1, 0)
	}
	for _, rec := range recs {
		b.buf = appendFrame(b.buf, l.nextSeq, rec)
		b.count++
		l.nextSeq++
	}
	if !leads && b.done == nil {
		b.done = make(chan struct{})
	}
	l.mu.Unlock()
	if !leads {
		<-b.done
		return b.err
	}
	if yields {
		runtime.Gosched() // those that are about to append join this batch
	}
	l.writing.Lock() // while the batch before is being written, others join this one
	l.mu.Lock()
	if b.count > len(recs) {
		l.company = companyLasts
	}
	l.pending, l.spare = newBatch(l.spare), nil
	l.mu.Unlock()
	b.err = l.write(b)
	l.writing.Unlock()
	if b.done != nil {
		close(b.done)
	}
	if b.err == nil {
		l.wake()
	}
	return b.err
}

// admit checks that frames of n bytes may come in below the limit, and counts
// them. Caller holds mu.
func (l *Log) admit(n, limit int64, count int) error {
	switch {
	case l.closed:
		return ErrClosed
	case l.queued-l.acked+n > limit:
		l.tally.refused += int64(count)
		l.tally.full = l.tally.full || limit == l.cfg.MaxBytes
		return fault.Newf(fault.StorageFull, "spool_full", "the spool is at its limit of %d bytes; nothing more can be recorded until records are shipped", limit)
	}
	l.queued += n
	return nil
}

// write puts a batch on disk. Caller holds writing.
func (l *Log) write(b *batch) error {
	err := l.put(b)
	l.mu.Lock()
	defer l.mu.Unlock()
	if cap(b.buf) <= 1<<20 {
		l.spare = b.buf
	}
	if err != nil {
		l.queued -= int64(len(b.buf))
		l.tally.refused += int64(b.count)
		if !errors.Is(err, ErrClosed) {
			l.tally.failing = err
		}
		return err
	}
	l.tally.failing = nil
	s := l.segments[len(l.segments)-1]
	s.end += int64(len(b.buf))
	s.last = b.first + uint64(b.count) - 1
	l.lastSeq = s.last
	l.reader.depth += int64(b.count)
	return nil
}

// put writes a batch at the end of the active segment, a new one if that is
// full. Where the disk fails the batch is tried once more, in a new file, and
// where it is full once more with the room that was held back.
func (l *Log) put(b *batch) error {
	err := l.putOnce(b)
	for isFull(err) && l.cfg.Reserve.Release() {
		err = l.putOnce(b)
	}
	if err != nil && !isFull(err) && !errors.Is(err, ErrClosed) && l.broken == nil {
		if err = l.replaceFile(err); err == nil {
			err = l.putOnce(b)
		}
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		return diskFault(err)
	}
	return err
}

func (l *Log) putOnce(b *batch) error {
	if err := l.retryReplace(); err != nil {
		return err
	}
	if len(l.held)+len(b.buf) > maxHeld {
		if err := l.sync(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	s, over := l.segments[len(l.segments)-1], l.over
	l.mu.Unlock()
	if over {
		return ErrClosed
	}
	if l.active == nil || s.end >= l.cfg.SegmentBytes {
		var err error
		if s, err = l.rotate(b.first); err != nil {
			return err
		}
	}
	if _, err := l.active.WriteAt(b.buf, s.end); err != nil {
		// What came through must not be taken for records later on.
		if cut := l.active.Truncate(s.end); cut != nil {
			return errors.Join(err, l.replaceFile(cut))
		}
		return err
	}
	if l.cfg.Sync == SyncNever {
		return nil
	}
	promised := len(l.held)
	l.held = append(l.held, b.buf...)
	if l.cfg.Sync != SyncAlways {
		return nil
	}
	return l.syncBatch(b, promised)
}

// rotate begins a new segment whose first record is seq. Caller holds writing.
func (l *Log) rotate(seq uint64) (*segment, error) {
	if l.active != nil {
		if err := l.sync(); err != nil {
			return nil, err
		}
		_ = l.active.Close() // everything in it has been written
		l.active = nil
	}
	s := &segment{path: segmentPath(l.cfg.Dir, seq), first: seq, last: seq - 1}
	f, err := l.cfg.create(s.path)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if l.cfg.Sync != SyncNever {
		if err := syncDir(l.cfg.Dir); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	l.active = &output{file: f}
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.segments[len(l.segments)-1]; old.first == seq { // nothing came into it; the reader may know it
		return old, nil
	}
	l.segments = append(l.segments, s)
	return s, nil
}

// Turn closes the file that is written to. Like every closed file it is removed once all of
// its records are acknowledged, which may be at once: so what was acknowledged before does
// not wait on disk for the file to be full. The next record begins a file. A process that is
// killed meanwhile loses nothing, for the next one never writes to an old file.
func (l *Log) Turn() error {
	l.writing.Lock()
	err := beginAnew(l)
	l.writing.Unlock()
	if err != nil {
		return diskFault(err)
	}
	return l.reader.sweep(l)
}

// beginAnew has the next record begin a file. Caller holds writing.
func beginAnew(l *Log) error {
	l.mu.Lock()
	over, empty := l.over, l.segments[len(l.segments)-1].end == 0
	l.mu.Unlock()
	if over {
		return ErrClosed
	}
	if empty {
		return nil
	}
	if err := l.sync(); err != nil {
		return err
	}
	if l.active != nil {
		_ = l.active.Close() // everything in it is on disk
		l.active = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(l.segments, &segment{path: segmentPath(l.cfg.Dir, l.lastSeq+1), first: l.lastSeq + 1, last: l.lastSeq})
	return nil
}

// wake tells the consumer that there may be something to read.
func (l *Log) wake() {
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// refuse counts records that were not taken in.
func (l *Log) refuse(n int) {
	l.mu.Lock()
	l.tally.refused += int64(n)
	l.mu.Unlock()
}

// Depth is the number of records that are not acknowledged.
func (l *Log) Depth() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reader.ackSeq > l.lastSeq {
		return 0
	}
	return max(1, l.reader.depth)
}

// written is the number of the last record that was written.
func (l *Log) written() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastSeq
}

// Bytes is the size of the records that are not acknowledged.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued - l.acked
}

// Close ends the log. What was appended stays for the next Open.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.closing)
	l.synced.Wait()
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	var errs []error
	l.tried = time.Time{}
	errs = append(errs, l.sync())
	if l.active != nil {
		errs = append(errs, l.active.Close())
	}
	return errors.Join(append(errs, l.reader.close(), l.lockFile.Close())...)
}

// Wait returns when the log holds nothing that is not acknowledged, for a
// shutdown that ships everything first.
func (l *Log) Wait(ctx context.Context) error {
	for {
		if l.Depth() == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.closing:
			return ErrClosed
		case <-l.reader.progress():
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func diskFault(err error) error {
	var f *fault.Error
	switch {
	case errors.As(err, &f):
		return err
	case isFull(err):
		return fault.New(fault.StorageFull, "storage_full", "the disk of the spool is full").Because(err)
	}
	return unavailable(err)
}

func unavailable(err error) error {
	return fault.New(fault.Unavailable, "spool_unavailable", "the spool cannot be written").After(time.Second).Because(err)
}
