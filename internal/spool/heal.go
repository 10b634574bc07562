package spool

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// maxHeld limits the frames in memory between two syncs, in bytes. Beyond it, appends wait
	// for a sync.
	maxHeld = 32 << 20
	// maxRoom is the capacity, in bytes, up to which the buffer of frames is reused after a sync.
	maxRoom = 8 << 20
	// healEvery is the pause between two attempts to write a new file while the disk fails.
	healEvery = 100 * time.Millisecond
	// healing is the extension of a file that is not complete yet.
	healing = ".heal"
)

// output is the file that is written to. After a failed sync, it is unknown which of its pages are
// on disk, and the next sync may report success for all of them. So it is never synced again.
type output struct {
	file
	mu     sync.Mutex
	failed error
}

// flush forces the file to disk.
func (o *output) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = o.Sync()
	}
	return o.failed
}

// sync forces everything that was written to disk, in the active file or, if that fails, in a new
// one. The caller holds writing.
func (l *Log) sync() error {
	if len(l.held) == 0 || l.active == nil {
		return l.retryReplace()
	}
	if err := l.active.flush(); err != nil {
		return l.replaceFile(err)
	}
	l.release(len(l.held))
	return nil
}

// syncBatch is sync for a batch whose Append has not returned yet. promised is how many bytes of
// held belong to earlier batches, whose Append has returned.
func (l *Log) syncBatch(b *batch, promised int) error {
	err := l.active.flush()
	if err == nil {
		l.release(len(l.held))
		return nil
	}
	l.mu.Lock() // count the batch as written, so that a new file contains it
	s := l.segments[len(l.segments)-1]
	s.end += int64(len(b.buf))
	l.mu.Unlock()
	err = l.replaceFile(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	s = l.segments[len(l.segments)-1]
	s.end -= int64(len(b.buf)) // write adds it again
	if err != nil {
		l.held = l.held[:promised]
	}
	return err
}

// release removes the first n bytes of held, which are on disk.
func (l *Log) release(n int) {
	rest := l.held[n:]
	if cap(l.held) > maxRoom {
		l.held = nil
	}
	l.held = append(l.held[:0], rest...)
	l.flushed++
}

// retryReplace tries again to write a new file after a failure. It returns the failure if there
// still is no file to write to. The caller holds writing.
func (l *Log) retryReplace() error {
	if l.broken == nil || time.Since(l.tried) < healEvery {
		return l.broken
	}
	return l.replaceFile(l.broken)
}

// replaceFile continues in a new file after the active one failed. It writes everything there that
// may not be on disk in the old one. If that fails, the log accepts no records until a later attempt
// succeeds. The caller holds writing.
//
//	1  2  3 | 4  5  6     the old file: 1 to 3 are on disk, 4 to 6 may be lost
//	          4  5  6     the new file: used from 4 on, once it is completely on disk
func (l *Log) replaceFile(cause error) error {
	failed := l.active != nil || len(l.held) > 0
	if l.active != nil {
		_ = l.active.Close() // the file has failed already, so its error does not matter
		l.active = nil
	}
	l.broken, l.tried = cause, time.Now()
	if len(l.held) > 0 {
		f, path, err := l.rewrite()
		for isFull(err) && l.cfg.Reserve.Release() {
			f, path, err = l.rewrite()
		}
		if err != nil {
			l.broken = err
			l.mu.Lock()
			l.tally.failing = err
			l.mu.Unlock()
			return err
		}
		l.replace(path)
		l.active = &output{file: f}
		l.release(len(l.held))
	}
	l.broken = nil
	if failed {
		l.mu.Lock()
		l.tally.healed++
		l.tally.failing = nil
		l.mu.Unlock()
		l.wake()
	}
	return nil
}

// forceSync forces everything that was written to disk, and reports whether it succeeded.
func (l *Log) forceSync() bool {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.sync() == nil
}

// rewrite writes held to a new file. It gives the file its final name only when all of it is on disk.
func (l *Log) rewrite() (_ file, path string, err error) {
	path = segmentPath(l.cfg.Dir, binary.LittleEndian.Uint64(l.held[8:]))
	f, err := l.cfg.create(path + healing)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(path+healing))
		}
	}()
	if err := f.Truncate(0); err != nil {
		return nil, "", err
	}
	if _, err := f.WriteAt(l.held, 0); err != nil {
		return nil, "", err
	}
	if err := f.Sync(); err != nil {
		return nil, "", err
	}
	if err := os.Rename(path+healing, path); err != nil {
		return nil, "", err
	}
	return f, path, syncDir(l.cfg.Dir)
}

// replace adds the new file to the list of segments. If it contains all records of the old one, it
// takes its place, otherwise it follows it. The reader reads the records that it has not read yet
// from the new file, and skips the others by their numbers.
func (l *Log) replace(path string) {
	first, size := binary.LittleEndian.Uint64(l.held[8:]), int64(len(l.held))
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.segments[len(l.segments)-1]
	if old.first == first {
		old.made++
		return
	}
	end, last := old.end, old.last
	old.end, old.last = end-size, first-1
	if r := &l.reader; r.seg == old && r.off > old.end { // the reader has read a part from the old file
		old.end, old.last = r.off, r.min-1
	}
	l.queued += size - (end - old.end)
	l.segments = append(l.segments, &segment{path: path, first: first, last: last, end: size})
}

// syncConcurrently forces everything that was written to disk, without blocking appends meanwhile.
func (l *Log) syncConcurrently() {
	l.writing.Lock()
	_ = l.retryReplace() // Stats reports its error
	f, n, flushed := l.active, len(l.held), l.flushed
	l.writing.Unlock()
	if n == 0 || f == nil {
		return
	}
	err := f.flush()
	l.writing.Lock()
	defer l.writing.Unlock()
	switch {
	case l.active != f: // the one who replaced the file has also written its records
	case err != nil:
		_ = l.replaceFile(err) // Stats reports its error
	case l.flushed == flushed:
		l.release(n)
	}
}

// runPeriodic syncs (SyncInterval) and updates Stats at intervals until the log is closed.
func (l *Log) runPeriodic() {
	tick := time.NewTicker(l.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-l.closing:
			return
		case <-tick.C:
			if l.cfg.Sync == SyncInterval {
				l.syncConcurrently()
			}
			l.observe(time.Now())
		}
	}
}

// probe tests whether the disk can be written again, with a file that it removes.
func probe(cfg Config) error {
	path := filepath.Join(cfg.Dir, "probe")
	f, err := cfg.create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, probeBytes), 0)
	if err == nil && cfg.Sync != SyncNever {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}

// isFull reports whether the disk or the user's quota on it is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
