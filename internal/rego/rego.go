// Package rego is the policy decision point: it matches a request to its resource,
// evaluates the controls in scope within bounds, and combines their outcomes into one
// decision.
//
// It is pure: it has no store, no network and no clock of its own. The flow of a
// decision is
//
//	request -> target.NormalisePath -> matcher -> plan (controls in scope)
//	        -> cache? -> each control: its compiled program -> combine
//
// Package value has the values, target the resources, masking the masks, native the evaluator,
// and lang the language of controls. Around the engine are bundle (carries controls to bouncers),
// explain (why a control decided) and suite (runs the tests that authors write).
package rego

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Effect is the effect of one control, or of several combined. The constants are in the order of
// precedence: the greater wins.
type Effect uint8

// The effects.
const (
	NoMatch Effect = iota
	Allow
	Mask
	Deny
)

// String returns the effect's name on the wire.
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

// Meta holds what the service knows about a control besides its text.
type Meta struct {
	ID      int64  `json:"id"`
	Name    string `json:"name"`
	Version int64  `json:"version"`
	// ResourceID is the resource that the control is linked to; 0 means that it is tenant-wide.
	ResourceID int64 `json:"resource_id"`
	// Targets are the targets of the control's actions, such as channel:3, separated by spaces.
	// The service runs the actions; a bouncer only carries the ids.
	Targets string `json:"targets,omitempty"`
}

// Limits bound one evaluation. The zero value means the defaults.
type Limits struct {
	// Deadline is the longest time that an evaluation may take; 0 means DefaultDeadline.
	Deadline time.Duration
	// Bytes is about how much one evaluation may allocate; 0 means the evaluator's default of
	// 32 MiB.
	Bytes int64
	// Steps is how many steps a control may take; 0 means the evaluator's default of 10 million.
	Steps int
	// Now is the time that the controls see.
	Now time.Time
	// Clock returns the current time, to check the deadline. If it is nil, a timer does that.
	Clock func() time.Time
	// Pause is called each time a control has run for about 50 us. It may block, so that others
	// can run. If it returns false, the evaluation ends with ErrLimit.
	Pause func() bool
	// Caught is called for each panic of the evaluator that was recovered; it may be nil. The
	// panic of a decision is in Decision.Err too.
	Caught func(*Panic)
}

// DefaultDeadline is the default of Limits.Deadline.
const DefaultDeadline = 250 * time.Millisecond

// Outcome is the result of one control for one input.
type Outcome struct {
	Effect Effect
	// Reason is a text for people; it is never empty.
	Reason string
	// Authored says that the control gave the reason itself.
	Authored bool
	// Mask is set with the effect Mask.
	Mask []masking.MaskRule
	// Err says why the control could not be evaluated; the effect is then Deny.
	Err error
}

// Request is a decision request.
type Request struct {
	// User, Action, Resource and Context become the members of input.
	User, Action, Resource, Context value.Value
	// Extra is an object whose members become further members of input:
	// request, mcp, llm, usage.
	Extra value.Value
	// ResourceID is the id of the resource; 0 means that the other fields find it.
	ResourceID int64
	// NotStored says that the subject is not a stored user, whatever its id. Then it is not
	// completed from a stored user.
	NotStored bool
	// ByID says that the request gave the id of its resource as a number. Then only the id counts:
	// if no resource has it, none matches.
	ByID bool
	// Type, Host, Path and Method are used to find the resource; empty ones do not restrict. Path
	// may be raw: it is normalised first.
	Type, Host, Path, Method string
}
