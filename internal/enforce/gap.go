package enforce

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// gap counts the decisions that the log could not keep, until it can say so.
type gap struct {
	mu          sync.Mutex
	count       uint64
	first, last time.Time
}

// lost notes an event that could not be written: the disk is full, or fails. The
// first one is told at once.
func (b *Bouncer) lost(at time.Time, err error) {
	b.count.logsDropped.Add(1)
	g := &b.missing
	g.mu.Lock()
	if g.count == 0 {
		g.first = at
	}
	g.count, g.last = g.count+1, at
	g.mu.Unlock()
	if !b.logsFailing.Swap(true) {
		b.log.Error("decisions cannot be logged", "error", err)
		b.report.poke()
	}
}

// found writes into the log how many decisions are missing before what follows.
func (b *Bouncer) found(st *state, now time.Time) {
	g := &b.missing
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count > 0 {
		if b.spool.Append(b.gapEvent(st, g, now)) != nil {
			return // still no room: the next to be kept tries again
		}
		b.log.Warn("decisions are logged again", "missing", g.count, "from", g.first.UTC(), "to", g.last.UTC())
		g.count = 0
	}
	b.logsFailing.Store(false)
	b.report.poke()
}

// gapEvent is an event of the decision log about those that are not in it.
func (b *Bouncer) gapEvent(st *state, g *gap, now time.Time) []byte {
	first, last := g.first.UTC().Format(time.RFC3339Nano), g.last.UTC().Format(time.RFC3339Nano)
	message := fmt.Sprintf("%d decisions are missing: the bouncer could not keep its log from %s to %s", g.count, first, last)
	dst := append([]byte(nil), *b.labels.Load()...)
	dst = value.AppendString(append(dst, `,"decision_id":`...), b.ids.next(now))
	dst = value.AppendString(append(dst, `,"bundles":{"authz":{"revision":`...), st.revision)
	dst = now.UTC().AppendFormat(append(dst, `}},"path":"gatehouse/decision","timestamp":"`...), time.RFC3339Nano)
	dst = value.AppendString(append(dst, `","result":{"decision":"DENY","allow":false,"effect":"DENY","reason":`...), message)
	dst = value.AppendString(append(dst, `},"error":{"code":"decisions_missing","message":`...), message)
	dst = append(dst, `},"custom":{"mode":"`...)
	dst = append(append(dst, st.mode.String()...), `","outcome":"DENY","status":"decisions_missing","event":"decisions_missing","missing":`...)
	dst = fmt.Appendf(dst, `%d,"from":"%s","to":"%s","environment":`, g.count, first, last)
	dst = value.AppendString(dst, st.environment)
	return append(dst, '}', '}')
}

// unlogged refuses a request whose decision the log could not keep, where the log
// is required; in shadow mode nothing is refused.
func (b *Bouncer) unlogged(ctx context.Context, in *inbound, st *state, v *verdict) {
	if !st.mustLog || v.mode == shadowing || !v.pass {
		return
	}
	in.seen.metered().refund(ctx)
	v.settle(&refusal{http.StatusServiceUnavailable, "audit_unavailable", "the decision cannot be logged, and this bouncer lets nothing pass that is not"}, nil)
	v.mask = nil
}
