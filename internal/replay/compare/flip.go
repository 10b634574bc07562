package compare

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
)

// recordFlip finds the rule behind a flip, and keeps the flip as a sample while there is room.
func (m *Comparer) recordFlip(ctx context.Context, p *Part, r *record, s *controlPair, req *rego.Request, opt rego.Options, o outcome) {
	if m.told >= maxExplained {
		return
	}
	m.told++
	after := m.verdict(&o.after, o.afterBlocked)
	m.explain(&after, explain.Decision(ctx, s.cand, req, opt, o.after))
	before := m.verdict(&o.before, o.beforeBlocked)
	sampled := m.samples < m.spec.Samples
	if sampled || after.Rule == "" {
		m.explain(&before, explain.Decision(ctx, s.base, req, opt, o.before))
	}
	behind, who := &after, &o.after
	if after.Rule == "" || o.after.PolicyID == 0 && o.before.PolicyID != 0 {
		behind, who = &before, &o.before // no rule of the new decision is known
	}
	if behind.Rule != "" {
		p.ByRule[Rule{PolicyID: m.idOf(who.PolicyID), PolicyName: who.PolicyName, Rule: behind.Rule, Line: behind.Line}]++
	}
	if !sampled {
		return
	}
	m.samples++
	sample := Sample{
		DecisionID: r.id, Timestamp: r.at, UserID: r.userID, Action: r.action, Path: r.path, BouncerID: r.bouncerID, Change: o.change,
		Recorded: Recorded{Decision: r.decision, Effect: r.effect, PolicyID: r.policyID, PolicyVersion: r.policyVersion, Revision: r.revision},
		Before:   before, After: after,
	}
	if res := o.after.Resource; res != nil {
		sample.ResourceID = res.ID
	}
	p.Samples = append(p.Samples, sample)
}

func (m *Comparer) verdict(d *rego.Decision, blocked bool) Verdict {
	v := Verdict{
		Effect: d.Effect.String(), Blocked: blocked, PolicyID: m.idOf(d.PolicyID), PolicyName: d.PolicyName, Reason: d.Reason, Mask: d.Mask,
	}
	if v.PolicyID != 0 {
		v.PolicyVersion = d.PolicyVersion
	}
	return v
}

// explain names the rule that decided. If only a default decided, or nothing did, it names
// the nearest rule that would have granted access.
func (m *Comparer) explain(v *Verdict, why []reason.Explanation) {
	if len(why) == 0 {
		return
	}
	e := why[0]
	v.Rule, v.Line, v.Explanation = e.Rule, e.Line, e.Text
	if near := e.Nearest; near != nil && len(e.Conditions) == 0 {
		v.Rule, v.Line = near.Rule, near.Line
	}
	const most = 2000
	if text := []rune(v.Explanation); len(text) > most {
		v.Explanation = string(text[:most]) + "…"
	}
}
