package enforce

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// gap counts the decisions that the log could not keep, until it can say so. A mark
// on disk says the same, so that it outlives the process.
type gap struct {
	ID            string `json:"id"` // of the event that will say it: said twice, it is stored once
	Count, Passed uint64 // Passed of them are of requests that were let pass
	First, Last   time.Time
	place         int // of the mark; -1: none
}

// gaps are what the log has yet to say.
type gaps struct {
	marks *spool.Marks

	mu   sync.Mutex
	list []*gap // the last one counts; those before it are of earlier processes
	own  *gap   // the one of this process, if there is one
}

// openGaps opens the notes of missing decisions. A bouncer without them starts all
// the same: what is missing is then known to this process alone.
func (b *Bouncer) openGaps() {
	marks, left, err := spool.OpenMarks(filepath.Join(b.cfg.DataDir, "missing"), gapPlaces)
	if err != nil {
		b.log.Warn("missing decisions are counted in memory only", "error", err)
		return
	}
	b.missing.marks = marks
	for place, text := range left {
		g := &gap{place: place}
		if err := json.Unmarshal(text, g); err != nil || g.ID == "" {
			b.log.Error("a note of missing decisions cannot be read", "error", err)
			continue
		}
		b.missing.list = append(b.missing.list, g)
	}
}

// gapPlaces is how many processes in a row may leave a note.
const gapPlaces = 64

// any reports whether the log has something to say.
func (g *gaps) any() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.list) > 0
}

// note counts a decision, in memory and on disk.
func (g *gaps) note(id func() string, at time.Time, passed bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.own == nil {
		g.own = &gap{ID: id(), First: at, place: -1}
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

// removeFirst removes the first gap. A mark that stays is said again after a restart,
// under the same id. Caller holds mu.
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

// spoolEvent writes an event. Those of refusals leave the last room to those of what
// passed: nothing that was permitted is lost to make room for what was not.
func (b *Bouncer) spoolEvent(passed bool, event []byte) error {
	if passed {
		return b.spool.Append(event)
	}
	return b.spool.AppendIfRoom(event)
}

// noteLost notes an event that could not be written: the disk is full, or fails. The
// first one is told at once.
func (b *Bouncer) noteLost(at time.Time, passed bool, err error) {
	b.count.LogsDropped.Add(1)
	if failed := b.missing.note(func() string { return b.ids.Next(at) }, at, passed); failed != nil && !b.logsFailing.Load() {
		b.log.Warn("missing decisions are counted in memory only", "error", failed)
	}
	if !b.logsFailing.Swap(true) {
		b.log.Error("decisions cannot be logged", "error", err)
		b.report.wakeUp()
	}
}

// writeGaps writes into the log how many decisions are missing before what follows.
func (b *Bouncer) writeGaps(st *settings.State, now time.Time) {
	g := &b.missing
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.list) > 0 {
		one := g.list[0]
		if b.spool.Append(b.gapEvent(st, one, now)) != nil {
			return // still no room: the next to be kept tries again
		}
		b.log.Warn("decisions are logged again", "missing", one.Count, "passed", one.Passed, "from", one.First.UTC(), "to", one.Last.UTC())
		if err := g.removeFirst(); err != nil {
			b.log.Warn("a note of missing decisions cannot be removed", "error", err)
		}
	}
	b.logsFailing.Store(false)
	b.report.wakeUp()
}

// logCheck is how often the decision log and its disk are looked at.
const logCheck = 250 * time.Millisecond

// keepLog looks after the decision log and its disk until ctx ends: it holds room
// back, says what is missing although nothing is decided, and tells what is wrong.
func (b *Bouncer) keepLog(ctx context.Context) {
	tick := time.NewTicker(logCheck)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		disk := b.reserve.Check()
		if (b.logsFailing.Load() || b.missing.any()) && !b.spool.Stats().Refuses() {
			b.writeGaps(b.state.Load(), b.cfg.Now())
		}
		now := b.logTrouble(disk)
		if now == told {
			continue
		}
		if told = now; now != "" {
			b.log.Error("alert", "message", now)
		} else {
			b.log.Info("the decision log and its disk work again")
		}
		b.report.wakeUp()
	}
}

