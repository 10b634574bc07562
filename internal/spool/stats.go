package spool

import (
	"errors"
	"os"
	"time"
)

const (
	// probeEvery is how often a failed disk is tried while nobody appends.
	probeEvery = time.Second
	// probeBytes is what it must take then.
	probeBytes = 64 << 10
	// maxMarks is the number of moments that are kept to find the age of records.
	maxMarks = 4096
)

// Stats is the state of a log.
type Stats struct {
	Records  int64         // that are not acknowledged
	Bytes    int64         // of these
	MaxBytes int64         // the limit of Bytes
	Lag      time.Duration // approximate age of the oldest of these; 0 if there is none
	Refused  int64         // records that were refused since Open
	Healed   int64         // how often the log continued in a new file after a failure
	// Failing is why the log cannot be written now; nil if it can.
	Failing error
	// Full says that the limit was reached, and that little has been shipped since.
	Full bool
}

// Refuses reports whether the log accepts nothing now.
func (s Stats) Refuses() bool { return s.Failing != nil || s.Full }

// Filling reports whether the log is over 80 % of its limit: find out why nothing is
// shipped.
func (s Stats) Filling() bool { return s.Bytes >= s.MaxBytes/5*4 }

// tally is the source of Stats. Log.mu guards it.
type tally struct {
	refused, healed int64
	failing         error
	full            bool
	probed          time.Time
	marks           []mark // oldest first
}

// mark says that all records up to seq had been appended at a moment.
type mark struct {
	seq uint64
	at  time.Time
}

// setStart notes since when there are the records of an earlier process.
func (t *tally) setStart(last uint64, at time.Time) {
	if !at.IsZero() {
		t.marks = append(t.marks, mark{last, at})
	}
}

// oldest is when the oldest segment was last written to; zero: there is none.
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

// observe notes how far the log is, and tries a disk that has failed.
func (l *Log) observe(now time.Time) {
	l.mu.Lock()
	t := &l.tally
	for len(t.marks) > 0 && t.marks[0].seq < l.reader.ackSeq {
		t.marks = t.marks[1:]
	}
	if n := len(t.marks); l.lastSeq >= l.reader.ackSeq && (n == 0 || t.marks[n-1].seq < l.lastSeq) {
		t.marks = append(t.marks, mark{l.lastSeq, now})
	}
	if len(t.marks) > maxMarks { // a long outage: every second moment will do
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
