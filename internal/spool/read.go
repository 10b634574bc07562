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
	// Records are good until the consumer drops them; nobody reuses their memory.
	Records [][]byte
	last    uint64
}

// extent is what was delivered and not acknowledged yet.
type extent struct {
	last  uint64
	bytes int64
	count int64
}

// reader is the consumer's side of the log. Log.mu guards it, but for file and
// slot, which only the consumer uses.
type reader struct {
	ackSeq    uint64 // the first record that is not acknowledged
	saved     uint64 // ackSeq as the ack file has it
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

// progress is signalled after each Ack.
func (r *reader) progress() chan struct{} {
	r.stepOnce.Do(func() { r.stepped = make(chan struct{}, 1) })
	return r.stepped
}

// Next waits for records and delivers up to max of them, those after the ones
// that it delivered before. After Close it gives ErrClosed.
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

// read takes what is there now.
func (l *Log) read(max int) (Batch, error) {
	var sure int64 // how often the log had healed when everything was known to be on disk
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
		if !whole(b, used) && (sure != healed+1 || healed != l.countReplaced()) { // lost by a sync that failed: it is written anew, and read then
			if !l.forceSync() {
				return Batch{}, nil
			}
			sure = l.countReplaced() + 1
			continue
		}
		if len(b.Records) == 0 {
			used = int(end - off) // nothing but damage up to the end, or nothing at all
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

// whole reports whether there is nothing between the records of a batch.
func whole(b Batch, used int) bool {
	size := int64(0)
	for _, r := range b.Records {
		size += frameSize(len(r))
	}
	return len(b.Records) > 0 && size == int64(used)
}

// position is where the next record is, moved on to the segment that has it,
// where the records end that are there now, and the number of the last of them.
func (l *Log) position() (seg *segment, made int, off, end int64, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.reader
	if !r.moveOn(l.segments) {
		return nil, 0, 0, 0, 0
	}
	return r.seg, r.seg.made, r.off, r.seg.end, r.seg.last
}

// moveOn leaves segments of which everything was delivered; false: there is nothing to read.
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
	if errors.Is(err, io.EOF) { // somebody cut the file short: what is left is searched
		err = nil
	}
	return data[:n], err
}

// collect gathers up to max records that lie in data; used is where the last of
// them ends. Unless data is the whole rest, what seems to go on behind it is left.
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

// acknowledge counts everything up to record last as acknowledged. Caller holds mu.
func (l *Log) acknowledge(last uint64) {
	r := &l.reader
	for len(r.delivered) > 0 && r.delivered[0].last <= last {
		l.acked += r.delivered[0].bytes
		r.depth -= r.delivered[0].count
		r.ackSeq = r.delivered[0].last + 1
		r.delivered = r.delivered[1:]
	}
	l.acked = min(l.acked, l.queued) // what was written anew may have been read twice
	if r.ackSeq > l.lastSeq {        // those that were found damaged wait no more either
		r.depth = 0
	}
}

// Ack says that a batch, and all those delivered before it, are stored
// elsewhere: they are not delivered again, and files without others go.
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

// sweep removes the files of which everything is acknowledged, but for the one that is
// written to.
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

// ackBytes is the size of one of the two slots of the ack file: number, CRC.
const ackBytes = 16

// saveAck writes the acknowledged position into the slot that does not hold the
// present one, so that a torn write leaves that.
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

// recover finds the segments of an earlier process, cuts a torn tail, and puts
// the reader behind the last acknowledged record.
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

// removeLeftovers removes what an earlier process was writing when it died. No Append
// relied on it.
func removeLeftovers(dir string) error {
	left, err := filepath.Glob(filepath.Join(globSafe(dir), "*"+healing))
	for _, path := range append(left, filepath.Join(dir, "probe")) {
		if gone := os.Remove(path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// recoverSegment takes one file in, up to the record that the next file begins
// with. Files of which everything is acknowledged go.
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
		if f.seq >= next { // the rest was written anew there, after a sync of this file had failed
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

// globSafe escapes what Glob would take for a pattern in a folder's name.
func globSafe(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
