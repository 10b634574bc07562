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

// Missing counts decisions that were answered and are not in the log: it could not be written,
// and Config.BestEffort let them continue.
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

	mu     sync.Mutex
	by     map[missingKey]*unsaid
	before []*unsaid // left by earlier processes; their entries already have ids
}

type missingKey struct {
	tenant scope.TenantID
	env    scope.Env
}

// unsaid is a count that the log does not contain yet, for one tenant and environment. A mark on
// disk holds the same data, so that it survives the process.
type unsaid struct {
	missingKey
	Missing
	id    string // of the future entry: if it is written twice, it is stored once
	place int    // of the mark; -1: none
}

// mark is an unsaid in the form stored on disk.
type mark struct {
	ID      string         `json:"id"`
	Tenant  scope.TenantID `json:"t"`
	Env     scope.Env      `json:"e"`
	Permits int64          `json:"p"`
	Denials int64          `json:"d"`
	First   int64          `json:"f"` // microseconds since 1970
	Last    int64          `json:"l"`
}

// recallMissing loads the counts that earlier processes could not log.
func (l *DecisionLog) recallMissing(left map[int][]byte) {
	for place, text := range left {
		var m mark
		if err := json.Unmarshal(text, &m); err != nil || m.ID == "" {
			l.cfg.Logger.Error("the record of missing decisions cannot be read", "error", err)
			continue
		}
		u := &unsaid{
			missingKey: missingKey{m.Tenant, m.Env}, id: m.ID, place: place,
			Missing: Missing{Permits: m.Permits, Denials: m.Denials, First: time.UnixMicro(m.First), Last: time.UnixMicro(m.Last)},
		}
		l.missing.before = append(l.missing.before, u)
		l.missing.open.Add(u.Count())
	}
}

// countMissing counts decisions that could not be logged.
func (l *DecisionLog) countMissing(tenant scope.TenantID, ds []Decision, now time.Time) {
	m := &l.missing
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[missingKey]*unsaid{}
	}
	touched := map[*unsaid]bool{}
	for i := range ds {
		key := missingKey{tenant, ds[i].Environment}
		if !key.env.Valid() {
			key.env = scope.Production
		}
		u := m.by[key]
		if u == nil {
			u = &unsaid{missingKey: key, id: "missing-" + rand.Text(), place: -1}
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

// saveMark brings the mark up to date.
func (l *DecisionLog) saveMark(u *unsaid) {
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

// clearMark frees the mark once the log contains the count. A mark that stays is logged again
// after a restart, with the same id.
func (l *DecisionLog) clearMark(u *unsaid) {
	if u.place < 0 {
		return
	}
	if err := l.cfg.Marks.Clear(u.place); err != nil {
		l.cfg.Logger.Warn("the record of missing decisions cannot be removed", "error", err)
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
func (m *missing) list() []*unsaid {
	return slices.AppendSeq(slices.Clone(m.before), maps.Values(m.by))
}

// WriteMissing logs how many decisions are missing before the next record, in one entry for each
// tenant and environment. The entries are part of the hash chain. It stops at the first entry
// that the log does not accept.
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
		m.before = slices.DeleteFunc(m.before, func(o *unsaid) bool { return o == u })
		m.open.Add(-u.Count())
		l.clearMark(u)
	}
	return nil
}

// gapEntry returns the entry in the decision log about missing decisions.
func gapEntry(g *unsaid, now time.Time) *Decision {
	message := fmt.Sprintf("%d decisions are missing (%d PERMIT, %d DENY): the server could not write its log from %s to %s",
		g.Count(), g.Permits, g.Denials, g.First.UTC().Format(time.RFC3339Nano), g.Last.UTC().Format(time.RFC3339Nano))
	return &Decision{
		DecisionID: g.id, Timestamp: now, Decision: Deny, Effect: "DENY", Reason: message, Error: message,
		Action: "decisions_missing", Environment: g.env, AuditLevel: Basic,
	}
}

// handleUnlogged decides what to do with decisions that the log could not store: they are counted
// as missing and continue, or their caller gets a fault.
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
