package journal

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// Gap counts decisions that could not be written to the log, until the log records the gap. A copy
// on disk, the mark, survives the process.
type Gap struct {
	// ID is the id of the event for the gap, so that an event that is written twice is
	// stored once.
	ID string `json:"id"`
	// Count is the number of missing decisions. Passed is how many of their requests
	// passed.
	Count, Passed uint64
	First, Last   time.Time
	place         int // of the mark; -1: there is none
}

// gaps holds the gaps that the log has not recorded yet.
type gaps struct {
	marks *spool.Marks

	mu   sync.Mutex
	list []*Gap // those of earlier processes first
	own  *Gap   // the gap of this process, also in list; nil: none
}

// gapPlaces is the number of marks: that many processes in a row may leave one.
const gapPlaces = 64

// open opens the marks of missing decisions below dir. A bouncer that cannot open them still
// starts. The counts are then in memory only.
func (g *gaps) open(dir string, log *slog.Logger) {
	marks, left, err := spool.OpenMarks(filepath.Join(dir, "missing"), gapPlaces)
	if err != nil {
		log.Warn("missing decisions are counted in memory only", "error", err)
		return
	}
	g.marks = marks
	for place, text := range left {
		one := &Gap{place: place}
		if err := json.Unmarshal(text, one); err != nil || one.ID == "" {
			log.Error("the record of missing decisions cannot be read", "error", err)
			continue
		}
		g.list = append(g.list, one)
	}
}

// pending reports whether the log has gaps to record.
func (g *gaps) pending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.list) > 0
}

// add counts a missing decision, in memory and on disk.
func (g *gaps) add(id func() string, at time.Time, passed bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.own == nil {
		g.own = &Gap{ID: id(), First: at, place: -1}
		if place, ok := g.marks.Take(); ok {
			g.own.place = place
		}
		g.list = append(g.list, g.own)
	}
	g.own.Count++
	g.own.Last = at
	if passed {
		g.own.Passed++
	}
	if g.own.place < 0 {
		return nil
	}
	text, err := json.Marshal(g.own)
	if err != nil {
		return err
	}
	return g.marks.Set(g.own.place, text)
}

// removeFirst removes the first gap. A mark that stays is recorded again after a restart,
// with the same id. The caller holds mu.
func (g *gaps) removeFirst() error {
	one := g.list[0]
	g.list = g.list[1:]
	if one == g.own {
		g.own = nil
	}
	if one.place < 0 {
		return nil
	}
	return g.marks.Clear(one.place)
}
