// Package record writes decisions to the bouncer's decision log, in the shape of OPA's
// decision logs.
package record

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bundlesync"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/journal"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/panics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// Recorder writes decisions to the decision log. Make it with New.
type Recorder struct {
	journal *journal.Journal
	bundles *bundlesync.Syncer
	hosts   *discovery.Reporter
	panics  *panics.Reporter
	count   *metrics.Counters
	log     *slog.Logger
	now     func() time.Time
	folder  *fold.Folder[[]byte]
	events  sync.Pool // *[]byte
	inputs  *spool.Allowance
	decided func(ctx context.Context, id, effect string)
}

// New returns a recorder that writes to log. limits say when refusals are counted together. decided
// adds a decision to the span of its request; nil: nothing is traced.
func New(log *journal.Journal, bundles *bundlesync.Syncer, hosts *discovery.Reporter, panics *panics.Reporter, limits fold.Limits, decided func(ctx context.Context, id, effect string)) *Recorder {
	return &Recorder{
		journal: log, bundles: bundles, hosts: hosts, panics: panics, count: log.Count, log: log.Log, now: log.Now, decided: decided,
		folder: fold.New[[]byte](limits), inputs: spool.NewAllowance(inputBurst, inputRate), events: sync.Pool{New: func() any { buf := make([]byte, 0, 2048); return &buf }},
	}
}

// Commit records a verdict before it takes effect. If the log is required and cannot be
// written, it changes the verdict to a refusal.
func (r *Recorder) Commit(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict) {
	if r.decided != nil {
		r.decided(ctx, v.ID, v.Decision.Effect.String())
	}
	if !r.Record(st, in, who, v) {
		v.RefuseUnlogged(ctx, in, st)
	}
}

// Record counts a verdict and writes its event, unless the event is a refusal that is
// counted with others (package fold). It returns false when the event is lost (see
// journal.Write).
func (r *Recorder) Record(st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict) (kept bool) {
	r.count.Verdict(v.Outcome, v.Failure != "")
	r.noteHost(st, in, v)
	req, verdict, short := in, v, false
	switch r.foldRefusal(st, in, who, v) {
	case fold.Folded:
		r.count.LogsFolded.Add(1)
		return true
	case fold.Brief:
		req, verdict = shorten(in, v)
		short = true
	}
	buf := r.events.Get().(*[]byte)
	*buf = r.appendEvent((*buf)[:0], st, req, who, verdict, short)
	kept = r.journal.Write(in.At, v.Pass, *buf)
	r.events.Put(buf)
	v.Asked = rego.Request{} // release the parts of the body
	return kept
}

// noteHost reports the host of a request that no resource covers.
func (r *Recorder) noteHost(st *settings.State, in *request.Inbound, v *judge.Verdict) {
	if !st.Discovery || st.Set == nil || v.Decision.Resource != nil || r.hosts.WasNotedRecently(in.Host, in.At) {
		return
	}
	r.hosts.Note(st.Set, &discovery.Request{Target: *in.Locator(), Client: in.Client, Scheme: in.Scheme(), At: in.At})
}

// appendEvent writes one event in the shape of OPA's Decision Log Service API. What OPA
// does not have goes under `custom`. short limits the input to the part that every audit
// level keeps.
func (r *Recorder) appendEvent(dst []byte, st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict, short bool) []byte {
	level := ""
	if v.Decision.Resource != nil {
		level = v.Decision.Resource.AuditLevel
	}
	dst = append(dst, r.bundles.Labels()...) // {"labels":{...}
	dst = append(dst, `,"decision_id":"`...)
	dst = append(dst, v.ID...)
	dst = append(dst, `","bundles":{"authz":{"revision":`...)
	dst = value.AppendString(dst, st.Revision)
	dst = append(dst, `}},"path":"gatehouse/decision","timestamp":"`...)
	dst = in.At.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, '"')
	if level != judge.AuditNone {
		dst = append(dst, `,"requested_by":`...)
		dst = value.AppendString(dst, in.Client)
		dst = append(dst, `,"input":`...)
		if short {
			dst = appendBasicInput(dst, in, who, v)
		} else {
			dst = r.appendEventInput(dst, st, in, who, v, level)
		}
	}
	dst = appendResult(dst, v)
	if v.Failure != "" {
		dst = append(dst, `,"error":{"code":`...)
		dst = value.AppendString(dst, v.Refusal.Code)
		dst = append(dst, `,"message":`...)
		dst = value.AppendString(dst, v.Hidden.Text(v.Failure))
		dst = append(dst, '}')
	}
	dst = append(dst, `,"metrics":{"timer_rego_query_eval_ns":`...)
	dst = strconv.AppendInt(dst, v.Decision.Duration.Nanoseconds(), 10)
	dst = append(dst, `},"custom":{"mode":"`...)
	dst = append(dst, v.Mode.String()...)
	dst = append(dst, `","outcome":"`...)
	dst = append(dst, v.Outcome...)
	dst = append(dst, `","status":`...)
	dst = value.AppendString(dst, v.Refusal.Code)
	dst = append(dst, `,"cache_hit":`...)
	dst = strconv.AppendBool(dst, v.Decision.CacheHit)
	dst = appendEvaluated(dst, v)
	dst = append(dst, `,"request_id":`...)
	dst = value.AppendString(dst, in.ID)
	dst = append(dst, `,"environment":`...)
	dst = value.AppendString(dst, st.Environment)
	dst = appendAgent(dst, st, in, who)
	if len(v.ChangedTools) > 0 {
		dst = append(dst, `,"event":"mcp_tools_changed","tools":`...)
		names := make([]value.Value, len(v.ChangedTools))
		for i, name := range v.ChangedTools {
			names[i] = value.String(name)
		}
		dst = value.Array(names...).AppendJSON(dst)
	}
	if level != "" {
		dst = append(dst, `,"audit_level":`...)
		dst = value.AppendString(dst, level)
	}
	if len(v.Explanation) > 0 {
		dst = append(append(dst, `,"explanation":`...), v.Explanation...)
	}
	if len(v.Trace) > 0 {
		dst = append(append(dst, `,"trace":`...), v.Trace...)
	}
	return append(dst, '}', '}')
}

