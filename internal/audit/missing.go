package audit

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Missing counts decisions that were answered but are not in the log: the log could not be
// written, and Config.BestEffort was set.
type Missing struct {
	Permits, Denials int64
	First, Last      time.Time
}

// Count returns how many are missing.
func (m Missing) Count() int64 { return m.Permits + m.Denials }

// missing holds the counts until the log can store them.
type missing struct {
	open  atomic.Int64 // not in the log yet
	total atomic.Int64 // since the process started

	mu      sync.Mutex
	by      map[missingKey]*unlogged
	earlier []*unlogged // of earlier processes; their entries already have ids
}

type missingKey struct {
	tenant scope.TenantID
	env    scope.Env
}

// unlogged is a count that the log does not contain yet, for one tenant and environment. A mark
// on disk holds the same data, so that it survives the process.
type unlogged struct {
	missingKey
	Missing
	id    string // of the entry to be written: if it is sent twice, it is stored once
	place int    // of the mark; -1: none
}

// mark is the form of unlogged on disk.
type mark struct {
	ID      string         `json:"id"`
	Tenant  scope.TenantID `json:"t"`
	Env     scope.Env      `json:"e"`
	Permits int64          `json:"p"`
	Denials int64          `json:"d"`
	First   int64          `json:"f"` // microseconds since 1970
	Last    int64          `json:"l"`
}

// loadMissing takes over the counts that earlier processes could not log.
func (l *DecisionLog) loadMissing(left map[int][]byte) {
	for place, text := range left {
		var m mark
		if err := json.Unmarshal(text, &m); err != nil || m.ID == "" {
			l.cfg.Logger.Error("a mark of missing decisions cannot be read", "error", err)
			continue
		}
		u := &unlogged{
			missingKey: missingKey{m.Tenant, m.Env}, id: m.ID, place: place,
			Missing: Missing{Permits: m.Permits, Denials: m.Denials, First: time.UnixMicro(m.First), Last: time.UnixMicro(m.Last)},
		}
		l.missing.earlier = append(l.missing.earlier, u)
		l.missing.open.Add(u.Count())
	}
}

// countMissing counts decisions that could not be logged.
func (l *DecisionLog) countMissing(tenant scope.TenantID, ds []Decision, now time.Time) {
	m := &l.missing
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[missingKey]*unlogged{}
	}
	touched := map[*unlogged]bool{}
	for i := range ds {
		key := missingKey{tenant, ds[i].Environment}
		if !key.env.Valid() {
			key.env = scope.Production
		}
		u := m.by[key]
		if u == nil {
			u = &unlogged{missingKey: key, id: "missing-" + rand.Text(), place: -1}
			u.First = now
			if place, ok := l.cfg.Marks.Take(); ok {
				u.place = place
			}
			m.by[key] = u
		}
		u.Last = now
		if ds[i].Decision == Permit {
			u.Permits++
		} else {
			u.Denials++
		}
		touched[u] = true
	}
	m.open.Add(int64(len(ds)))
	m.total.Add(int64(len(ds)))
	for u := range touched {
		l.saveMark(u)
	}
}

// saveMark writes the count to its mark.
func (l *DecisionLog) saveMark(u *unlogged) {
	if u.place < 0 {
		return
	}
	text, err := json.Marshal(mark{u.id, u.tenant, u.env, u.Permits, u.Denials, u.First.UnixMicro(), u.Last.UnixMicro()})
	if err == nil {
		err = l.cfg.Marks.Set(u.place, text)
	}
	if err != nil {
		l.cfg.Alarm(u.tenant, fmt.Errorf("record missing decisions: %w", err))
	}
}

// clearMark removes the mark once the log contains the count. If this fails, the next process
// logs the count again with the same id, and the store drops it.
func (l *DecisionLog) clearMark(u *unlogged) {
	if u.place < 0 {
		return
	}
	if err := l.cfg.Marks.Clear(u.place); err != nil {
		l.cfg.Logger.Warn("a mark of missing decisions cannot be removed", "error", err)
	}
}

// MissingTotal returns how many decisions were answered without being logged since the process
// started.
func (l *DecisionLog) MissingTotal() int64 { return l.missing.total.Load() }

// MissingNow returns the missing decisions of each tenant that the log does not mention yet.
func (l *DecisionLog) MissingNow() map[scope.TenantID]Missing {
	out := map[scope.TenantID]Missing{}
	m := &l.missing
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.list() {
		sum, seen := out[u.tenant]
		if !seen || u.First.Before(sum.First) {
			sum.First = u.First
		}
		if u.Last.After(sum.Last) {
			sum.Last = u.Last
		}
		sum.Permits, sum.Denials = sum.Permits+u.Permits, sum.Denials+u.Denials
		out[u.tenant] = sum
	}
	return out
}

// list returns all counts that are not logged yet. The caller holds mu.
func (m *missing) list() []*unlogged {
	return slices.AppendSeq(slices.Clone(m.earlier), maps.Values(m.by))
}

// WriteMissing adds an entry to the decision log for each tenant and environment with missing
// decisions. The entries are part of the hash chain. It stops at the first entry that the spool
// does not accept, and returns its error.
func (l *DecisionLog) WriteMissing() error {
	m := &l.missing
	if m.open.Load() == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.list() {
		if err := l.spool(true, l.encode(nil, u.tenant, gapEntry(u, l.cfg.Now()))); err != nil {
			return err
		}
		l.cfg.Logger.Warn("decisions are logged again", "tenant", u.tenant, "environment", u.env, "missing", u.Count(), "from", u.First.UTC(), "to", u.Last.UTC())
		if m.by[u.missingKey] == u {
			delete(m.by, u.missingKey)
		}
		m.earlier = slices.DeleteFunc(m.earlier, func(o *unlogged) bool { return o == u })
		m.open.Add(-u.Count())
		l.clearMark(u)
	}
	return nil
}

// gapEntry returns the decision log's entry about missing decisions.
func gapEntry(g *unlogged, now time.Time) *Decision {
	message := fmt.Sprintf("%d decisions are missing (%d PERMIT, %d DENY): the server could not write its log from %s to %s",
		g.Count(), g.Permits, g.Denials, g.First.UTC().Format(time.RFC3339Nano), g.Last.UTC().Format(time.RFC3339Nano))
	return &Decision{
		DecisionID: g.id, Timestamp: now, Decision: Deny, Effect: "DENY", Reason: message, Error: message,
		Action: "decisions_missing", Environment: g.env, AuditLevel: Basic,
	}
}

// handleUnlogged handles decisions that the log could not store. With BestEffort it counts them
// as missing and returns nil, otherwise it returns err.
func (l *DecisionLog) handleUnlogged(tenant scope.TenantID, ds []Decision, err error) error {
	if !l.cfg.BestEffort {
		return err
	}
	l.countMissing(tenant, ds, l.cfg.Now())
	return nil
}

// unavailable returns the fault for a log that cannot be written.
func unavailable(err error) error {
	return fault.New(fault.Unavailable, "audit_unavailable", "the decision log cannot be written").After(time.Second).Because(err)
}
