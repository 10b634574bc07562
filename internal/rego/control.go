package rego

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/why"
)

// Control is one control: its text, and what that compiles to. It is immutable
// and safe for concurrent use.
type Control struct {
	meta  Meta
	tally atomic.Pointer[Tally]
	// compiled is there once ready was called; every exported method calls it, and
	// a plan does for its controls. It stands beside meta: a decision reads both.
	*compiled
	// later is a pointer: copies of the control share it.
	*later
	source string
	shelf  []lang.Library // that it may use
	_      [24]byte       // so that it starts a cache line: a decision reads the first
}

// later is what is made of a control when somebody asks.
type later struct {
	once lazily
	// derived is what another package makes of it.
	derived derivative
	reasons whyProgram
	actions actionNames
}

// lazily is what happens once, and whether it did.
type lazily struct {
	sync.Once
	done atomic.Bool
}

// compiled is what an evaluation needs of a control.
type compiled struct {
	// issues are why there is nothing to evaluate: the control denies.
	issues []lang.Issue
	code   lang.Compiled
	reads  []readPath // of code.Refs.Input
	sum    [32]byte   // of all that its outcome depends on
}

// Compile checks and compiles source with those of libs that it reaches. A
// control that does not pass is nil, and the issues say why.
func Compile(m Meta, source string, libs ...lang.Library) (*Control, []lang.Issue) {
	c := Defer(m, source, libs)
	if c.ready(); len(c.issues) > 0 {
		return nil, c.issues
	}
	return c, nil
}

// Defer is Compile for a source that was checked when it was stored: it compiles
// when the control is first asked, once however many ask, and costs nothing until
// then. A control that turns out not to compile denies, and says why. It keeps
// libs, which the caller must not change.
func Defer(m Meta, source string, libs []lang.Library) *Control {
	return &Control{meta: m, source: source, shelf: libs, later: &later{}}
}

// ready compiles the control if nobody did yet. It is bounded: by the bounds on
// a source (source.go).
func (c *Control) ready() {
	c.once.Do(func() {
		c.compiled = compile(c.meta, c.source, c.shelf)
		c.once.done.Store(true)
	})
}

// Broken are the issues for which the control does not compile; nil: it does.
func (c *Control) Broken() []lang.Issue {
	c.ready()
	return c.issues
}

func compile(m Meta, source string, libs []lang.Library) *compiled {
	code, issues := lang.Compile(source, libs)
	if len(issues) > 0 {
		return &compiled{issues: issues}
	}
	// What is read follows from the code, which siblings share.
	r := code.Program.PerCode(func() any { return &reading{code.Refs, readPaths(code.Refs.Input)} }).(*reading)
	code.Refs = r.refs
	return &compiled{code: code, reads: r.paths, sum: identityOf(m, source, code.Libraries)}
}

// reading is what the controls of one code read.
type reading struct {
	refs  lang.Refs
	paths []readPath
}

// Meta is what the control was compiled with.
func (c *Control) Meta() Meta { return c.meta }

// Source is the control's text.
func (c *Control) Source() string { return c.source }

// Package is the control's package, dotted, without data.
func (c *Control) Package() string {
	c.ready()
	return c.code.Package
}

// Libraries are the libraries that the control reaches, by package.
func (c *Control) Libraries() []lang.Library {
	c.ready()
	return slices.Clone(c.code.Libraries)
}

// Of reports whether the control is that of meta and source with libs: made of
// these, it would be no other.
func (c *Control) Of(m Meta, source string, libs []lang.Library) bool {
	if c.meta != m || c.source != source {
		return false
	}
	if c.once.done.Load() && len(c.issues) == 0 {
		return !slices.ContainsFunc(c.code.Libraries, func(l lang.Library) bool { return !slices.Contains(libs, l) })
	}
	// Whoever reaches a library names its root.
	return !strings.Contains(source, lang.LibraryRoot) || slices.Equal(c.shelf, libs)
}

// Refs is what the control reads.
func (c *Control) Refs() lang.Refs {
	c.ready()
	return c.code.Refs
}

// DataSource is where a control's data comes from: the paths begin with
// "resources" or "pip".
type DataSource = native.DataSource

// Eval evaluates the control over an input. It never fails: an
// error is a Deny with the reason and Err set, a limit is a Deny with the
// reason ReasonLimit.
func (c *Control) Eval(ctx context.Context, in value.Value, data DataSource, lim Limits) Outcome {
	c.ready()
	b := newTimeBudget(ctx, lim)
	defer b.release()
	run := newRun(in, data, lim)
	return c.answer(run, b)
}

// broken is the outcome of a control that does not compile. A panic of the compiler is
// its cause, which is logged and counted as one of the evaluator is.
func (c *Control) broken() Outcome {
	is := c.issues[0]
	if is.Line > 0 {
		is.Message = fmt.Sprintf("line %d, column %d: %s", is.Line, is.Column, is.Message)
	}
	out := c.failed(&atLine{message: "it does not compile: " + is.Message, line: is.Line})
	var failed *EvalError
	if caught := lang.Caught(is); len(caught) > 0 && errors.As(out.Err, &failed) {
		failed.Cause = caught[0]
	}
	return out
}

// Refused is a control that denies for the given issue. It is for a control of a bundle
// whose writer could not compile it.
func Refused(m Meta, source string, libs []lang.Library, issue lang.Issue) *Control {
	c := Defer(m, source, libs)
	c.once.Do(func() {
		c.compiled = &compiled{issues: []lang.Issue{issue}}
		c.once.done.Store(true)
	})
	return c
}

// whyProgram is the second compilation of a control, made when it is first
// asked why.
type whyProgram struct {
	once sync.Once
	prog *why.Module // nil: not possible
}

// Why is the program that explains the control's outcomes; nil where there is none. The
// first call compiles it from the source, which takes milliseconds.
func (c *Control) Why() *why.Module {
	c.ready()
	if len(c.issues) > 0 {
		return nil
	}
	c.reasons.once.Do(func() { c.reasons.prog = lang.CompileWhy(c.source, c.code.Libraries) })
	return c.reasons.prog
}

// derivative is a value that another package makes of a control.
type derivative struct {
	once sync.Once
	v    any
}

// Derive returns what create made of the control. It calls create once, and keeps the
// result as long as the control: a bundle's text of a control is made once, so that a
// deployment costs the controls that changed. There is room for one such value.
func (c *Control) Derive(create func() any) any {
	c.derived.once.Do(func() { c.derived.v = create() })
	return c.derived.v
}

// Rules says which of the four rules the control defines.
func (c *Control) Rules() lang.RuleSet {
	c.ready()
	return c.code.Rules
}

// EvalError is why a control could not be evaluated.
type EvalError struct {
	Control int64
	Message string
	// Line is where in the source; 0 for a rule's value that is of a wrong kind.
	Line  int
	Cause error
}

// Error is the message.
func (e *EvalError) Error() string { return e.Message }

// Unwrap is the cause.
func (e *EvalError) Unwrap() error { return e.Cause }

// failed is the outcome of a control that could not be evaluated.
func (c *Control) failed(err error) Outcome {
	if errors.Is(err, ErrLimit) {
		return Outcome{Effect: Deny, Reason: ReasonLimit, Err: ErrLimit}
	}
	msg := fmt.Sprintf("Control %q could not be evaluated: %s", c.meta.Name, lang.FirstLine(err.Error()))
	var at *atLine
	line := 0
	if errors.As(err, &at) {
		line = at.line
	}
	return Outcome{Effect: Deny, Reason: msg, Err: &EvalError{Control: c.meta.ID, Message: msg, Line: line, Cause: err}}
}
