package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
)

// verdict is what becomes of a request.
type verdict struct {
	id   string // decision id
	mode settings.Mode
	// pass is whether the request goes on to the application.
	pass bool
	// no is the answer in place of the application's: as given when enforcing,
	// as it would have been when in shadow. Its code is `ok` when there is none.
	no   request.Refusal
	word string
	// asked is what was decided on, until it is recorded.
	asked rego.Request
	dec   rego.Decision
	// mask is what the answer must be rewritten by; empty in shadow.
	mask []rego.MaskRule
	// keep tells which tools a list may hold; nil: it is not filtered. listed is
	// told of all that the server has.
	keep   func(name string) bool
	listed func([]mcp.Tool)
	// tapAnswer hears the answer without changing it; nil: nobody does.
	tapAnswer func(ans *upstream.Answer) (done func())
	// eventsOnly: only a stream of events is filtered.
	eventsOnly bool
	// changed are tools of which a server says something else than before.
	changed []string
	// why and trace are the explanation, for the audit levels that keep it: JSON.
	why, trace []byte
	// hidden is what the log's texts must not show.
	hidden redact.Found
	// failed is set when there was no proper decision: recorded as an error.
	failed string
}

// permits reports whether controls and default action grant access, whatever the mode.
func (v *verdict) permits() bool {
	return v.word == metrics.Permit || v.word == metrics.Mask || v.word == metrics.PassThrough || v.word == metrics.ShadowMask
}

// effect is the controls' effect, and DENY where they granted what was then refused
// for another reason: the token, or an answer that cannot be masked here.
func (v *verdict) effect() rego.Effect {
	if !v.permits() && v.dec.Effect.Permits() {
		return rego.Deny
	}
	return v.dec.Effect
}

// named reports whether the result names the control that decided: one that granted
// access has no part in a refusal, but one that masks has.
func (v *verdict) named() bool {
	return v.dec.PolicyName != "" && (v.effect() == v.dec.Effect || v.dec.Effect == rego.Mask)
}

// judge decides. Nothing here fails open while enforcing: whatever stands in
// the way of a proper decision is a denial.
func (b *Bouncer) judge(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, idErr error) (v verdict) {
	v = verdict{id: b.ids.Next(in.At), mode: st.Mode}
	defer func() {
		if p := recover(); p != nil {
			b.panicked(ctx, "a decision panicked", p, in.ID)
			v.failed = "the evaluation broke down"
			v.resolve(request.Refuse(http.StatusServiceUnavailable, "evaluation_error", "the request could not be decided"), nil)
		}
	}()
	if st.Set == nil {
		v.failed = "no policy bundle was ever received"
		v.resolve(request.Refuse(http.StatusServiceUnavailable, "no_bundle", "no policies are loaded yet"), nil)
		return v
	}
	if st.MaxStale > 0 && b.bundles.SinceContact(in.At) > st.MaxStale {
		v.failed = "the policies are older than max_stale"
		v.resolve(request.Refuse(http.StatusServiceUnavailable, "policy_stale", "the policies are too old to decide on"), nil)
		return v
	}
	var err error
	if _, in.Decided, err = in.Placed(st.Set).Locate(); err != nil {
		v.failed = err.Error()
		v.resolve(request.BadRequest("the path is ambiguous: "+err.Error()), nil)
		return v
	}
	var cache *rego.Cache
	if st.Cache && in.Seen == nil { // what a body says, or a count, does not come again
		cache = b.cache
	}
	if in.Seen != nil {
		b.schemas(st, in)
		in.Seen.Serves = in.Serving(st)
		in.Seen.Read(in)
		if no := in.Seen.Refusal; no != nil {
			v.dec.Resource = st.Set.Match(in.Locator())
			v.failed = no.Message
			v.resolve(no, nil)
			return v
		}
		b.account(ctx, st, in, who)
		defer func() {
			if !v.permits() {
				in.Seen.Meter.Refund(ctx)
			}
		}()
	}
	req := in.Question(st.Settings, who)
	opt := rego.Options{Place: &in.Place, Cache: cache, CacheTTL: st.CacheTTL, Now: in.At, Deadline: in.Deadline(b.cfg.DecisionDeadline), Clock: b.cfg.Now}
	v.asked = req
	v.dec = st.Set.Decide(ctx, &req, opt)
	if p := v.dec.Panic(); p != nil {
		b.caught(ctx, in.ID)(p)
	}
	v.hidden = v.dec.Hidden(&req)
	b.count.Decision(v.dec.Duration, v.dec.CacheHit)
	if r := v.dec.Resource; r != nil && (r.AuditLevel == auditDetailed || r.AuditLevel == auditComprehensive) {
		opt.Caught = b.caught(ctx, in.ID)
		v.explain(ctx, st, &req, opt)
	}
	v.takeDecision(st, idErr)
	if v.no.Code == "access_denied" && in.Seen.Harmless() {
		v.dec = rego.Decision{Effect: rego.Allow, Permit: true, Reason: "MCP: pings and notifications pass", Resource: v.dec.Resource, Revision: v.dec.Revision, Considered: v.dec.Considered, Ran: v.dec.Ran, CacheHit: v.dec.CacheHit, Duration: v.dec.Duration}
		v.why, v.trace = nil, nil
		v.resolve(nil, nil)
	}
	b.outOfBudget(ctx, st, in, who, &v)
	return v
}

