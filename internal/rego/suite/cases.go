package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// TestCase is one stored test of a control.
type TestCase struct {
	Name  string      `json:"name" doc:"What the case is about" minLength:"1" maxLength:"200"`
	Input value.Value `json:"input" doc:"The input document"`
	// Expected says whether access must be granted: the outcome is ALLOW or MASK.
	Expected bool `json:"expected" doc:"Whether access is to be granted (ALLOW or MASK)"`
	// Data is undefined, or an object with the members resources and pip. Each replaces the member
	// of data with that name as a whole.
	Data value.Value `json:"data,omitzero" doc:"What takes the place of data.resources and data.pip"`
}

// TestResult is the result of a case.
type TestResult struct {
	Name             string             `json:"name"`
	Passed           bool               `json:"passed"`
	Expected         bool               `json:"expected"`
	Actual           bool               `json:"actual"`
	Effect           string             `json:"effect"`
	Reason           string             `json:"reason"`
	Mask             []masking.MaskRule `json:"mask,omitempty"`
	EvaluationTimeMS float64            `json:"evaluation_time_ms"`
	// Error says why the control could not be evaluated. An error counts as a DENY, so a case that
	// expects no access passes. A case that ran into a limit does not pass.
	Error string `json:"error,omitempty"`
	// Why explains the outcome of a case that did not pass.
	Why string `json:"why,omitempty"`
}

// Missed returns why a case did not pass, from its expected and actual result; "" if it passed.
func (r *TestResult) Missed() string {
	switch {
	case r.Passed:
		return ""
	case r.Actual == r.Expected: // it ran into a limit, or was not run
		return r.Error
	default:
		return fmt.Sprintf("expected %t, got %t", r.Expected, r.Actual)
	}
}

// RunTests evaluates the cases one after another. It does not change the inputs, and matches no
// resource. clock measures the times; if it is nil, they are 0.
func RunTests(ctx context.Context, c *rego.Control, cases []TestCase, data rego.DataSource, lim rego.Limits, clock func() time.Time) []TestResult {
	out := make([]TestResult, 0, len(cases))
	for _, tc := range cases {
		if ctx.Err() != nil {
			out = append(out, TestResult{Name: tc.Name, Expected: tc.Expected, Effect: rego.Deny.String(), Reason: rego.ReasonLimit, Error: rego.ReasonLimit})
			continue
		}
		var start time.Time
		if clock != nil {
			start = clock()
		}
		o := c.Eval(ctx, tc.Input, tc.over(data), lim)
		r := TestResult{
			Name: tc.Name, Expected: tc.Expected, Actual: o.Effect.Permits(),
			Effect: o.Effect.String(), Reason: o.Reason, Mask: o.Mask,
		}
		if clock != nil {
			r.EvaluationTimeMS = float64(clock().Sub(start).Nanoseconds()) / 1e6
		}
		if o.Err != nil {
			r.Error = o.Err.Error()
		}
		r.Passed = r.Actual == r.Expected && !errors.Is(o.Err, rego.ErrLimit)
		if !r.Passed && o.Err == nil {
			r.Why = explain.Outcome(ctx, c, tc.Input, tc.over(data), lim, o).Text
		}
		out = append(out, r)
	}
	return out
}

// Unset returns the paths below data that the control reads and that not every case sets. A run of
// the cases needs a DataSource for them.
func Unset(c *rego.Control, cases []TestCase) [][]string {
	return slices.DeleteFunc(slices.Clone(c.Refs().Data), func(path []string) bool {
		return !slices.ContainsFunc(cases, func(tc TestCase) bool { return !tc.sets(path) })
	})
}

// sets reports whether the case sets the value at a path below data.
func (tc TestCase) sets(path []string) bool {
	return len(path) > 0 && tc.Data.Get(path[0]).Defined()
}

// over returns data with the members that the case sets replaced.
func (tc TestCase) over(data rego.DataSource) rego.DataSource {
	if !tc.Data.Defined() {
		return data
	}
	return overlay{tc, data}
}

// overlay reads what a case sets, and everything else from below, which may be nil.
type overlay struct {
	tc    TestCase
	below rego.DataSource
}

// Data returns the value at a path.
func (o overlay) Data(path []string) value.Value {
	if o.below == nil || o.tc.sets(path) {
		return o.tc.Data.At(path...)
	}
	return o.below.Data(path)
}
