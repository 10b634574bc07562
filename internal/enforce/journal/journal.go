// Package journal keeps the decision log of a bouncer on disk until it is shipped, and
// records in the log how many decisions it could not keep.
package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// Config says where the log is and how large it may become.
type Config struct {
	// Dir is the bouncer's data directory.
	Dir string
	// MaxBytes limits the log. Reserve is reserved for it on the disk. Both are in bytes.
	MaxBytes, Reserve int64
	// Missing makes the event about missing decisions.
	Missing func(g *Gap, now time.Time) []byte
	// Changed is called when the trouble of the log starts or ends.
	Changed func()

	IDs   *ids.Source
	Count *metrics.Counters
	Log   *slog.Logger
	Now   func() time.Time
}

// Journal is the decision log on disk. Make it with Open.
type Journal struct {
	Config
	// Spool holds the events that are not shipped yet.
	Spool   *spool.Log
	reserve *spool.Reserve
	missing gaps
	failing atomic.Bool
}

// Open opens the log below c.Dir, with the gaps of earlier processes.
func Open(c Config) (*Journal, error) {
	j := &Journal{Config: c}
	var err error
	if j.reserve, err = spool.ReserveSpace(c.Dir, c.Reserve); err != nil {
		return nil, fmt.Errorf("bouncer: the decision log: %w", err)
	}
	j.Spool, err = spool.Open(spool.Config{
		Dir: filepath.Join(c.Dir, "decisions"), MaxBytes: c.MaxBytes, SegmentBytes: min(c.MaxBytes/4+1, 32<<20), Reserve: j.reserve,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bouncer: the decision log: %w", err), j.reserve.Close())
	}
	j.missing.open(c.Dir, c.Log)
	return j, nil
}

// Close closes the files.
func (j *Journal) Close() error {
	return errors.Join(j.Spool.Close(), j.missing.marks.Close(), j.reserve.Close())
}

// Write writes the event of a decision. It returns false if the event is lost. A lost event
// is counted, reported at once, and recorded in the log as soon as the log can be written
// again. Events of refusals must leave some room, so that a flood of them cannot displace
// the events of permitted requests.
func (j *Journal) Write(at time.Time, passed bool, event []byte) (kept bool) {
	var err error
	if passed {
		err = j.Spool.Append(event)
	} else {
		err = j.Spool.AppendIfRoom(event)
	}
	if err != nil {
		j.noteLost(at, passed, err)
		return false
	}
	if j.failing.Load() {
		j.writeGaps(at)
	}
	return true
}

// noteLost counts an event that could not be written because the disk is full or fails.
// The first one is reported at once.
func (j *Journal) noteLost(at time.Time, passed bool, err error) {
	j.Count.LogsDropped.Add(1)
	if failed := j.missing.add(func() string { return j.IDs.Next(at) }, at, passed); failed != nil && !j.failing.Load() {
		j.Log.Warn("missing decisions are counted in memory only", "error", failed)
	}
	if !j.failing.Swap(true) {
		j.Log.Error("decisions cannot be logged", "error", err)
		j.Changed()
	}
}

// writeGaps records the missing decisions in the log.
func (j *Journal) writeGaps(now time.Time) {
	g := &j.missing
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.list) > 0 {
		one := g.list[0]
		if j.Spool.Append(j.Missing(one, now)) != nil {
			return // still no room; the next event tries again
		}
		j.Log.Warn("decisions are logged again", "missing", one.Count, "passed", one.Passed, "from", one.First.UTC(), "to", one.Last.UTC())
		if err := g.removeFirst(); err != nil {
			j.Log.Warn("the record of missing decisions cannot be removed", "error", err)
		}
	}
	j.failing.Store(false)
	j.Changed()
}

// checkEvery is how often the log and its disk are checked.
const checkEvery = 250 * time.Millisecond

// Run maintains the log and its disk until ctx ends. It reserves disk space, records
// missing decisions even if no new decision arrives, and reports trouble.
func (j *Journal) Run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	reported := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		disk := j.reserve.Check()
		if (j.failing.Load() || j.missing.pending()) && !j.Refuses() {
			j.writeGaps(j.Now())
		}
		now := j.problem(disk)
		if now == reported {
			continue
		}
		if reported = now; now != "" {
			j.Log.Error("alert", "message", now)
		} else {
			j.Log.Info("the decision log and its disk work again")
		}
		j.Changed()
	}
}

// Trouble returns what is wrong with the log or its disk; empty: nothing.
func (j *Journal) Trouble() string { return j.problem(j.reserve.Stats()) }

func (j *Journal) problem(disk spool.ReserveStats) string {
	s := j.Spool.Stats()
	switch {
	case s.Failing != nil:
		return "the decision log cannot be written: its disk is full or failing"
	case s.Full:
		return "the decision log is full"
	case disk.InUse:
		return "the disk is full: the decision log uses the reserve of disk space"
	case s.Filling():
		return "the decision log is nearly full"
	case disk.Low:
		return "the disk of the decision log is nearly full"
	}
	return ""
}

// Failing reports whether decisions are missing that the log has not recorded.
func (j *Journal) Failing() bool { return j.failing.Load() }

// NoteFailing records that the log could not be read or written.
func (j *Journal) NoteFailing() { j.failing.Store(true) }

// Refuses reports whether the log accepts no events now.
func (j *Journal) Refuses() bool { return j.Spool.Stats().Refuses() }

// Disk returns the state of the reserved disk space.
func (j *Journal) Disk() spool.ReserveStats { return j.reserve.Stats() }
