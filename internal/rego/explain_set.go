package rego

import (
	"cmp"
	"context"
	"slices"
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
	path, key, err := requestPath(r.Path)
	if err != nil {
		return nil
	}
	p := s.planOf(s.matcher.match(r, key))
	lim := Limits{Deadline: opt.Deadline, Now: opt.Now, Clock: opt.Clock}
	in := p.input(r, path)
	out := Outcome{Effect: d.Effect, Reason: d.Reason, Mask: d.Mask, Err: d.Err}
	var list []Explanation
	for _, c := range p.controls {
		switch {
		case c.meta.ID == d.PolicyID && d.Effect != NoMatch:
			list = append(list, c.explanation(ctx, in, s, lim, out))
		case d.Effect == NoMatch && len(list) < maxExplained:
			list = append(list, c.explanation(ctx, in, s, lim, out))
		}
	}
	slices.SortStableFunc(list, func(a, b Explanation) int { return cmp.Compare(a.distance(), b.distance()) })
	return list
}

// distance is how far the control was from granting access.
func (e *Explanation) distance() int {
	if e.Nearest == nil {
		return 1 << 20
	}
	return len(e.Nearest.Missing)
}
