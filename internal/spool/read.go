package spool

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Batch is what Next delivers: records in the order in which they were written.
type Batch struct {
	// Records are not overwritten: the consumer may keep them.
	Records [][]byte
	last    uint64
}

// extent is a batch that was delivered and is not acknowledged yet.
type extent struct {
	last  uint64
	bytes int64
	count int64
}

// reader is the state of the consumer. Log.mu guards it, except for file and slot, which only the
// consumer uses.
type reader struct {
	ackSeq    uint64 // the first record that is not acknowledged
	saved     uint64 // ackSeq in the ack file
	depth     int64  // records not acknowledged
	seg       *segment
	off       int64
	min       uint64 // the next record's number is at least this
	delivered []extent

	file     *os.File
	fileOf   *segment
	fileMade int // segment.made of the file
	ackFile  *os.File
	slot     int64
	stepOnce sync.Once
	stepped  chan struct{}
}

// progress returns the channel that Ack signals.
func (r *reader) progress() chan struct{} {
	r.stepOnce.Do(func() { r.stepped = make(chan struct{}, 1) })
	return r.stepped
}

// Next waits for records and returns up to max of them, after those that it returned before. After
// Close it returns ErrClosed.
func (l *Log) Next(ctx context.Context, max int) (Batch, error) {
	for {
		select {
		case <-l.closing:
			return Batch{}, ErrClosed
		default:
		}
		b, err := l.read(max)
		if err != nil || len(b.Records) > 0 {
			return b, err
		}
		select {
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		case <-l.closing:
			return Batch{}, ErrClosed
		case <-l.more:
		}
	}
}

// read returns the next batch; it is empty if there are no records now.
func (l *Log) read(max int) (Batch, error) {
	var sure int64 // 1 + the number of replaced files when everything was known to be on disk; 0: never
	for {
		healed := l.countReplaced()
		seg, made, off, end, last := l.position()
		if seg == nil {
			return Batch{}, nil
		}
		b, used, err := l.readAt(seg, made, off, end, max)
		if err != nil {
			return Batch{}, fmt.Errorf("spool: read: %w", err)
		}
		if !whole(b, used) && (sure != healed+1 || healed != l.countReplaced()) { // a failed sync may have lost records: force them to disk, perhaps in a new file, and read again
			if !l.forceSync() {
				return Batch{}, nil
			}
			sure = l.countReplaced() + 1
			continue
		}
		if len(b.Records) == 0 {
			used = int(end - off) // there is only damaged data up to the end, or none
			b.last = last
		}
		l.deliver(b, int64(used))
		if len(b.Records) > 0 {
			return b, nil
		}
	}
}

// readAt reads up to max records that lie between off and end.
func (l *Log) readAt(seg *segment, made int, off, end int64, max int) (Batch, int, error) {
	data, err := l.load(seg, made, off, end, maxBatchBytes)
	if err != nil {
		return Batch{}, 0, err
	}
	b, used := collect(data, l.reader.min, max, int64(len(data)) == end-off)
	if len(b.Records) == 0 { // a record larger than the window, or damage
		if data, err = l.load(seg, made, off, end, end-off); err != nil {
			return Batch{}, 0, err
		}
		b, used = collect(data, l.reader.min, max, true)
	}
	return b, used, nil
}

// whole reports whether a batch has records and no damaged data between them.
func whole(b Batch, used int) bool {
	size := int64(0)
	for _, r := range b.Records {
		size += frameSize(len(r))
	}
	return len(b.Records) > 0 && size == int64(used)
}

// position moves to the segment with the next record. It returns the segment, the position of the
// record, the end of the segment's records, and the number of the last one. seg is nil if there is
// nothing to read.
func (l *Log) position() (seg *segment, made int, off, end int64, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.reader
	if !r.moveOn(l.segments) {
		return nil, 0, 0, 0, 0
	}
	return r.seg, r.seg.made, r.off, r.seg.end, r.seg.last
}

// moveOn skips segments whose records were all delivered. It returns false if there is nothing to
// read.
func (r *reader) moveOn(segments []*segment) bool {
	for r.off >= r.seg.end {
		next := segmentAfter(segments, r.seg)
		if next == nil {
			return false
		}
		r.seg, r.off = next, 0
	}
	return true
}

