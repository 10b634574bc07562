package reason

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Step is one step of a trace that a person can read.
type Step struct {
	Number int `json:"step_number" doc:"1-based"`
	// Type is one of the Step constants.
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

// MaxSteps is the maximum number of steps of a trace, including the marker of a cut and the final
// decision.
const MaxSteps = 1000

// RedactedSteps returns the steps of a trace with each value replaced by the result of hide, in the
// descriptions too.
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
			s = StepOf(c)
			s.Number = n
		}
		out[i] = s
	}
	return out
}

// StepOf returns the step of a condition.
func StepOf(c Condition) Step {
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
		text += "; " + v.String()
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
