// Package spool is an append-only log of records on the local disk. It is between producers that
// must not wait (decisions, requests through a bouncer) and the consumers that store the records
// (the shipper of package audit, the bridge).
//
//	Append ─┐                                    ┌─ Next ─ store ─ Ack
//	Append ─┼─ one write(2) ─► 0000000000000001.seg ──────────────► (deleted)
//	Append ─┘                  0000000000004711.seg
//
// When Append returns nil, the kernel has the record: it survives a crash of the process, and with
// SyncAlways also one of the machine. Concurrent appends share one write and one sync. Every record
// has a number and a checksum. Open truncates a torn tail and skips damaged records.
//
// A record is delivered again after a restart until it is acknowledged. A consumer must therefore
// recognise records that it has stored already, by an id in the record.
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

// SyncPolicy is when records are forced to disk.
type SyncPolicy string

// The policies. With each of them, records survive a crash of the process.
const (
	SyncNever    SyncPolicy = "never"    // the kernel decides; a power cut may lose some seconds
	SyncInterval SyncPolicy = "interval" // every Config.Interval
	SyncAlways   SyncPolicy = "always"   // before Append returns
)

// MaxRecord is the size of the largest record, in bytes.
const MaxRecord = 16 << 20

// maxBatchBytes limits how much Next reads at once, in bytes, except for a larger single record.
const maxBatchBytes = 4 << 20

// ErrClosed means that the log is closed.
var ErrClosed = errors.New("spool: closed")

// Config is the configuration of a Log. All but Dir have defaults.
type Config struct {
	// Dir is the log's own folder. Open makes it if it is missing. Only one process at a time can
	// open it.
	Dir string
	// Sync is when records are forced to disk; empty means SyncInterval.
	Sync SyncPolicy
	// Interval is the pause of SyncInterval (100 ms).
	Interval time.Duration
	// SegmentBytes is the size at which a new file is begun (64 MiB). Acknowledged records are
	// removed by whole files, so the log can use this much more disk than MaxBytes.
	SegmentBytes int64
	// MaxBytes limits the size of the records that are not acknowledged (8 GiB). Beyond it, Append
	// returns a StorageFull fault. AppendIfRoom leaves the last tenth to Append.
	MaxBytes int64
	// Reserve is space on the same disk that the log uses when the disk is full. It may be nil.
	Reserve *Reserve

	create func(path string) (file, error) // tests set it to simulate failing disks
}

// A write costs more than its records. If there are concurrent appends, the first one of a batch
// therefore yields once before it writes, so that others can join. Whether there are concurrent
// appends is found out by trying: one of companyLook batches yields, and if others join a batch, the
// next companyLasts batches yield too. A single appender almost never yields.
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
	Records      int64 // records to deliver
	CutBytes     int64 // size of the torn tail; no Append had returned for its records
	DamagedBytes int64 // size of damaged data between the records
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
	closed   bool       // no record is accepted any more
	over     bool       // nothing is written any more
	led      uint       // batches that were begun
	company  int        // batches for which others are still expected to join
	tally    tally      // see Stats

	writing sync.Mutex // held while writing to disk; guards what follows
	active  *output
	held    []byte    // the frames since the last sync, in case the next one fails
	flushed uint64    // how often held was emptied
	broken  error     // why there is no file to write to, after the active one failed; else nil
	tried   time.Time // when the log last tried to write a new file

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

// batch contains the records that concurrent appends write together.
type batch struct {
	buf   []byte
	first uint64
	count int
	// done is closed once the batch is written; nil while nobody waits for that.
	// Guarded by the log's mu until the batch is no longer pending.
	done chan struct{}
	err  error
}

// Open opens the log and recovers the records of earlier processes.
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

// lockDir locks the folder, so that no other process can open it. The lock ends with the process.
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

// Append adds records and returns once they are written. Faults: TooLarge for an empty record or one
// over MaxRecord, StorageFull if the log or the disk is full, Unavailable if the disk fails. After a
// fault, the caller must treat the records as not logged; rarely, they are delivered nevertheless.
func (l *Log) Append(recs ...[]byte) error { return l.append(l.cfg.MaxBytes, recs) }

// AppendIfRoom is Append for less important records. It leaves the last tenth of MaxBytes and the
// whole Reserve to Append, and returns a StorageFull fault instead of using them.
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
		runtime.Gosched() // other appends can join this batch meanwhile
	}
	l.writing.Lock() // other appends can join until the previous batch is written
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

// admit checks that frames of n bytes fit below the limit, and counts them. The caller holds mu.
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

// write writes a batch to disk and counts its records. The caller holds writing.
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

// put writes a batch at the end of the active segment, or to a new one if that is full. If the disk
// is full, it releases parts of the reserve and tries again. If the disk fails, it tries once more
// in a new file.
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
		// Remove what was written, so that it is not read as records later.
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

// rotate begins a new segment whose first record is seq. The caller holds writing.
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
	if old := l.segments[len(l.segments)-1]; old.first == seq { // it is empty: keep it, because the reader may have it
		return old, nil
	}
	l.segments = append(l.segments, s)
	return s, nil
}

// Rotate closes the file that is written to, and the next record begins a new one. Like every closed
// file, it is removed once all of its records are acknowledged, perhaps at once. Without Rotate,
// acknowledged records stay on disk until the file is full. A crash meanwhile loses nothing: a new
// process never writes to an old file.
func (l *Log) Rotate() error {
	l.writing.Lock()
	err := endSegment(l)
	l.writing.Unlock()
	if err != nil {
		return diskFault(err)
	}
	return l.reader.sweep(l)
}

// endSegment closes the active segment, so that the next record begins a new one. The caller holds
// writing.
func endSegment(l *Log) error {
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

// refuse counts records that were not accepted.
func (l *Log) refuse(n int) {
	l.mu.Lock()
	l.tally.refused += int64(n)
	l.mu.Unlock()
}

// Depth returns the number of records that are not acknowledged.
func (l *Log) Depth() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reader.ackSeq > l.lastSeq {
		return 0
	}
	return max(1, l.reader.depth)
}

// written returns the number of the last record that was written.
func (l *Log) written() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastSeq
}

// Bytes returns the size of the records that are not acknowledged, in bytes.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued - l.acked
}

// Close closes the log. Records that are not acknowledged stay for the next Open.
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

// Wait waits until all records are acknowledged. A shutdown that ships everything first calls it. It
// returns the error of ctx, or ErrClosed.
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
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if isFull(err) {
		return fault.New(fault.StorageFull, "storage_full", "the disk of the spool is full").Because(err)
	}
	return unavailable(err)
}

func unavailable(err error) error {
	return fault.New(fault.Unavailable, "spool_unavailable", "the spool cannot be written").After(time.Second).Because(err)
}
