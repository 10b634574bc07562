package spool

import (
	"errors"
	"os"
	"time"
)

const (
	// probeEvery is the pause between two tests of a failed disk.
	probeEvery = time.Second
	// probeBytes is how many bytes a test writes.
	probeBytes = 64 << 10
	// maxMarks is the largest number of marks from which the age of records is found.
	maxMarks = 4096
)

// Stats is the state of a log.
type Stats struct {
	Records  int64         // records that are not acknowledged
	Bytes    int64         // size of these records
	MaxBytes int64         // the limit of Bytes
	Lag      time.Duration // approximate age of the oldest of these; 0 if there is none
	Refused  int64         // records that were refused since Open
	Healed   int64         // how often the log continued in a new file after a failure
	// Failing is the error because of which the log cannot be written now; nil if it can.
	Failing error
	// Full means that the limit was reached, and that Bytes has not fallen much since.
	Full bool
}

// Refuses reports whether the log accepts nothing now.
func (s Stats) Refuses() bool { return s.Failing != nil || s.Full }

// Filling reports whether the log is at 80 % of its limit or more, probably because records are not
// shipped.
func (s Stats) Filling() bool { return s.Bytes >= s.MaxBytes/5*4 }

// tally contains the counts for Stats. Log.mu guards it.
type tally struct {
	refused, healed int64
	failing         error
	full            bool
	probed          time.Time
	marks           []mark // oldest first
}

// mark means that all records up to seq had been appended at a time.
type mark struct {
	seq uint64
	at  time.Time
}

// setStart sets the age of the records up to last, which an earlier process appended.
func (t *tally) setStart(last uint64, at time.Time) {
	if !at.IsZero() {
		t.marks = append(t.marks, mark{last, at})
	}
}

// oldest returns when the oldest segment was last written to. It is zero if there is none.
func oldest(segments []*segment) time.Time {
	info, err := os.Stat(segments[0].path)
	if err != nil {
		return time.Time{} // a new log has no file yet
	}
	return info.ModTime()
}

// Stats returns the current state of the log.
func (l *Log) Stats() Stats {
	depth := l.Depth()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Records: depth, Bytes: l.queued - l.acked, MaxBytes: l.cfg.MaxBytes,
		Refused: l.tally.refused, Healed: l.tally.healed, Failing: l.tally.failing, Full: l.tally.full,
	}
	for _, m := range l.tally.marks {
		if depth > 0 && m.seq >= l.reader.ackSeq {
			s.Lag = time.Since(m.at)
			break
		}
	}
	return s
}

// countReplaced returns how often the log continued in a new file.
func (l *Log) countReplaced() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally.healed
}

// observe adds a mark for the last record, and tests the disk if it has failed.
func (l *Log) observe(now time.Time) {
	l.mu.Lock()
	t := &l.tally
	for len(t.marks) > 0 && t.marks[0].seq < l.reader.ackSeq {
		t.marks = t.marks[1:]
	}
	if n := len(t.marks); l.lastSeq >= l.reader.ackSeq && (n == 0 || t.marks[n-1].seq < l.lastSeq) {
		t.marks = append(t.marks, mark{l.lastSeq, now})
	}
	if len(t.marks) > maxMarks { // a long outage: keep every second mark
		for i := 1; i < len(t.marks); i += 2 {
			t.marks[i/2] = t.marks[i]
		}
		t.marks = t.marks[:len(t.marks)/2]
	}
	t.full = t.full && l.queued-l.acked > l.cfg.MaxBytes/20*19
	due := t.failing != nil && now.Sub(t.probed) >= probeEvery
	if due {
		t.probed = now
	}
	l.mu.Unlock()
	if !due {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	err := errors.Join(l.retryReplace(), probe(l.cfg))
	l.mu.Lock()
	if err == nil {
		t.failing = nil
	}
	l.mu.Unlock()
}
