package explain

import (
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/why"
)

// Step is one step of a trace that a person can read.
type Step struct {
	Number int `json:"step_number" doc:"1-based"`
	// Type is policy_matched, condition_eval, final_decision, or truncated.
	Type        string `json:"step_type" enum:"policy_matched,condition_eval,final_decision,truncated"`
	Description string `json:"description"`
	Result      bool   `json:"result"`
	// Details is an object: rule, line, source and values of a condition.
	Details value.Value `json:"details"`
}

// The types of a Step.
const (
	StepMatched   = "policy_matched"
	StepCondition = "condition_eval"
	StepFinal     = "final_decision"
	StepTruncated = "truncated"
)

// MaxSteps is how many steps a trace has at most, the marker of the cut and
// the final decision among them.
const MaxSteps = 1000

// Trace evaluates a control and lists each condition that was reached, with
// its line and the values that it saw. A body is listed up to its first
// condition that does not hold; of a loop, the round that came furthest.
func Trace(ctx context.Context, c *rego.Control, in value.Value, data rego.DataSource, lim rego.Limits) (rego.Outcome, []Step, Explanation) {
	out, e := Control(ctx, c, in, data, lim)
	return out, stepsOf(ctx, c, in, data, lim, out, &e), e
}

// stepsOf are the steps of a control that was evaluated and explained.
func stepsOf(ctx context.Context, c *rego.Control, in value.Value, data rego.DataSource, lim rego.Limits, out rego.Outcome, e *Explanation) []Step {
	t := tracer{}
	t.add(StepMatched, fmt.Sprintf("Control %q is evaluated", c.Meta().Name), true, value.Object(
		value.Member{Key: "policy_id", Value: value.Int(c.Meta().ID)},
		value.Member{Key: "policy_name", Value: value.String(c.Meta().Name)},
		value.Member{Key: "policy_version", Value: value.Int(c.Meta().Version)},
	))
	if w := c.Why(); w != nil {
		_ = inquire(ctx, w, in, data, lim, func(q *why.Inquiry) { t.rules(q) }) // a limit cuts the trace: no reason to fail
	}
	t.final(out, e)
	return t.steps
}

var cutDescription = fmt.Sprintf("The trace is cut at %d steps", MaxSteps)

// RedactedSteps are the steps of a trace with each value that was seen replaced
// by what hide makes of it, in the descriptions too.
func RedactedSteps(steps []Step, hide func(path string, v value.Value) value.Value) []Step {
	out := make([]Step, len(steps))
	for i, s := range steps {
		if s.Type == StepCondition {
			c := Condition{Holds: s.Result, Unreached: s.Details.Get("unreached").True()}
			c.Rule, _ = s.Details.Get("rule").Str()
			c.Source, _ = s.Details.Get("source").Str()
			line, _ := s.Details.Get("line").Int64()
			c.Line = int(line)
			s.Details.Get("values").Each(func(path string, v value.Value) bool {
				c.Values = append(c.Values, Binding{Path: path, Value: hide(path, v)})
				return true
			})
			n := s.Number
			s = stepOf(c)
			s.Number = n
		}
		out[i] = s
	}
	return out
}

// tracer collects steps.
type tracer struct {
	steps []Step
	cut   bool
}

func (t *tracer) add(kind, text string, result bool, details value.Value) {
	if len(t.steps) >= MaxSteps-2 && kind == StepCondition {
		t.cut = true
		return
	}
	t.steps = append(t.steps, Step{Number: len(t.steps) + 1, Type: kind, Description: text, Result: result, Details: details})
}

// rules lists the rules in the order in which they count.
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

func (t *tracer) conditions(list []Condition) {
	for _, c := range list {
		s := stepOf(c)
		t.add(s.Type, s.Description, s.Result, s.Details)
	}
}

// stepOf is the step of a condition.
func stepOf(c Condition) Step {
	result := "does not hold"
	switch {
	case c.Unreached:
		result = "was not reached"
	case c.Holds:
		result = "holds"
	}
	text := fmt.Sprintf("Line %d: %s %s", c.Line, c.Source, result)
	values := make([]value.Member, 0, len(c.Values))
	for _, v := range c.Values {
		text += "; " + v.words()
		if v.Value.Defined() {
			values = append(values, value.Member{Key: v.Path, Value: v.Value})
		}
	}
	details := []value.Member{
		{Key: "rule", Value: value.String(c.Rule)},
		{Key: "line", Value: value.Int(int64(c.Line))},
		{Key: "source", Value: value.String(c.Source)},
		{Key: "values", Value: value.Object(values...)},
	}
	if c.Unreached {
		details = append(details, value.Member{Key: "unreached", Value: value.Bool(true)})
	}
	return Step{Type: StepCondition, Description: text, Result: c.Holds, Details: value.Object(details...)}
}

// final ends the trace.
func (t *tracer) final(out rego.Outcome, e *Explanation) {
	if t.cut {
		t.add(StepTruncated, cutDescription, true, value.Object())
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
	t.add(StepFinal, out.Effect.String()+": "+out.Reason, out.Effect.Permits(), value.Object(details...))
}