func segmentAfter(list []*segment, seg *segment) *segment {
	for i, s := range list[:len(list)-1] {
		if s == seg {
			return list[i+1]
		}
	}
	return nil
}

// load reads up to limit bytes of a segment.
func (l *Log) load(seg *segment, made int, off, end, limit int64) ([]byte, error) {
	r := &l.reader
	if r.fileOf != seg || r.fileMade != made {
		if r.file != nil {
			_ = r.file.Close() // it was only read
			r.file, r.fileOf = nil, nil
		}
		f, err := os.Open(seg.path)
		if err != nil {
			return nil, err
		}
		r.file, r.fileOf, r.fileMade = f, seg, made
	}
	data := make([]byte, min(end-off, limit))
	n, err := r.file.ReadAt(data, off)
	if errors.Is(err, io.EOF) { // the file was truncated by somebody: use the rest
		err = nil
	}
	return data[:n], err
}

// collect returns up to max records of data; used is the end of the last one. Unless whole says that
// data reaches to the end of the segment, it stops at a record that seems to continue after data.
func collect(data []byte, min uint64, max int, whole bool) (b Batch, used int) {
	for len(b.Records) < max {
		f, need, ok := frameAt(data, used, min)
		if !ok && need > 0 && !whole {
			return b, used
		}
		if !ok {
			if f, ok = findFrame(data, used, min); !ok {
				return b, used
			}
		}
		b.Records = append(b.Records, f.payload)
		b.last, min, used = f.seq, f.seq+1, f.end
	}
	return b, used
}

func (l *Log) deliver(b Batch, used int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.reader
	r.off += used
	r.min = max(r.min, b.last+1)
	r.delivered = append(r.delivered, extent{last: b.last, bytes: used, count: int64(len(b.Records))})
	if len(b.Records) == 0 && len(r.delivered) == 1 {
		l.acknowledge(b.last)
	}
}

// acknowledge counts everything up to record last as acknowledged. The caller holds mu.
func (l *Log) acknowledge(last uint64) {
	r := &l.reader
	for len(r.delivered) > 0 && r.delivered[0].last <= last {
		l.acked += r.delivered[0].bytes
		r.depth -= r.delivered[0].count
		r.ackSeq = r.delivered[0].last + 1
		r.delivered = r.delivered[1:]
	}
	l.acked = min(l.acked, l.queued) // records that were written again may have been counted twice
	if r.ackSeq > l.lastSeq {        // damaged records were not delivered, but do not wait either
		r.depth = 0
	}
}

// Ack acknowledges a batch and all batches before it: they are stored elsewhere, and are not
// delivered again. It removes files whose records are all acknowledged.
func (l *Log) Ack(b Batch) error {
	l.mu.Lock()
	r := &l.reader
	l.acknowledge(b.last)
	seq := r.ackSeq
	l.mu.Unlock()
	if err := r.saveAck(l.cfg.Dir, seq); err != nil {
		return diskFault(err)
	}
	l.mu.Lock()
	r.saved = seq
	l.mu.Unlock()
	select {
	case r.progress() <- struct{}{}:
	default:
	}
	return r.sweep(l)
}

// sweep removes the files whose records are all acknowledged, except the one that is written to.
func (r *reader) sweep(l *Log) error {
	l.mu.Lock()
	r.moveOn(l.segments)
	var old []*segment
	for len(l.segments) > 1 && l.segments[0].last < r.saved && l.segments[0] != r.seg {
		old = append(old, l.segments[0])
		l.segments = l.segments[1:]
	}
	l.mu.Unlock()
	for _, s := range old {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return diskFault(err)
		}
	}
	return nil
}

// ackBytes is the size of one of the two slots of the ack file, in bytes: the number and its CRC.
const ackBytes = 16

