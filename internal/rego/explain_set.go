package rego

import (
	"cmp"
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxExplained is how many controls one decision's explanation speaks of.
const maxExplained = 8

// Explain decides a request, as Decide does, and says why. The first
// explanation is that of the control that decided. With NO_MATCH it is that of
// the control that was nearest to granting access; the others in scope follow.
func (s *Set) Explain(ctx context.Context, r *Request, opt Options) (Decision, []Explanation) {
	d := s.Decide(ctx, r, opt)
	return d, s.Why(ctx, r, opt, d)
}

// Why explains a decision that this set made of this request, from its cache
// or not. It is empty where no control was asked: an invalid path, no control
// in scope.
func (s *Set) Why(ctx context.Context, r *Request, opt Options, d Decision) []Explanation {
	var list []Explanation
	s.eachExplained(r, opt, d, func(c *Control, in value.Value, lim Limits, out Outcome) {
		list = append(list, c.explanation(ctx, in, s, lim, out))
	})
	slices.SortStableFunc(list, func(a, b Explanation) int { return cmp.Compare(a.distance(), b.distance()) })
	return list
}

// Trace is Why with the steps of the controls that it explains, one control
// after the other, MaxSteps in all.
func (s *Set) Trace(ctx context.Context, r *Request, opt Options, d Decision) ([]Step, []Explanation) {
	var list []Explanation
	var steps []Step
	s.eachExplained(r, opt, d, func(c *Control, in value.Value, lim Limits, out Outcome) {
		e := c.explanation(ctx, in, s, lim, out)
		list = append(list, e)
		for _, step := range c.steps(ctx, in, s, lim, out, &e) {
			if len(steps) == MaxSteps {
				return
			}
			step.Number = len(steps) + 1
			if len(steps) == MaxSteps-1 && step.Type != StepFinal {
				step = Step{Number: MaxSteps, Type: StepTruncated, Description: cutDescription, Result: true, Details: value.Object()}
			}
			steps = append(steps, step)
		}
	})
	slices.SortStableFunc(list, func(a, b Explanation) int { return cmp.Compare(a.distance(), b.distance()) })
	return steps, list
}

// eachExplained calls fn with the controls that a decision's explanation speaks
// of, and with what they were asked.
func (s *Set) eachExplained(r *Request, opt Options, d Decision, fn func(*Control, value.Value, Limits, Outcome)) {
	at, err := s.locate(r)
	if err != nil {
		return
	}
	p, path := s.planOf(at.slot), at.path
	if at.literal != nil && d.Resource == at.literal.res { // it was stricter
		p, path = s.planOf(at.literal), at.literal.decided(at.sent)
	}
	if len(p.controls) == 0 {
		return
	}
	lim := opt.limits()
	in := p.input(r, path)
	out := Outcome{Effect: d.Effect, Reason: d.Reason, Mask: d.Mask, Err: d.Err}
	n := 0
	for _, c := range p.controls {
		if n == maxExplained {
			break
		}
		if d.Effect == NoMatch || c.meta.ID == d.PolicyID {
			n++
			fn(c, in, lim, out)
		}
	}
}

// distance is how far the control was from granting access.
func (e *Explanation) distance() int {
	if e.Nearest == nil {
		return 1 << 20
	}
	return len(e.Nearest.Missing)
}
