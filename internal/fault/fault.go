// Package fault has the one error type of the service. A fault has a kind, which package rest maps
// to an HTTP status; a stable code in snake_case; a message for people; and details that point into
// the request. Its cause is for the log only and is never sent to a client.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Kind is the class of an error, independent of any protocol.
type Kind uint8

// The kinds, with the HTTP status that package api gives them.
const (
	Internal         Kind = iota // 500
	BadRequest                   // 400: unparsable, a bad parameter
	Unauthenticated              // 401
	Forbidden                    // 403
	NotFound                     // 404
	MethodNotAllowed             // 405
	Conflict                     // 409
	Precondition                 // 412: If-Match no longer holds
	TooLarge                     // 413
	UnsupportedMedia             // 415
	Misdirected                  // 421
	Invalid                      // 422: well-formed, but its values are refused
	RateLimited                  // 429
	HeadersTooLarge              // 431
	BadGateway                   // 502
	Unavailable                  // 503
	GatewayTimeout               // 504
	StorageFull                  // 507
)

// Detail is one offence: its place and what is wrong there.
type Detail struct {
	// Pointer is a JSON pointer into the body, or `query.name`, `path.name`, `header.name`.
	Pointer string `json:"pointer,omitempty"`
	Message string `json:"message"`
	// Line and Column are set for offences in Rego source (1-based).
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

// Error is the service's error.
type Error struct {
	Kind    Kind
	Code    string
	Message string
	Details []Detail
	// RetryAfter is how long the caller should wait before it tries again; 0: unknown.
	RetryAfter time.Duration
	// Fields are additional members of the error body, such as tenant_id or limit.
	Fields map[string]any
	// Cause is for the log only.
	Cause error
}

// New returns a fault.
func New(k Kind, code, message string) *Error {
	return &Error{Kind: k, Code: code, Message: message}
}

// Newf returns a fault with a formatted message.
func Newf(k Kind, code, format string, args ...any) *Error {
	return New(k, code, fmt.Sprintf(format, args...))
}

// Unchanged is the expected version of settings that nobody has changed yet: their version is 0.
const Unchanged = -1

// CheckVersion returns Precondition "precondition_failed" if an object does not have the expected
// version. 0 means any version, and Unchanged means version 0.
func CheckVersion(object string, current, expected int64) error {
	if expected == 0 || expected == current || expected == Unchanged && current == 0 {
		return nil
	}
	return Newf(Precondition, "precondition_failed", "the %s is at version %d", object, current)
}

// Current returns v, and the fault of CheckVersion if v does not have the expected version. err is
// the error of loading v, which takes precedence.
func Current[T any](v T, err error, object string, current, expected int64) (T, error) {
	if err == nil {
		err = CheckVersion(object, current, expected)
	}
	return v, err
}

// NotFoundf returns the fault for an object that does not exist, or that the caller may not know
// of.
func NotFoundf(format string, args ...any) *Error {
	return Newf(NotFound, "not_found", format, args...)
}

// Invalidf returns Invalid with one offence at pointer.
func Invalidf(pointer, format string, args ...any) *Error {
	msg := fmt.Sprintf(format, args...)
	e := New(Invalid, "validation_failed", msg)
	e.Details = []Detail{{Pointer: pointer, Message: msg}}
	return e
}

// CheckValues returns Invalid with these offences; nil if there are none.
func CheckValues(message string, offences []Detail) error {
	if len(offences) == 0 {
		return nil
	}
	e := New(Invalid, "validation_failed", message)
	e.Details = offences
	return e
}

// CheckCount returns Forbidden "limit_exceeded", with the fields limit and used, if one more object
// would exceed the limit. The only operand of format is the limit.
func CheckCount(used, limit int64, format string) error {
	if used < limit {
		return nil
	}
	return Newf(Forbidden, "limit_exceeded", format, limit).With("limit", limit).With("used", used)
}

// CheckCounted is CheckCount for a number that was just counted. err is the error of counting, which
// takes precedence.
func CheckCounted(used int64, err error, limit int64, format string) error {
	if err != nil {
		return err
	}
	return CheckCount(used, limit, format)
}

// Cancelled returns the fault for work that ended because its caller disconnected. cause is the
// error of the caller's context.
func Cancelled(cause error) *Error {
	return New(Unavailable, "cancelled", "the caller disconnected").Because(cause)
}

// codeStopping is the code of requests that a stopping server turns away.
const codeStopping = "stopping"

// Stopping returns the fault for a request to a server that is stopping.
func Stopping() *Error {
	return New(Unavailable, codeStopping, "this server is stopping").After(time.Second)
}

// ErrStarting is why a server that has just started is not ready yet.
var ErrStarting = errors.New("the controls and data for decisions are still loading")

// IsTransient reports whether err is a step of an orderly start or stop, and not a failure.
func IsTransient(err error) bool {
	f, ok := errors.AsType[*Error](err)
	return errors.Is(err, ErrStarting) || ok && f.Code == codeStopping
}

// Join combines the errors of several checks. It returns the first one that is not an Invalid
// fault, otherwise one Invalid fault with all offences; nil if all checks passed.
func Join(errs ...error) error {
	var all *Error
	for _, err := range errs {
		if err == nil {
			continue
		}
		f, ok := errors.AsType[*Error](err)
		if !ok || f.Kind != Invalid {
			return err
		}
		if all == nil {
			first := *f
			first.Details = slices.Clip(f.Details)
			all = &first
			continue
		}
		all.Message = "several values are refused"
		all.Details = append(all.Details, f.Details...)
	}
	if all == nil {
		return nil
	}
	return all
}

// Offences returns the details of err if it is a fault.
func Offences(err error) []Detail {
	if f, ok := errors.AsType[*Error](err); ok {
		return f.Details
	}
	return nil
}

// Wrap returns an Internal fault with err as its cause. A fault is returned unchanged.
func Wrap(err error, what string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return &Error{Kind: Internal, Code: "internal_error", Message: "something went wrong on our side", Cause: fmt.Errorf("%s: %w", what, err)}
}

// With adds a member to the error body, and returns e.
func (e *Error) With(name string, value any) *Error {
	if e.Fields == nil {
		e.Fields = map[string]any{}
	}
	e.Fields[name] = value
	return e
}

// Because sets the cause, which is for the log only, and returns e.
func (e *Error) Because(err error) *Error {
	e.Cause = err
	return e
}

// After sets RetryAfter and returns e.
func (e *Error) After(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

// Error returns code, message and cause, for logs.
func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Code + ": " + e.Message + ": " + e.Cause.Error()
	}
	return e.Code + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// KindOf returns the kind of a fault; Internal for other errors.
func KindOf(err error) Kind {
	if f, ok := errors.AsType[*Error](err); ok {
		return f.Kind
	}
	return Internal
}

// Is reports whether err is a fault of kind k.
func Is(err error, k Kind) bool {
	f, ok := errors.AsType[*Error](err)
	return ok && f.Kind == k
}

// Message returns the message of a fault, which may be shown to callers; a general text for other
// errors.
func Message(err error) string {
	if f, ok := errors.AsType[*Error](err); ok {
		return f.Message
	}
	return "something went wrong on our side"
}
