package enforce

import (
	"fmt"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
)

// logWritable reports whether the state of the decision log allows requests. If the log is required
// and cannot be written, requests are refused.
func (b *Bouncer) logWritable(st *settings.State) bool {
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
	case !b.logWritable(st):
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
