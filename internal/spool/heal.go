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
	// maxHeld bounds the frames that are kept in memory between two syncs. Beyond
	// it whoever appends waits for the disk.
	maxHeld = 32 << 20
	// maxRoom is the room for frames that is kept for those after the next sync.
	maxRoom = 8 << 20
	// healEvery is how often a new file is tried while the disk fails.
	healEvery = 100 * time.Millisecond
	// healing is how the name of a file ends that does not count yet.
	healing = ".heal"
)

// output is a file that is written to. After a sync of it has failed nobody knows
// which of its pages are on disk, and the next sync may claim that all are: so it
// is never synced again.
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

// sync forces what was written to disk, in the active file or else in a new one.
// Caller holds writing.
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

// syncBatch is sync for a batch that is not promised before it is on disk; the
// first bytes of held are those that were promised before it.
func (l *Log) syncBatch(b *batch, promised int) error {
	err := l.active.flush()
	if err == nil {
		l.release(len(l.held))
		return nil
	}
	l.mu.Lock() // the batch counts as written, so that healing takes it along
	s := l.segments[len(l.segments)-1]
	s.end += int64(len(b.buf))
	l.mu.Unlock()
	err = l.replaceFile(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	s = l.segments[len(l.segments)-1]
	s.end -= int64(len(b.buf)) // write adds it
	if err != nil {
		l.held = l.held[:promised]
	}
	return err
}

// release forgets the first n bytes of held: they are on disk.
func (l *Log) release(n int) {
	rest := l.held[n:]
	if cap(l.held) > maxRoom {
		l.held = nil
	}
	l.held = append(l.held[:0], rest...)
	l.flushed++
}

// retryReplace tries again to find a file for what could not be synced. Caller holds writing.
func (l *Log) retryReplace() error {
	if l.broken == nil || time.Since(l.tried) < healEvery {
		return l.broken
	}
	return l.replaceFile(l.broken)
}

// replaceFile goes on in a new file after the active one failed, and writes everything
// there that the old one was not known to have on disk. Until that has worked
// the log takes nothing more. Caller holds writing.
//
//	1  2  3 | 4  5  6     the old file: 1 to 3 are on disk, 4 to 6 may be lost
//	          4  5  6     the new one counts from 4 on, once it is on disk as a whole
func (l *Log) replaceFile(cause error) error {
	failed := l.active != nil || len(l.held) > 0
	if l.active != nil {
		_ = l.active.Close() // nothing that it could say would be believed
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

// forceSync forces what was written to disk, and reports whether it is there now.
func (l *Log) forceSync() bool {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.sync() == nil
}

// rewrite makes the new file. It has its proper name only when all of it is on disk.
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

// replace puts the new file into the list of segments: in the place of the old
// one where it holds all of it, else behind it. What the reader has not read of
// the old one yet, it reads in the new one; what it has, it knows by the number.
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
	if r := &l.reader; r.seg == old && r.off > old.end { // a part was read in the old file
		old.end, old.last = r.off, r.min-1
	}
	l.queued += size - (end - old.end)
	l.segments = append(l.segments, &segment{path: path, first: first, last: last, end: size})
}

// syncConcurrently forces what has been written to disk while others go on writing,
// so that nobody who appends waits for the disk.
func (l *Log) syncConcurrently() {
	l.writing.Lock()
	_ = l.retryReplace() // its failure is in Stats
	f, n, flushed := l.active, len(l.held), l.flushed
	l.writing.Unlock()
	if n == 0 || f == nil {
		return
	}
	err := f.flush()
	l.writing.Lock()
	defer l.writing.Unlock()
	switch {
	case l.active != f: // whoever took it away saw to what it held
	case err != nil:
		_ = l.replaceFile(err) // its failure is in Stats
	case l.flushed == flushed:
		l.release(n)
	}
}

// runPeriodic does what is due at intervals until the log is closed.
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

// probe tries whether the disk takes anything again, while nobody appends.
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

// isFull reports whether the disk, or what we may take of it, is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
