// Package eval has what one evaluation of Rego may use: its environment, its budget and its errors.
// Built-ins and evaluators count their work in the Budget.
package eval

import (
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Env is the environment of an evaluation: its clock, its limits and its options. A limit of zero
// means the default.
type Env struct {
	// Now is the result of time.now_ns.
	Now time.Time
	// Deadline and Clock limit the time: an evaluation reads Clock every few thousand steps.
	// Without a Clock there is no deadline.
	Deadline time.Time
	Clock    func() time.Time
	// Closing Done or Expired stops the evaluation.
	Done, Expired <-chan struct{}
	// Pause is called every few thousand steps and may block; the evaluation stops if it returns
	// false. It may be nil.
	Pause func() bool
	// Steps limits the work. The default of 10 million takes a few hundred milliseconds.
	Steps int
	// Bytes limits about how much an evaluation allocates in total. The default is 32 MiB.
	Bytes int
	// Strict makes an error in a built-in fail the evaluation. Otherwise the expression is
	// undefined.
	Strict bool
	// SkipReason leaves Result.Reason undefined, for callers that do not read it.
	SkipReason bool
	// DenyDecides reports whether a value of deny alone decides. Mask and allow are then not
	// evaluated, and stay undefined. If it is nil, deny never decides alone.
	DenyDecides func(deny value.Value) bool
}

const (
	defaultSteps = 10_000_000
	defaultBytes = 32 << 20
	// MaxValue limits the size (value.Value.Size) of each value that an evaluation makes, so that
	// comparing or converting it takes a bounded time.
	MaxValue = 16 << 20
)

// ErrLimit means that an evaluation ran out of steps, memory or time, was cancelled, or computed a
// number outside the range of value.Number.
var ErrLimit = errors.New("evaluation limit reached")

// Error is an error in the control itself, such as two values for one complete rule. Code and
// Message are those of topdown.
type Error struct {
	Code    string
	Message string
	// File is the name of the compiled module, and Line a line in it. Both are empty if the error
	// has no location.
	File string
	Line int
}

// Error returns the code, line and message.
func (e *Error) Error() string { return fmt.Sprintf("%s: line %d: %s", e.Code, e.Line, e.Message) }

// PanicError is a recovered panic of the evaluator.
type PanicError struct {
	// Value is the recovered value, Stack the stack trace. Never show either to callers.
	Value any
	Stack []byte
}

// Error omits the recovered value: it may contain the caller's data.
func (*PanicError) Error() string { return "the evaluator failed" }

// ErrorAt returns an error at a place of a module; loc may be nil.
func ErrorAt(code, message string, loc *ast.Location) *Error {
	e := &Error{Code: code, Message: message}
	if loc != nil {
		e.File, e.Line = loc.File, loc.Row
	}
	return e
}
