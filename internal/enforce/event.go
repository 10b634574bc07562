package enforce

import (
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Audit levels of a resource that change what an event carries.
const (
	auditNone          = "none"
	auditDetailed      = "detailed"
	auditComprehensive = "comprehensive"
)

// record counts a verdict and writes its event into the spool, unless it is a refusal
// that is counted with others (package fold); false: the event is lost (see journal.Write).
func (b *Bouncer) record(st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict) (kept bool) {
	b.count.Verdict(v.word, v.failed != "")
	b.noteHost(st, in, v)
	told, said, short := in, v, false
	switch b.foldRefusal(st, in, who, v) {
	case fold.Folded:
		b.count.LogsFolded.Add(1)
		return true
	case fold.Brief:
		told, said = shorten(in, v)
		short = true
	}
	buf := b.events.Get().(*[]byte)
	*buf = b.appendEvent((*buf)[:0], st, told, who, said, short)
	kept = b.journal.Write(in.At, v.pass, *buf)
	b.events.Put(buf)
	v.asked = rego.Request{} // a body's parts need not outlive their record
	return kept
}

// noteHost takes down the host of a request that no resource is about.
func (b *Bouncer) noteHost(st *settings.State, in *request.Inbound, v *verdict) {
	if !st.Discovery || st.Set == nil || v.dec.Resource != nil || b.scout.Quiet(in.Host, in.At) {
		return
	}
	b.scout.Note(st.Set, &discovery.Seen{By: *in.Locator(), Client: in.Client, Scheme: in.Scheme(), At: in.At})
}

// appendEvent writes one decision log event as OPA does (its "Decision Log
// Service API"), with what only we know under `custom`.
// short: its input is what every audit level keeps.
func (b *Bouncer) appendEvent(dst []byte, st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict, short bool) []byte {
	level := ""
	if v.dec.Resource != nil {
		level = v.dec.Resource.AuditLevel
	}
	dst = append(dst, b.bundles.Labels()...) // {"labels":{...}
	dst = append(dst, `,"decision_id":"`...)
	dst = append(dst, v.id...)
	dst = append(dst, `","bundles":{"authz":{"revision":`...)
	dst = value.AppendString(dst, st.Revision)
	dst = append(dst, `}},"path":"gatehouse/decision","timestamp":"`...)
	dst = in.At.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, '"')
	if level != auditNone {
		dst = append(dst, `,"requested_by":`...)
		dst = value.AppendString(dst, in.Client)
		dst = append(dst, `,"input":`...)
		if short {
			dst = appendBasicInput(dst, in, who, v)
		} else {
			dst = b.appendEventInput(dst, st, in, who, v, level)
		}
	}
	dst = appendResult(dst, v)
	if v.failed != "" {
		dst = append(dst, `,"error":{"code":`...)
		dst = value.AppendString(dst, v.no.Code)
		dst = append(dst, `,"message":`...)
		dst = value.AppendString(dst, v.hidden.Text(v.failed))
		dst = append(dst, '}')
	}
	dst = append(dst, `,"metrics":{"timer_rego_query_eval_ns":`...)
	dst = strconv.AppendInt(dst, v.dec.Duration.Nanoseconds(), 10)
	dst = append(dst, `},"custom":{"mode":"`...)
	dst = append(dst, v.mode.String()...)
	dst = append(dst, `","outcome":"`...)
	dst = append(dst, v.word...)
	dst = append(dst, `","status":`...)
	dst = value.AppendString(dst, v.no.Code)
	dst = append(dst, `,"cache_hit":`...)
	dst = strconv.AppendBool(dst, v.dec.CacheHit)
	dst = appendEvaluated(dst, v)
	dst = append(dst, `,"request_id":`...)
	dst = value.AppendString(dst, in.ID)
	dst = append(dst, `,"environment":`...)
	dst = value.AppendString(dst, st.Environment)
	if len(v.changed) > 0 {
		dst = append(dst, `,"event":"mcp_tools_changed","tools":`...)
		names := make([]value.Value, len(v.changed))
		for i, name := range v.changed {
			names[i] = value.String(name)
		}
		dst = value.Array(names...).AppendJSON(dst)
	}
	if level != "" {
		dst = append(dst, `,"audit_level":`...)
		dst = value.AppendString(dst, level)
	}
	if len(v.why) > 0 {
		dst = append(append(dst, `,"explanation":`...), v.why...)
	}
	if len(v.trace) > 0 {
		dst = append(append(dst, `,"trace":`...), v.trace...)
	}
	return append(dst, '}', '}')
}

func appendResult(dst []byte, v *verdict) []byte {
	d := &v.dec
	word := "DENY"
	if v.permits() {
		word = "PERMIT"
	}
	dst = append(dst, `,"result":{"decision":"`...)
	dst = append(dst, word...)
	dst = append(dst, `","allow":`...)
	dst = strconv.AppendBool(dst, word == "PERMIT")
	dst = append(dst, `,"effect":"`...)
	effect, reason := v.effect(), d.Reason
	dst = append(dst, effect.String()...)
	dst = append(dst, `","reason":`...)
	// Of an evaluation that failed the decision says why, as the server's does.
	if v.failed != "" && d.Err == nil || reason == "" || effect != d.Effect {
		reason = v.no.Message
	}
	if v.word == metrics.PassThrough {
		reason = "no control covers this request"
	}
	dst = value.AppendString(dst, v.hidden.Text(reason))
	if v.named() {
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

// appendEvaluated names the controls that ran, unless it was the one alone that
// the result names.
func appendEvaluated(dst []byte, v *verdict) []byte {
	d := &v.dec
	if len(d.Ran) == 0 || len(d.Ran) == 1 && v.named() && d.Ran[0].Meta().ID == d.PolicyID {
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

// appendBasicInput is the part of the input that every audit level keeps.
func appendBasicInput(dst []byte, in *request.Inbound, who *identity.Caller, v *verdict) []byte {
	dst = append(dst, `{"user":{`...)
	if who != nil && who.Proven() {
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
	if r := v.dec.Resource; r != nil {
		dst = append(dst, `,"type":`...)
		dst = value.AppendString(dst, r.Type)
	}
	dst = append(dst, `},"context":{"ip_address":`...)
	dst = value.AppendString(dst, in.Client)
	dst = append(dst, `,"request_id":`...)
	dst = value.AppendString(dst, in.ID)
	return append(dst, '}', '}')
}
