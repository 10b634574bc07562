package explain

import (
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/why"
)

// Trace evaluates a control and returns a step for each condition that was reached, with its line
// and the values that it read. A body is listed up to its first condition that does not hold. Of a
// loop, only the iteration with the fewest failed conditions is listed.
func Trace(ctx context.Context, c *rego.Control, in value.Value, data rego.DataSource, lim rego.Limits) (rego.Outcome, []reason.Step, reason.Explanation) {
	out, e := Control(ctx, c, in, data, lim)
	steps := stepsOf(ctx, c, in, data, lim, out, &e)
	return out, steps, e
}

// stepsOf returns the steps of a control that was evaluated and explained.
func stepsOf(ctx context.Context, c *rego.Control, in value.Value, data rego.DataSource, lim rego.Limits, out rego.Outcome, e *reason.Explanation) []reason.Step {
	t := tracer{}
	t.add(reason.StepMatched, fmt.Sprintf("Control %q is evaluated", c.Meta().Name), true, value.Object(
		value.Member{Key: "policy_id", Value: value.Int(c.Meta().ID)},
		value.Member{Key: "policy_name", Value: value.String(c.Meta().Name)},
		value.Member{Key: "policy_version", Value: value.Int(c.Meta().Version)},
	))
	if w := c.Why(); w != nil {
		_ = inquire(ctx, w, in, data, lim, func(q *why.Inquiry) { t.rules(q) }) // an error only makes the trace shorter
	}
	t.final(out, e)
	return t.steps
}

var cutDescription = fmt.Sprintf("The trace is cut at %d steps", reason.MaxSteps)

// tracer collects steps.
type tracer struct {
	steps []reason.Step
	cut   bool
}

func (t *tracer) add(kind, text string, result bool, details value.Value) {
	if len(t.steps) >= reason.MaxSteps-2 && kind == reason.StepCondition {
		t.cut = true
		return
	}
	t.steps = append(t.steps, reason.Step{Number: len(t.steps) + 1, Type: kind, Description: text, Result: result, Details: details})
}

// rules adds the conditions of the rules, by precedence. A deny that holds ends the trace.
func (t *tracer) rules(q *why.Inquiry) {
	for _, name := range []string{"deny", "mask", "allow"} {
		for _, b := range q.Readings(name) {
			t.conditions(conditions(b.Reached))
		}
		if name == "deny" && rego.Denies(q.Value("deny")) {
			return
		}
	}
}

func (t *tracer) conditions(list []reason.Condition) {
	for _, c := range list {
		s := reason.StepOf(c)
		t.add(s.Type, s.Description, s.Result, s.Details)
	}
}

// final adds the last steps of the trace: the marker if it was cut, and the decision.
func (t *tracer) final(out rego.Outcome, e *reason.Explanation) {
	if t.cut {
		t.add(reason.StepTruncated, cutDescription, true, value.Object())
	}
	details := []value.Member{
		{Key: "effect", Value: value.String(out.Effect.String())},
		{Key: "reason", Value: value.String(out.Reason)},
	}
	if e.Rule != "" {
		details = append(details, value.Member{Key: "rule", Value: value.String(e.Rule)})
	}
	if e.Line > 0 {
		details = append(details, value.Member{Key: "line", Value: value.Int(int64(e.Line))})
	}
	t.add(reason.StepFinal, out.Effect.String()+": "+out.Reason, out.Effect.Permits(), value.Object(details...))
}
