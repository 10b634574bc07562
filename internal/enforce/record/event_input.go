package record

import (
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Limits on the inputs that events carry for replay at the lower audit levels. The first
// inputBurst decisions keep their inputs, later ones only inputRate a second. Large inputs
// are left out, and all inputs if the log fills up, so that they never take the room of a
// decision.
const (
	inputBurst     = 20_000
	inputRate      = 500
	inputMost      = 16 << 10 // bytes
	inputSpoolPart = 4        // no inputs while the log is fuller than 1/inputSpoolPart of its limit
)

// appendEventInput writes the redacted input of an event: the whole input if the audit
// level or replay keeps it, and otherwise the part that every level keeps.
func (r *Recorder) appendEventInput(dst []byte, st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict, level string) []byte {
	kept := level == judge.AuditDetailed || level == judge.AuditComprehensive
	if !kept && !r.carriesInput(st, in) {
		return appendBasicInput(dst, in, who, v)
	}
	from := len(dst)
	var q rego.Request
	if req := r.recordable(in, v); req == in && v.Asked.User.Defined() {
		q = in.WithHead(st.Settings, v.Asked)
	} else {
		q = req.DecisionRequest(st.Settings, who, true)
	}
	dst = appendInput(dst, &q)
	if !kept && len(dst)-from > inputMost {
		return appendBasicInput(dst[:from], in, who, v)
	}
	return dst
}

// appendInput writes the input of a decision, redacted.
func appendInput(dst []byte, q *rego.Request) []byte {
	dst = append(dst, `{"user":`...)
	dst = redact.AppendValue(dst, q.User)
	dst = append(dst, `,"action":`...)
	dst = redact.AppendValue(dst, q.Action)
	dst = append(dst, `,"resource":`...)
	dst = redact.AppendValue(dst, q.Resource)
	dst = append(dst, `,"context":`...)
	dst = redact.AppendValue(dst, q.Context)
	q.Extra.Each(func(name string, v value.Value) bool {
		dst = redact.AppendMember(dst, ',', name, v)
		return true
	})
	return append(dst, '}')
}

// carriesInput reports whether the event of a decision carries its input for replay.
func (r *Recorder) carriesInput(st *settings.State, in *request.Inbound) bool {
	if st.ReplayOff || in.Seen != nil && len(in.Seen.Body) > inputMost {
		return false
	}
	return r.inputs.Take(in.At) && r.journal.Spool.Bytes() < r.journal.MaxBytes/inputSpoolPart
}

// recordable returns the request as the decision log may hold it. Masks of the request also apply
// to the log, even in shadow mode, where the application gets the body unmasked. If masking fails,
// the contents of the body are left out.
func (r *Recorder) recordable(in *request.Inbound, v *judge.Verdict) *request.Inbound {
	_, list := mask.Split(v.Decision.Mask)
	if len(list) == 0 || in.Seen == nil || in.Seen.RPC == nil && in.Seen.LLM == nil {
		return in
	}
	seen, req := *in.Seen, *in
	req.Seen = &seen
	seen.RPC, seen.LLM = nil, nil
	rules, err := mask.New(list, nil)
	if err != nil {
		return &req
	}
	var body []byte
	err = r.panics.Run("a mask panicked", func() error {
		body, err = rules.JSON(in.Seen.Body)
		return err
	})
	if err != nil {
		return &req
	}
	clean := request.Inspection{Refs: seen.Refs, Serves: seen.Serves, Head: seen.Head, Body: body, Whole: true} // its media are left out already
	clean.Head.MCP = mcp.Headers{Session: seen.Head.MCP.Session}                                                // the other fields repeat what is masked
	clean.Read(in)
	seen.RPC, seen.LLM = clean.RPC, clean.LLM
	if seen.LLM != nil && in.Seen.LLM != nil {
		seen.LLM.Estimated = in.Seen.LLM.Estimated
	}
	return &req
}
