// Package rego is the policy decision point: it matches a request to its resource,
// evaluates the controls in scope within bounds, and combines their outcomes into one
// decision.
//
// It is pure: no store, no network, no clock of its own. The flow of a
// decision is
//
//	request -> NormalizePath -> matcher -> plan (controls in scope)
//	        -> cache? -> each control: its compiled program -> combine
//
// The folders: value has the values, native the evaluator, lang the language of
// controls. Around the engine are bundle (what carries controls to bouncers), explain
// (why a control decided), masking (how an answer is masked) and suite (the tests that
// authors write).
package rego

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
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

// MaskRule says what is hidden in an answer, and how.
type MaskRule struct {
	// Path is dotted (user.email, items.*.ssn) or a JSON pointer (/user/email);
	// `*` stands for every element of an array or member of an object.
	Path string `json:"path" doc:"Dotted path or JSON pointer; * matches every element"`
	// Strategy is redact, hash, last4 or remove.
	Strategy string `json:"strategy" enum:"redact,hash,last4,remove" doc:"How the value is hidden"`
}

// Meta holds what the service knows about a control besides its text.
type Meta struct {
	ID      int64  `json:"id"`
	Name    string `json:"name"`
	Version int64  `json:"version"`
	// ResourceID links the control to one resource; 0 is tenant-wide.
	ResourceID int64 `json:"resource_id"`
	// Targets are those of the control's actions, such as channel:3, separated by spaces. The
	// service runs the actions; a bouncer only carries the ids.
	Targets string `json:"targets,omitempty"`
}

// Limits bound one evaluation. The zero value means the defaults.
type Limits struct {
	// Deadline is the longest an evaluation may take; 0 is DefaultDeadline.
	Deadline time.Duration
	// Bytes is how much one evaluation may allocate, roughly; 0 is the evaluator's
	// default (32 MiB).
	Bytes int64
	// Steps is how many steps a compiled control may take; 0 is the compiler's default, which
	// takes far longer than the live deadline.
	Steps int
	// Now is the time that the controls see; zero is the Unix epoch.
	Now time.Time
	// Clock returns the time that passes; nil measures by a timer.
	Clock func() time.Time
	// Pause is called each time a compiled control has run for about 50 us. It may block, so that
	// others can run; false ends the evaluation like a limit.
	Pause func() bool
	// Caught is called for each fault of the evaluator that was recovered; nil: it is not called.
	// The fault of a decision is in Decision.Err too.
	Caught func(*Panic)
}

// DefaultDeadline is the default of Limits.Deadline.
const DefaultDeadline = 250 * time.Millisecond

// Outcome is the result of one control for one input.
type Outcome struct {
	Effect Effect
	// Reason is for people; never empty.
	Reason string
	// Authored says that the control gave the reason itself.
	Authored bool
	// Mask is set with the effect Mask.
	Mask []MaskRule
	// Err says why the control could not be evaluated; the effect is then Deny.
	Err error
}

// Request is the subject of a decision.
type Request struct {
	// User, Action, Resource and Context become the members of input.
	User, Action, Resource, Context value.Value
	// Extra is an object whose members become further members of input:
	// request, mcp, llm, usage.
	Extra value.Value
	// ResourceID names the resource; 0 means that the other fields match it.
	ResourceID int64
	// NotStored says that the subject is not a stored user, whatever its id: nothing is filled
	// in.
	NotStored bool
	// ByID says that the request gave its resource's id as a number. Then only the id counts: if
	// no resource has it, none matches.
	ByID bool
	// Type, Host, Path and Method are what the matcher uses; empty ones do not restrict. Path may
	// be raw: it is normalised first.
	Type, Host, Path, Method string
}
