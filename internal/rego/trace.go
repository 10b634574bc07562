package rego

import (
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Step is one step of a trace that a person can read (spec, "TraceStep").
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
// the final decision among them (hardening R5).
const MaxSteps = 1000

// Trace evaluates the control and tells each condition that was reached, with
// its line and the values that it saw. A body is told up to its first
// condition that does not hold; of a loop, the round that came furthest.
func (c *Control) Trace(ctx context.Context, in value.Value, data DataSource, lim Limits) (Outcome, []Step, Explanation) {
	out, why := c.Explain(ctx, in, data, lim)
	t := tracer{}
	t.add(StepMatched, fmt.Sprintf("Control %q is evaluated", c.meta.Name), true, value.Object(
		value.Member{Key: "policy_id", Value: value.Int(c.meta.ID)},
		value.Member{Key: "policy_name", Value: value.String(c.meta.Name)},
		value.Member{Key: "policy_version", Value: value.Int(c.meta.Version)},
	))
	if w := c.why(); w != nil {
		_ = w.Ask(whyEnv(ctx, lim), in, data, func(q *native.Inquiry) { t.rules(q) }) // a limit cuts the trace: no reason to fail
	} else {
		t.conditions(why.Conditions)
		if why.Nearest != nil {
			t.conditions(why.Nearest.Missing)
		}
	}
	t.final(out, &why)
	return out, t.steps, why
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

// rules tells the rules in the order in which they count.
func (t *tracer) rules(q *native.Inquiry) {
	for _, name := range []string{"deny", "mask", "allow"} {
		for _, b := range q.Readings(name) {
			t.conditions(conditions(b.Reached))
		}
		if name == "deny" && denies(q.Value("deny")) {
			return
		}
	}
}

func (t *tracer) conditions(list []Condition) {
	for _, c := range list {
		result := "does not hold"
		if c.Holds {
			result = "holds"
		}
		text := fmt.Sprintf("Line %d: %s %s", c.Line, c.Source, result)
		if c.Unreached {
			text = fmt.Sprintf("Line %d: %s was not reached", c.Line, c.Source)
		}
		values := make([]value.Member, 0, len(c.Values))
		for _, v := range c.Values {
			text += "; " + v.words()
			val := v.Value
			if !val.Defined() {
				val = value.Null()
			}
			values = append(values, value.Member{Key: v.Path, Value: val})
		}
		t.add(StepCondition, text, c.Holds, value.Object(
			value.Member{Key: "rule", Value: value.String(c.Rule)},
			value.Member{Key: "line", Value: value.Int(int64(c.Line))},
			value.Member{Key: "source", Value: value.String(c.Source)},
			value.Member{Key: "values", Value: value.Object(values...)},
		))
	}
}

// final ends the trace.
func (t *tracer) final(out Outcome, why *Explanation) {
	if t.cut {
		t.add(StepTruncated, fmt.Sprintf("The trace is cut at %d steps", MaxSteps), true, value.Object())
	}
	details := []value.Member{
		{Key: "effect", Value: value.String(out.Effect.String())},
		{Key: "reason", Value: value.String(out.Reason)},
	}
	if why.Rule != "" {
		details = append(details, value.Member{Key: "rule", Value: value.String(why.Rule)})
	}
	if why.Line > 0 {
		details = append(details, value.Member{Key: "line", Value: value.Int(int64(why.Line))})
	}
	t.add(StepFinal, out.Effect.String()+": "+out.Reason, out.Effect.Permits(), value.Object(details...))
}
