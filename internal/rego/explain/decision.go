package explain

import (
	"cmp"
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxExplained limits the controls that are explained for one decision.
const maxExplained = 8

// Decision explains a decision of a set on a request. It does not matter whether the decision came
// from the cache. The result is the explanation of the control that decided. With NO_MATCH, it has
// the explanations of the controls in scope, at most 8, with the one that was nearest to granting
// access first. There are none if no control was evaluated: for an invalid path, and if no control
// is in scope.
func Decision(ctx context.Context, s *rego.Set, r *rego.Request, opt rego.Options, d rego.Decision) []reason.Explanation {
	var list []reason.Explanation
	eachExplained(s, r, opt, d, func(c *rego.Control, in value.Value, lim rego.Limits, out rego.Outcome) {
		list = append(list, Outcome(ctx, c, in, s, lim, out))
	})
	slices.SortStableFunc(list, func(a, b reason.Explanation) int { return cmp.Compare(distance(&a), distance(&b)) })
	return list
}

// TraceDecision returns the explanations of Decision, and the steps of the controls that they
// explain, one control after the other, at most reason.MaxSteps in all.
func TraceDecision(ctx context.Context, s *rego.Set, r *rego.Request, opt rego.Options, d rego.Decision) ([]reason.Step, []reason.Explanation) {
	var list []reason.Explanation
	var steps []reason.Step
	eachExplained(s, r, opt, d, func(c *rego.Control, in value.Value, lim rego.Limits, out rego.Outcome) {
		e := Outcome(ctx, c, in, s, lim, out)
		list = append(list, e)
		for _, step := range stepsOf(ctx, c, in, s, lim, out, &e) {
			if len(steps) == reason.MaxSteps {
				return
			}
			step.Number = len(steps) + 1
			if len(steps) == reason.MaxSteps-1 && step.Type != reason.StepFinal {
				step = reason.Step{Number: reason.MaxSteps, Type: reason.StepTruncated, Description: cutDescription, Result: true, Details: value.Object()}
			}
			steps = append(steps, step)
		}
	})
	slices.SortStableFunc(list, func(a, b reason.Explanation) int { return cmp.Compare(distance(&a), distance(&b)) })
	return steps, list
}

// eachExplained calls fn for each control that is explained for a decision, with its input, the
// limits and the outcome.
func eachExplained(s *rego.Set, r *rego.Request, opt rego.Options, d rego.Decision, fn func(*rego.Control, value.Value, rego.Limits, rego.Outcome)) {
	controls, in := s.Scope(r, &d)
	out := rego.Outcome{Effect: d.Effect, Reason: d.Reason, Mask: d.Mask, Err: d.Err}
	lim, n := opt.Limits(), 0
	for _, c := range controls {
		if n == maxExplained {
			break
		}
		if d.Effect == rego.NoMatch || c.Meta().ID == d.PolicyID {
			n++
			fn(c, in, lim, out)
		}
	}
}

// distance returns how far a control was from granting access: the number of missing conditions.
func distance(e *reason.Explanation) int {
	if e.Nearest == nil {
		return 1 << 20
	}
	return len(e.Nearest.Missing)
}