// explain keeps why it was decided so. Values at the paths of secrets are redacted
// where the log is taken in, with those of the input; what a control made of them
// is taken out here, for a mask may keep them from the log.
func (v *verdict) explain(ctx context.Context, st *settings.State, req *rego.Request, opt rego.Options) {
	v.hidden = v.dec.HiddenInput(req)
	var why []explain.Explanation
	if v.dec.Resource.AuditLevel == auditComprehensive {
		var steps []explain.Step
		if steps, why = explain.TraceDecision(ctx, st.Set, req, opt, v.dec); len(steps) > 0 {
			v.trace = document(steps, v.hidden)
		}
	} else {
		why = explain.Decision(ctx, st.Set, req, opt, v.dec)
	}
	if len(why) > 0 {
		v.why = document(why, v.hidden)
	}
}

// maxExplained bounds what an event carries of an explanation.
const maxExplained = 128 << 10

func document(list any, hidden redact.Found) []byte {
	text, err := json.Marshal(list)
	if err != nil || len(text) > maxExplained {
		return nil
	}
	return hidden.Document(text)
}

// takeDecision makes a verdict of a decision.
func (v *verdict) takeDecision(st *settings.State, idErr error) {
	d := &v.dec
	switch {
	case d.Considered == 0 && d.Err == nil:
		if st.DenyByDefault {
			v.resolve(request.Refuse(http.StatusForbidden, "access_denied", "no control covers this request, and the default is to deny"), nil)
			return
		}
		v.word, v.pass, v.no.Code = metrics.PassThrough, true, "ok"
	case d.Err != nil:
		v.failed = d.Err.Error()
		v.resolve(request.Refuse(http.StatusServiceUnavailable, "evaluation_error", "the request could not be decided"), nil)
	case errors.Is(idErr, identity.ErrUnavailable):
		v.failed = idErr.Error()
		v.resolve(request.Refuse(http.StatusServiceUnavailable, "identity_unavailable", "the caller's token cannot be checked now"), nil)
	case idErr != nil:
		v.resolve(request.Refuse(http.StatusUnauthorized, "invalid_token", "the bearer token is not valid"), nil)
	case d.Effect == rego.Mask:
		v.resolve(nil, d.Mask)
	case d.Effect == rego.Allow:
		v.resolve(nil, nil)
	default:
		v.resolve(request.Refuse(http.StatusForbidden, "access_denied", d.Public()), nil)
	}
}

// resolve applies the mode: shadow lets pass what enforce would refuse or mask.
func (v *verdict) resolve(no *request.Refusal, mask []rego.MaskRule) {
	v.no.Code = "ok"
	switch {
	case no != nil:
		v.no, v.pass, v.word = *no, false, metrics.Deny
		if v.mode == settings.Shadowing {
			v.pass, v.word = true, metrics.ShadowDeny
		}
	case len(mask) > 0:
		v.pass, v.word, v.mask = true, metrics.Mask, mask
		if v.mode == settings.Shadowing {
			v.word, v.mask = metrics.ShadowMask, nil
		}
	default:
		v.pass, v.word = true, metrics.Permit
	}
}

// account begins the metering of a request whose controls ask for usage.
func (b *Bouncer) account(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller) {
	s := in.Seen
	if !s.Refs.Usage || s.Refusal != nil || s.Counted {
		return
	}
	if s.Meter == nil {
		s.Meter = b.accounts.Open(in.UsageSubject(st, who))
	}
	s.Usage = s.Meter.Reserve(ctx, in.At, s.LLM)
}
