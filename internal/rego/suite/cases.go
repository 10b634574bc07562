package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// TestCase is one stored test of a control.
type TestCase struct {
	Name  string      `json:"name" doc:"What the case is about" minLength:"1" maxLength:"200"`
	Input value.Value `json:"input" doc:"The input document"`
	// Expected is whether access is granted: the outcome is ALLOW or MASK.
	Expected bool `json:"expected" doc:"Whether access is to be granted (ALLOW or MASK)"`
	// Data, if defined, is an object whose members, resources and pip, take the
	// place of those below data, each as a whole.
	Data value.Value `json:"data,omitzero" doc:"What takes the place of data.resources and data.pip"`
}

// TestResult is how a case went.
type TestResult struct {
	Name             string          `json:"name"`
	Passed           bool            `json:"passed"`
	Expected         bool            `json:"expected"`
	Actual           bool            `json:"actual"`
	Effect           string          `json:"effect"`
	Reason           string          `json:"reason"`
	Mask             []rego.MaskRule `json:"mask,omitempty"`
	EvaluationTimeMS float64         `json:"evaluation_time_ms"`
	// Error is why the control could not be evaluated. That counts as a DENY, and
	// so a case passes that expects no access; one that met a limit does not, for
	// it was not judged.
	Error string `json:"error,omitempty"`
	// Why says of a case that did not pass which conditions made the outcome.
	Why string `json:"why,omitempty"`
}

// Missed says why a case did not pass, by its expected and actual result; "" where it
// passed.
func (r *TestResult) Missed() string {
	switch {
	case r.Passed:
		return ""
	case r.Actual == r.Expected: // it met a limit, or was not run
		return r.Error
	default:
		return fmt.Sprintf("expected %t, got %t", r.Expected, r.Actual)
	}
}

// RunTests evaluates the cases one after another. The input is taken as it is:
// no resource is matched. clock measures; nil leaves the times 0.
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

// Unset are the paths below data that the control reads and not each of the
// cases sets: what their run needs a DataSource for.
func Unset(c *rego.Control, cases []TestCase) [][]string {
	return slices.DeleteFunc(slices.Clone(c.Refs().Data), func(path []string) bool {
		return !slices.ContainsFunc(cases, func(tc TestCase) bool { return !tc.sets(path) })
	})
}

// sets reports whether the case itself says what is at a path below data.
func (tc TestCase) sets(path []string) bool {
	return len(path) > 0 && tc.Data.Get(path[0]).Defined()
}

// over is data with what the case sets in its place.
func (tc TestCase) over(data rego.DataSource) rego.DataSource {
	if !tc.Data.Defined() {
		return data
	}
	return overlay{tc, data}
}

// overlay gives what a case sets, and the rest from below, which may be nil.
type overlay struct {
	tc    TestCase
	below rego.DataSource
}

// Data is the value at path.
func (o overlay) Data(path []string) value.Value {
	if o.below == nil || o.tc.sets(path) {
		return o.tc.Data.At(path...)
	}
	return o.below.Data(path)
}