// saveAck writes the acknowledged position to the older of the two slots, so that a torn write does
// not destroy the current position.
func (r *reader) saveAck(dir string, seq uint64) error {
	if r.ackFile == nil {
		f, err := os.OpenFile(filepath.Join(dir, "ack"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		r.ackFile = f
	}
	var slot [ackBytes]byte
	binary.LittleEndian.PutUint64(slot[:], seq)
	binary.LittleEndian.PutUint32(slot[8:], crc32.Checksum(slot[:8], castagnoli))
	r.slot = 1 - r.slot
	_, err := r.ackFile.WriteAt(slot[:], r.slot*ackBytes)
	return err
}

// loadAck reads the acknowledged position; 0 if there is none.
func (r *reader) loadAck(dir string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(dir, "ack"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	var seq uint64
	for i := int64(0); int64(len(data)) >= (i+1)*ackBytes; i++ {
		slot := data[i*ackBytes:]
		at := binary.LittleEndian.Uint64(slot)
		if crc32.Checksum(slot[:8], castagnoli) == binary.LittleEndian.Uint32(slot[8:]) && at > seq {
			seq, r.slot = at, i
		}
	}
	return seq, nil
}

func (r *reader) close() error {
	var errs []error
	for _, f := range []*os.File{r.file, r.ackFile} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func segmentPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d.seg", first))
}

// recover loads the segments of an earlier process, truncates a torn tail, and positions the reader
// after the last acknowledged record.
func (l *Log) recover() error {
	r := &l.reader
	acked, err := r.loadAck(l.cfg.Dir)
	if err != nil {
		return err
	}
	r.ackSeq = max(acked, 1)
	r.saved = r.ackSeq
	paths, err := filepath.Glob(filepath.Join(globSafe(l.cfg.Dir), "*.seg"))
	if err != nil {
		return err
	}
	firsts := make([]uint64, len(paths), len(paths)+1)
	for i, path := range paths { // Glob sorts
		digits, _, _ := strings.Cut(filepath.Base(path), ".")
		if firsts[i], err = strconv.ParseUint(digits, 10, 64); err != nil {
			return fmt.Errorf("%s is not a segment", path)
		}
	}
	firsts = append(firsts, math.MaxUint64)
	l.nextSeq = r.ackSeq
	for i, path := range paths {
		if err := l.recoverSegment(path, firsts[i], firsts[i+1], i == len(paths)-1); err != nil {
			return err
		}
	}
	if err := removeLeftovers(l.cfg.Dir); err != nil {
		return err
	}
	l.segments = append(l.segments, &segment{path: segmentPath(l.cfg.Dir, l.nextSeq), first: l.nextSeq, last: l.nextSeq - 1})
	if r.seg == nil {
		r.seg = l.segments[len(l.segments)-1]
	}
	r.min, r.depth, l.lastSeq = r.ackSeq, l.recovery.Records, l.nextSeq-1
	return nil
}

// removeLeftovers removes temporary files of an earlier process. No Append relied on them.
func removeLeftovers(dir string) error {
	left, err := filepath.Glob(filepath.Join(globSafe(dir), "*"+healing))
	for _, path := range append(left, filepath.Join(dir, "probe")) {
		if gone := os.Remove(path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// recoverSegment loads one file, up to the first record of the next file. It removes a file whose
// records are all acknowledged.
func (l *Log) recoverSegment(path string, first, next uint64, newest bool) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r := &l.reader
	s := &segment{path: path, first: first, last: first - 1}
	start := int64(-1) // of the first record to deliver
	for off := 0; ; {
		f, ok := findFrame(data, off, s.last+1)
		if !ok {
			break
		}
		if f.seq >= next { // the next file has the rest: a sync of this file had failed
			data = data[:off]
			break
		}
		l.recovery.DamagedBytes += int64(f.start - off)
		off = f.end
		s.last, s.end = f.seq, int64(f.end)
		if f.seq >= r.ackSeq {
			if start < 0 {
				start = int64(f.start)
			}
			l.recovery.Records++
		}
	}
	if rest := int64(len(data)) - s.end; rest > 0 {
		if newest {
			l.recovery.CutBytes += rest
		} else {
			l.recovery.DamagedBytes += rest
		}
		if err := os.Truncate(path, s.end); err != nil {
			return err
		}
	}
	l.nextSeq = max(l.nextSeq, s.last+1)
	if start < 0 {
		return os.Remove(path)
	}
	if r.seg == nil {
		r.seg, r.off = s, start
	} else {
		start = 0
	}
	l.queued += s.end - start
	l.segments = append(l.segments, s)
	return nil
}

// globSafe escapes the characters of a folder's name that have a meaning in a Glob pattern.
func globSafe(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