func appendResult(dst []byte, v *judge.Verdict) []byte {
	d := &v.Decision
	word := "DENY"
	if v.Permits() {
		word = "PERMIT"
	}
	dst = append(dst, `,"result":{"decision":"`...)
	dst = append(dst, word...)
	dst = append(dst, `","allow":`...)
	dst = strconv.AppendBool(dst, word == "PERMIT")
	dst = append(dst, `,"effect":"`...)
	effect, reason := v.Effect(), d.Reason
	dst = append(dst, effect.String()...)
	dst = append(dst, `","reason":`...)
	// The reason of a failed evaluation comes from the decision, as it does on the
	// server.
	if v.Failure != "" && d.Err == nil || reason == "" || effect != d.Effect {
		reason = v.Refusal.Message
	}
	if v.Outcome == metrics.PassThrough {
		reason = "no control covers this request"
	}
	dst = value.AppendString(dst, v.Hidden.Text(reason))
	if v.NamesControl() {
		dst = append(dst, `,"policy_id":`...)
		dst = strconv.AppendInt(dst, d.PolicyID, 10)
		dst = append(dst, `,"policy_name":`...)
		dst = value.AppendString(dst, d.PolicyName)
		dst = append(dst, `,"policy_version":`...)
		dst = strconv.AppendInt(dst, d.PolicyVersion, 10)
	}
	if d.Resource != nil {
		dst = append(dst, `,"resource_id":`...)
		dst = strconv.AppendInt(dst, d.Resource.ID, 10)
	}
	if len(d.Mask) > 0 && effect == rego.Mask {
		dst = append(dst, `,"mask":[`...)
		for i, m := range d.Mask {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"path":`...)
			dst = value.AppendString(dst, m.Path)
			dst = append(dst, `,"strategy":`...)
			dst = value.AppendString(dst, m.Strategy)
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// appendEvaluated lists the controls that ran, unless there was only one and the result
// names it.
func appendEvaluated(dst []byte, v *judge.Verdict) []byte {
	d := &v.Decision
	if len(d.Ran) == 0 || len(d.Ran) == 1 && v.NamesControl() && d.Ran[0].Meta().ID == d.PolicyID {
		return dst
	}
	dst = append(dst, `,"evaluated":[`...)
	for i, c := range d.Ran {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, c.Meta().ID, 10)
	}
	return append(dst, ']')
}

// appendAgent writes which AI agent sent the request, and what it did, at every audit level: the
// control plane counts it.
func appendAgent(dst []byte, st *settings.State, in *request.Inbound, who *identity.Caller) []byte {
	if who == nil {
		return dst
	}
	id := st.Agents().Acting(who.Doc)
	if id == "" {
		return dst
	}
	dst = value.AppendString(append(dst, `,"agent":{"id":`...), id)
	if seen := in.Seen; seen != nil {
		if seen.RPC != nil && seen.RPC.Tool != "" {
			dst = value.AppendString(append(dst, `,"tool":`...), seen.RPC.Tool)
		}
		if seen.LLM != nil && seen.LLM.Estimated > 0 {
			dst = strconv.AppendInt(append(dst, `,"estimated_tokens":`...), seen.LLM.Estimated, 10)
		}
	}
	return append(dst, '}')
}

// appendBasicInput writes the part of the input that every audit level keeps.
func appendBasicInput(dst []byte, in *request.Inbound, who *identity.Caller, v *judge.Verdict) []byte {
	dst = append(dst, `{"user":{`...)
	if who != nil && who.IsKnown() {
		dst = append(dst, `"id":`...)
		dst = value.AppendString(dst, who.ID)
		if who.Email != "" {
			dst = append(dst, `,"email":`...)
			dst = value.AppendString(dst, who.Email)
		}
	}
	dst = append(dst, `},"action":{"name":`...)
	dst = value.AppendString(dst, request.ActionName(in.Method))
	dst = append(dst, `,"method":`...)
	dst = value.AppendString(dst, in.Method)
	dst = append(dst, `},"resource":{"path":`...)
	dst = value.AppendString(dst, in.Path)
	dst = append(dst, `,"host":`...)
	dst = value.AppendString(dst, in.Host)
	if res := v.Decision.Resource; res != nil {
		dst = append(dst, `,"type":`...)
		dst = value.AppendString(dst, res.Type)
	}
	dst = append(dst, `},"context":{"ip_address":`...)
	dst = value.AppendString(dst, in.Client)
	dst = append(dst, `,"request_id":`...)
	dst = value.AppendString(dst, in.ID)
	return append(dst, '}', '}')
}

// Gap returns the event that reports missing decisions.
func Gap(labels []byte, st *settings.State, g *journal.Gap, now time.Time) []byte {
	first, last := g.First.UTC().Format(time.RFC3339Nano), g.Last.UTC().Format(time.RFC3339Nano)
	message := fmt.Sprintf("%d decisions are missing (%d passed): the bouncer could not write its log from %s to %s", g.Count, g.Passed, first, last)
	dst := append([]byte(nil), labels...)
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
