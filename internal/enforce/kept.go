package enforce

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/journal"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// logKept reports whether requests are decided on, as far as the log goes: one that
// is required and cannot be written has them refused.
func (b *Bouncer) logKept(st *settings.State) bool {
	return !st.LogRequired || st.Mode == settings.Shadowing || !b.journal.Refuses()
}

// writeReady answers /_bouncer/ready.
func (b *Bouncer) writeReady(w http.ResponseWriter, st *settings.State) {
	reason := ""
	switch {
	case b.leaving.Load():
		reason = "stopping"
	case st.Set == nil:
		reason = "no_bundle"
	case !b.bundles.Ready(st):
		reason = "policy_stale"
	case !b.logKept(st):
		reason = "audit_unavailable"
	}
	s := b.journal.Spool.Stats()
	posture := "best_effort"
	if st.LogRequired {
		posture = "required"
	}
	log := fmt.Sprintf(`"audit":{"posture":%q,"writable":%t,"trouble":%q,"waiting":%d,"waiting_bytes":%d,"limit_bytes":%d,"lag_seconds":%.1f,"refused":%d,"missing":%d,"healed":%d}`,
		posture, !s.Refuses(), b.journal.Trouble(), s.Records, s.Bytes, s.MaxBytes, s.Lag.Seconds(), s.Refused, b.count.LogsDropped.Load(), s.Healed)
	if reason != "" {
		b.writeJSON(w, http.StatusServiceUnavailable, fmt.Sprintf(`{"status":"not_ready","reason":%q,%s}`, reason, log))
		return
	}
	b.writeJSON(w, http.StatusOK, `{"status":"ready",`+log+`}`)
}

// gapEvent is an event of the decision log about those that are not in it.
func (b *Bouncer) gapEvent(st *settings.State, g *journal.Gap, now time.Time) []byte {
	first, last := g.First.UTC().Format(time.RFC3339Nano), g.Last.UTC().Format(time.RFC3339Nano)
	message := fmt.Sprintf("%d decisions are missing (%d passed): the bouncer could not write its log from %s to %s", g.Count, g.Passed, first, last)
	dst := append([]byte(nil), b.bundles.Labels()...)
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
func (b *Bouncer) refuseUnlogged(ctx context.Context, in *request.Inbound, st *settings.State, v *verdict) {
	if !st.LogRequired || v.mode == settings.Shadowing || !v.pass {
		return
	}
	in.Seen.Metered().Refund(ctx)
	v.resolve(request.Refuse(http.StatusServiceUnavailable, "audit_unavailable", "the decision cannot be logged, and this bouncer lets nothing pass that is not"), nil)
	v.mask = nil
}
