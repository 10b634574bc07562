package replay

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The notes of an explanation that was computed from a recorded input.
const (
	noteAgain   = "Computed from the input that is stored for replay, with the control as it was then and today's data."
	noteDiffers = "With the input that is stored for replay, today's decision differs from the recorded one: data, a library or a redacted value has changed. This is the explanation of today's decision."
)

// Explain explains a recorded decision. It returns the explanation in the log if the audit level
// stored one. Otherwise it decides the recorded input again, with the version of the control that
// decided. Fault: NotFound if the log does not have the id.
func (s *Service) Explain(ctx context.Context, sc scope.Scope, id string) (audit.Explanation, error) {
	out, err := s.logged(ctx, sc, id)
	if err != nil || out.Available {
		return out, err
	}
	found, err := s.Audit.ByID(ctx, sc, []string{id})
	if err != nil || len(found) == 0 || found[0].Error != "" && found[0].Error != decision.ErrPersonUnknown.Error() {
		return out, err
	}
	list, differs, err := s.explainDecision(ctx, sc, found[0])
	if err != nil || len(list) == 0 {
		return out, err
	}
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = e.Text
	}
	out.Available, out.Explanations, out.Text, out.Public = true, list, strings.Join(texts, "\n"), list[0].Public
	if out.Note = noteAgain; differs {
		out.Note = noteDiffers
	}
	return out, nil
}

// logged returns the explanation of a recorded decision that is in the log. If there is none, the
// note says why. Fault: NotFound for an id that is not in the log.
func (s *Service) logged(ctx context.Context, sc scope.Scope, id string) (audit.Explanation, error) {
	d, err := s.Audit.One(ctx, sc, id)
	if err != nil {
		return audit.Explanation{}, err
	}
	out := audit.Explanation{
		DecisionID: d.DecisionID, AuditLevel: audit.LevelOf(string(d.AuditLevel)), Decision: d.Decision, Reason: d.Reason,
		PolicyID: d.PolicyID, PolicyName: d.PolicyName, PolicyVersion: d.PolicyVersion, Explanations: []reason.Explanation{},
	}
	public := rego.Decision{Effect: effectOf(&d), Reason: d.Reason}
	if d.PolicyName != nil {
		public.PolicyName = *d.PolicyName
	}
	out.Public = public.CallerReason()
	if json.Unmarshal(d.Explanation, &out.Explanations) == nil && len(out.Explanations) > 0 {
		texts := make([]string, len(out.Explanations))
		for i, e := range out.Explanations {
			texts[i] = e.Text
		}
		out.Available, out.Text, out.Public = true, strings.Join(texts, "\n"), out.Explanations[0].Public
		return out, nil
	}
	out.Explanations = []reason.Explanation{}
	out.Text = d.Reason
	switch {
	case out.AuditLevel == audit.Basic:
		out.Note = "The input was not kept (audit level basic), so the rule and its conditions are not known. Set audit_level of the resource to detailed to have decisions explained."
	case d.BouncerID != 0:
		out.Note = "The bouncer that decided sent no explanation with its log: a stock OPA does not."
	default:
		out.Note = "No control was asked about this request."
	}
	return out, nil
}

func effectOf(d *audit.Decision) rego.Effect {
	switch {
	case d.Decision == audit.Deny && d.PolicyID == 0:
		return rego.NoMatch
	case d.Decision == audit.Deny:
		return rego.Deny
	case d.Effect == rego.Mask.String():
		return rego.Mask
	}
	return rego.Allow
}

// explainDecision explains a decision from its recorded input. It returns no explanation if there
// is no input, or if the control that decided is gone. differs means that today's decision is
// another one.
func (s *Service) explainDecision(ctx context.Context, sc scope.Scope, d audit.Decision) (list []reason.Explanation, differs bool, err error) {
	req, why := request(d)
	if why != "" {
		return nil, false, nil
	}
	set, err := s.Snapshots.Get(ctx, sc.Tenant, d.Environment)
	if err != nil {
		return nil, false, err
	}
	caught := func(p *rego.Panic) {
		s.Panics.Caught(ctx, "replay", p.Value, p.Stack, "tenant", sc.Tenant, "request_id", sc.RequestID, "decision_id", d.DecisionID)
	}
	opt := rego.Options{Now: d.Timestamp, Deadline: s.Deadline, Clock: s.Now, Caught: caught}
	if d.PolicyID == 0 {
		again := set.Decide(ctx, &req, opt)
		list := explain.Decision(ctx, set, &req, opt, again)
		return redacted(list, &req, set), again.PolicyID != 0, nil
	}
	control, err := s.versionOf(ctx, sc, set, d)
	if err != nil || control == nil {
		return nil, false, err
	}
	in, err := set.Input(&req)
	if err != nil {
		return nil, false, nil
	}
	outcome, e := explain.Control(ctx, control, in, set, rego.Limits{Deadline: s.Deadline, Now: d.Timestamp, Clock: s.Now, Caught: caught})
	return redacted([]reason.Explanation{e}, &req, set), outcome.Effect.Permits() != granted(d), nil
}

// redacted removes from explanations what logs must not contain: values under secret names in the
// input or the resource, and the owner's address.
func redacted(list []reason.Explanation, req *rego.Request, set *rego.Set) []reason.Explanation {
	found := redact.FindSecrets(req.User, req.Action, req.Resource, req.Context, req.Extra)
	if r := set.Resource(req.ResourceID); r != nil {
		found = found.With(r.Doc, false)
	}
	for i, e := range list {
		e = e.Redacted(func(_ string, v value.Value) value.Value { return found.Value(v) })
		e.Text, e.Public = found.Text(e.Text), found.Text(e.Public)
		list[i] = e
	}
	return list
}

// versionOf returns the control that decided, in its version at the time, or nil if it is gone.
func (s *Service) versionOf(ctx context.Context, sc scope.Scope, set *rego.Set, d audit.Decision) (*rego.Control, error) {
	at := slices.IndexFunc(set.Controls(), func(c *rego.Control) bool { return c.Meta().ID == d.PolicyID })
	if at >= 0 && set.Controls()[at].Meta().Version == d.PolicyVersion {
		return set.Controls()[at], nil
	}
	old, err := s.Policies.Version(ctx, within(sc, scope.AnyEnv), d.PolicyID, d.PolicyVersion)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	libs, err := s.Policies.Libraries(ctx, sc, d.Environment)
	if err != nil {
		return nil, err
	}
	c, issues := rego.Compile(rego.Meta{ID: d.PolicyID, Name: old.Name, Version: d.PolicyVersion}, old.RegoCode, libs...)
	if len(issues) > 0 { // something that it used at the time is gone
		return nil, nil
	}
	return c, nil
}

// request returns the recorded request of a decision. If there is none, why is the reason.
func request(d audit.Decision) (req rego.Request, why string) {
	if len(d.Input) == 0 || string(d.Input) == "null" {
		return req, "no_input"
	}
	in, err := value.Decode(d.Input, value.Limits{})
	if err != nil {
		return req, "unreadable"
	}
	if in.Get("truncated").True() && in.Get("bytes").Defined() {
		return req, "no_input"
	}
	req, offences := rego.ParseOpen(in)
	if len(offences) > 0 {
		return req, "unreadable"
	}
	if req.ResourceID == 0 && !req.ByID {
		req.ResourceID = d.ResourceID // the resource that it matched at the time
	}
	return req, ""
}
