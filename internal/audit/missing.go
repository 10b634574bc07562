package audit

import (
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Missing counts decisions that were answered and are not in the log: it could
// not be kept, and Config.BestEffort let them go on.
type Missing struct {
	Permits, Denials int64
	First, Last      time.Time
}

// Count is how many are missing.
func (m Missing) Count() int64 { return m.Permits + m.Denials }

// missing keeps the counts until the log can say them.
type missing struct {
	open  atomic.Int64 // that the log has not said yet
	total atomic.Int64 // since the process started

	mu sync.Mutex
	by map[missingKey]Missing
}

type missingKey struct {
	tenant scope.TenantID
	env    scope.Env
}

// add counts decisions that could not be kept.
func (m *missing) add(tenant scope.TenantID, ds []Decision, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[missingKey]Missing{}
	}
	for i := range ds {
		key := missingKey{tenant, ds[i].Environment}
		if !key.env.Valid() {
			key.env = scope.Production
		}
		g := m.by[key]
		if g.Count() == 0 {
			g.First = now
		}
		g.Last = now
		if ds[i].Decision == Permit {
			g.Permits++
		} else {
			g.Denials++
		}
		m.by[key] = g
	}
	m.open.Add(int64(len(ds)))
	m.total.Add(int64(len(ds)))
}

// MissingTotal is how many decisions were answered without being logged since
// the process started.
func (l *DecisionLog) MissingTotal() int64 { return l.missing.total.Load() }

// MissingNow are the decisions of each tenant that are not in the log, where it
// does not say so yet.
func (l *DecisionLog) MissingNow() map[scope.TenantID]Missing {
	out := map[scope.TenantID]Missing{}
	m := &l.missing
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, g := range m.by {
		sum, seen := out[key.tenant]
		if !seen || g.First.Before(sum.First) {
			sum.First = g.First
		}
		if g.Last.After(sum.Last) {
			sum.Last = g.Last
		}
		sum.Permits, sum.Denials = sum.Permits+g.Permits, sum.Denials+g.Denials
		out[key.tenant] = sum
	}
	return out
}

// SayMissing writes into the log how many decisions are missing before what
// follows, one entry for each tenant and environment. The entries stand in the
// hash chain as any other. It stops at the first that the log does not take.
func (l *DecisionLog) SayMissing() error {
	m := &l.missing
	if m.open.Load() == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, g := range m.by {
		if err := l.keep(true, l.encode(nil, key.tenant, gapEntry(key, g, l.cfg.Now()))); err != nil {
			return err
		}
		l.cfg.Logger.Warn("decisions are logged again", "tenant", key.tenant, "environment", key.env, "missing", g.Count(), "from", g.First.UTC(), "to", g.Last.UTC())
		delete(m.by, key)
		m.open.Add(-g.Count())
	}
	return nil
}

// gapEntry is the entry of the decision log about those that are not in it.
func gapEntry(key missingKey, g Missing, now time.Time) *Decision {
	message := fmt.Sprintf("%d decisions are missing (%d PERMIT, %d DENY): the server could not keep its log from %s to %s",
		g.Count(), g.Permits, g.Denials, g.First.UTC().Format(time.RFC3339Nano), g.Last.UTC().Format(time.RFC3339Nano))
	return &Decision{
		DecisionID: "missing-" + rand.Text(), Timestamp: now, Decision: Deny, Effect: "DENY", Reason: message, Error: message,
		Action: "decisions_missing", Environment: key.env, AuditLevel: Basic,
	}
}

// unkept says what becomes of decisions that the log could not keep: they are
// counted as missing and go on, or their caller gets a fault.
func (l *DecisionLog) unkept(tenant scope.TenantID, ds []Decision, err error) error {
	if !l.cfg.BestEffort {
		return err
	}
	l.missing.add(tenant, ds, l.cfg.Now())
	return nil
}

// unavailable is the fault of a log that cannot be kept.
func unavailable(err error) error {
	return fault.New(fault.Unavailable, "audit_unavailable", "the decision log cannot be written").After(time.Second).Because(err)
}