// logTrouble says what is wrong with the decision log; empty: nothing.
func (b *Bouncer) logTrouble(disk spool.ReserveStats) string {
	s := b.spool.Stats()
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

// logKept reports whether requests are decided on, as far as the log goes: one that
// is required and cannot be written has them refused.
func (b *Bouncer) logKept(st *settings.State) bool {
	return !st.LogRequired || st.Mode == settings.Shadowing || !b.spool.Stats().Refuses()
}

// writeReady answers /_bouncer/ready.
func (b *Bouncer) writeReady(w http.ResponseWriter, st *settings.State) {
	reason := ""
	switch {
	case b.leaving.Load():
		reason = "stopping"
	case st.Set == nil:
		reason = "no_bundle"
	case !b.ready(st):
		reason = "policy_stale"
	case !b.logKept(st):
		reason = "audit_unavailable"
	}
	s := b.spool.Stats()
	posture := "best_effort"
	if st.LogRequired {
		posture = "required"
	}
	log := fmt.Sprintf(`"audit":{"posture":%q,"writable":%t,"trouble":%q,"waiting":%d,"waiting_bytes":%d,"limit_bytes":%d,"lag_seconds":%.1f,"refused":%d,"missing":%d,"healed":%d}`,
		posture, !s.Refuses(), b.logTrouble(b.reserve.Stats()), s.Records, s.Bytes, s.MaxBytes, s.Lag.Seconds(), s.Refused, b.count.LogsDropped.Load(), s.Healed)
	if reason != "" {
		b.writeJSON(w, http.StatusServiceUnavailable, fmt.Sprintf(`{"status":"not_ready","reason":%q,%s}`, reason, log))
		return
	}
	b.writeJSON(w, http.StatusOK, `{"status":"ready",`+log+`}`)
}

// gapEvent is an event of the decision log about those that are not in it.
func (b *Bouncer) gapEvent(st *settings.State, g *gap, now time.Time) []byte {
	first, last := g.First.UTC().Format(time.RFC3339Nano), g.Last.UTC().Format(time.RFC3339Nano)
	message := fmt.Sprintf("%d decisions are missing (%d passed): the bouncer could not write its log from %s to %s", g.Count, g.Passed, first, last)
	dst := append([]byte(nil), *b.labels.Load()...)
	dst = value.AppendString(append(dst, `,"decision_id":`...), g.ID)
	dst = value.AppendString(append(dst, `,"bundles":{"authz":{"revision":`...), st.Revision)
	dst = now.UTC().AppendFormat(append(dst, `}},"path":"gatehouse/decision","timestamp":"`...), time.RFC3339Nano)
	dst = value.AppendString(append(dst, `","result":{"decision":"DENY","allow":false,"effect":"DENY","reason":`...), message)
	dst = value.AppendString(append(dst, `},"error":{"code":"decisions_missing","message":`...), message)
	dst = append(dst, `},"custom":{"mode":"`...)
	dst = append(append(dst, st.Mode.String()...), `","outcome":"DENY","status":"decisions_missing","event":"decisions_missing","missing":`...)
	dst = fmt.Appendf(dst, `%d,"passed":%d,"from":"%s","to":"%s","environment":`, g.Count, g.Passed, first, last)
	dst = value.AppendString(dst, st.Environment)
	return append(dst, '}', '}')
}

// refuseUnlogged refuses a request whose decision the log could not keep, where the log
// is required; in shadow mode nothing is refused.
func (b *Bouncer) refuseUnlogged(ctx context.Context, in *inbound, st *settings.State, v *verdict) {
	if !st.LogRequired || v.mode == settings.Shadowing || !v.pass {
		return
	}
	in.seen.metered().Refund(ctx)
	v.resolve(&refusal{http.StatusServiceUnavailable, "audit_unavailable", "the decision cannot be logged, and this bouncer lets nothing pass that is not"}, nil)
	v.mask = nil
}
