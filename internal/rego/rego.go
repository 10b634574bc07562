// Package rego turns text, data and input into an outcome: it checks and
// compiles the controls that tenants write in Rego, evaluates them within
// bounds, matches a request to its resource, combines several controls into
// one decision, and writes and reads the bundles that carry them to bouncers.
//
// It is pure: no store, no network, no clock of its own. The flow of a
// decision is
//
//	request -> NormalizePath -> matcher -> plan (controls in scope)
//	        -> cache? -> each control: native program or topdown -> combine
//
// Everything a tenant wrote is held hostile: a built-in allow-list
// (capabilities.go), bounds on the work of built-ins that cannot be cancelled
// (bounded.go), bounds on the source itself (source.go) and a budget of time
// and bytes for each evaluation (budget.go).
package rego

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Issue is one finding in Rego source: an error of the check or a warning of
// the linter.
type Issue struct {
	// Line and Column are 1-based; 0 where the finding is about the whole text.
	Line    int    `json:"line" doc:"Line in the source, 1-based; 0 for the text as a whole"`
	Column  int    `json:"column" doc:"Column in the line, 1-based"`
	Message string `json:"message" doc:"What is wrong"`
	// Severity is "error" (the control is refused) or "warning".
	Severity string `json:"severity" enum:"error,warning" doc:"error: the control is refused; warning: advice"`
	// Rule names the check: a compiler's code, or category/title of the linter.
	Rule string `json:"rule,omitempty" doc:"The check that speaks: a compiler code, or the linter's category/title"`

	file   string // of the module, while a check goes on
	caught *Panic // that ended the check
}

// The two severities of an Issue.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// Effect is the outcome of a control, or of several combined.
// The order is the order of precedence: the greater wins.
type Effect uint8

// The effects.
const (
	NoMatch Effect = iota
	Allow
	Mask
	Deny
)

// String is the effect's name on the wire.
func (e Effect) String() string {
	switch e {
	case Allow:
		return "ALLOW"
	case Mask:
		return "MASK"
	case Deny:
		return "DENY"
	default:
		return "NO_MATCH"
	}
}

// Permits reports whether the effect grants access: ALLOW and MASK do.
func (e Effect) Permits() bool { return e == Allow || e == Mask }

// Strategy values of a MaskRule, by rising strictness: last4 shows four
// characters, hash shows equality, redact shows presence, remove shows nothing.
const (
	StrategyLast4  = "last4"
	StrategyHash   = "hash"
	StrategyRedact = "redact"
	StrategyRemove = "remove"
)

// MaskRule says what is hidden in an answer, and how.
type MaskRule struct {
	// Path is dotted (user.email, items.*.ssn) or a JSON pointer (/user/email);
	// `*` stands for every element of an array or member of an object.
	Path string `json:"path" doc:"Dotted path or JSON pointer; * for every element"`
	// Strategy is redact, hash, last4 or remove.
	Strategy string `json:"strategy" enum:"redact,hash,last4,remove" doc:"How the value is hidden"`
}

// Meta is what the service knows of a control beside its text.
type Meta struct {
	ID      int64  `json:"id"`
	Name    string `json:"name"`
	Version int64  `json:"version"`
	// ResourceID links the control to one resource; 0 is tenant-wide.
	ResourceID int64 `json:"resource_id"`
}

// Limits bound one evaluation. The zero value means the defaults.
type Limits struct {
	// Deadline is the longest an evaluation may take; 0 is DefaultDeadline.
	Deadline time.Duration
	// Bytes is how much the built-ins of one evaluation may produce; 0 is DefaultBytes.
	Bytes int64
	// Steps is how many steps a compiled control may take; 0 is the compiler's
	// default, which is far beyond what the live deadline leaves time for.
	Steps int
	// Now is the time that the controls see; zero is the Unix epoch.
	Now time.Time
	// Clock is asked for the time that passes; nil measures by a timer.
	Clock func() time.Time
	// Pause is called each time a compiled control has run for some 50 us. It may
	// block, to let others run; false ends the evaluation as a limit does.
	Pause func() bool
	// Caught is told of each fault of the evaluator that was recovered; nil: no one
	// is. That of a decision is in Decision.Err too.
	Caught func(*Panic)
}

// The defaults of Limits.
const (
	DefaultDeadline       = 250 * time.Millisecond
	DefaultBytes    int64 = 64 << 20
)

// Outcome is what one control says of one input.
type Outcome struct {
	Effect Effect
	// Reason is for people; never empty.
	Reason string
	// Authored says that the control gave the reason itself.
	Authored bool
	// Mask is set with the effect Mask.
	Mask []MaskRule
	// Err is why the control could not be evaluated; the effect is then Deny.
	Err error
}

// Request is what a decision is asked about.
type Request struct {
	// User, Action, Resource and Context become the members of input.
	User, Action, Resource, Context value.Value
	// Extra is an object whose members become further members of input:
	// request, mcp, llm, usage.
	Extra value.Value
	// ResourceID picks the resource outright; 0 is to match by the rest.
	ResourceID int64
	// NotStored says that the subject is no stored user, whatever its id: nothing is
	// filled in.
	NotStored bool
	// ByID says that the request gave its resource's id as a number. That decides
	// alone: where no resource has it, none matches, whatever the rest says.
	ByID bool
	// Type, Host, Path and Method are what the matcher goes by; empty ones
	// do not restrict. Path may be raw: it is normalised first.
	Type, Host, Path, Method string
}
