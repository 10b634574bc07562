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

// Control is one control: its text, and the program compiled from it. It is immutable and safe
// for concurrent use.
type Control struct {
	meta  Meta
	tally atomic.Pointer[Tally]
	// compiled is set by ready. Every exported method that needs it calls ready, and so does a
	// plan for its controls. It is next to meta because a decision reads both.
	*compiled
	// lazyParts is a pointer so that copies of the control share it.
	*lazyParts
	source    string
	available []lang.Library // the libraries that the control may import
	_         [24]byte       // fills cache lines: a decision reads only the first
}

// lazyParts holds what is derived from a control on demand.
type lazyParts struct {
	once trackedOnce
	// derived is the value that another package derives from the control.
	derived     derivative
	reasons     whyProgram
	actions     actionNames
	requestable requestable
}

// trackedOnce runs a function once, and records whether it ran.
type trackedOnce struct {
	sync.Once
	done atomic.Bool
}

// compiled is the part of a control that an evaluation needs.
type compiled struct {
	// issues say why the control does not compile. Such a control denies.
	issues []lang.Issue
	code   lang.Compiled
	reads  []readPath // of code.Refs.Input
	sum    [32]byte   // digest of everything that the outcome depends on (identityOf)
}

// Compile checks and compiles source with those of libs that it imports, directly or indirectly.
// If the source does not compile, the control is nil and the issues say why.
func Compile(m Meta, source string, libs ...lang.Library) (*Control, []lang.Issue) {
	c := Defer(m, source, libs)
	if c.ready(); len(c.issues) > 0 {
		return nil, c.issues
	}
	return c, nil
}

// Defer returns a control whose source was checked when it was stored. The control compiles at
// its first use, once for all callers, and costs nothing until then. If it does not compile, it
// denies, and its reason says why. It keeps libs, which the caller must not change.
func Defer(m Meta, source string, libs []lang.Library) *Control {
	return &Control{meta: m, source: source, available: libs, lazyParts: &lazyParts{}}
}

// ready compiles the control if that has not happened yet. The limits on a source
// (lang/source.go) bound the work.
func (c *Control) ready() {
	c.once.Do(func() {
		c.compiled = compile(c.meta, c.source, c.available)
		c.once.done.Store(true)
	})
}

// Broken returns the issues that keep the control from compiling; nil if it compiles.
func (c *Control) Broken() []lang.Issue {
	c.ready()
	return c.issues
}

func compile(m Meta, source string, libs []lang.Library) *compiled {
	code, issues := lang.Compile(source, libs)
	if len(issues) > 0 {
		return &compiled{issues: issues}
	}
	// The paths depend on the code only, so controls that share the code share them.
	r := code.Program.PerCode(func() any { return &codeReads{code.Refs, readPaths(code.Refs.Input)} }).(*codeReads)
	code.Refs = r.refs
	return &compiled{code: code, reads: r.paths, sum: identityOf(m, source, code.Libraries)}
}

// codeReads holds the paths that all controls with the same code read.
type codeReads struct {
	refs  lang.Refs
	paths []readPath
}

// Meta returns the metadata with which the control was compiled.
func (c *Control) Meta() Meta { return c.meta }

// Source returns the control's text.
func (c *Control) Source() string { return c.source }

// Package returns the control's package, in dotted form, without the "data." prefix.
func (c *Control) Package() string {
	c.ready()
	return c.code.Package
}

// Libraries returns the libraries that the control imports, directly or indirectly, sorted by
// package.
func (c *Control) Libraries() []lang.Library {
	c.ready()
	return slices.Clone(c.code.Libraries)
}

// BuiltFrom reports whether compiling source with this metadata and these libraries would give
// the same control. A false answer may be wrong, and then only costs another compilation.
func (c *Control) BuiltFrom(m Meta, source string, libs []lang.Library) bool {
	if c.meta != m || c.source != source {
		return false
	}
	if c.once.done.Load() && len(c.issues) == 0 {
		return !slices.ContainsFunc(c.code.Libraries, func(l lang.Library) bool { return !slices.Contains(libs, l) })
	}
	// Every reference to a library names its root.
	return !strings.Contains(source, lang.LibraryRoot) || slices.Equal(c.available, libs)
}

// Refs returns the paths that the control reads.
func (c *Control) Refs() lang.Refs {
	c.ready()
	return c.code.Refs
}

// DataSource provides a control's data: the paths begin with "resources" or "pip".
type DataSource = native.DataSource

// Eval evaluates the control on an input. It never fails: an error gives a Deny with Reason and
// Err set, and a limit gives a Deny with the reason ReasonLimit.
func (c *Control) Eval(ctx context.Context, in value.Value, data DataSource, lim Limits) Outcome {
	c.ready()
	b := newTimeBudget(ctx, lim)
	defer b.release()
	run := newRun(in, data, lim)
	return c.answer(run, b)
}

// failedToCompile returns the outcome of a control that does not compile. If the compiler
// panicked, the panic is the cause, so that it is logged and counted like one of the evaluator.
func (c *Control) failedToCompile() Outcome {
	is := c.issues[0]
	if is.Line > 0 {
		is.Message = fmt.Sprintf("line %d, column %d: %s", is.Line, is.Column, is.Message)
	}
	out := c.failed(&atLine{message: "it does not compile: " + is.Message, line: is.Line})
	failed, ok := errors.AsType[*EvalError](out.Err)
	if caught := lang.Caught(is); ok && len(caught) > 0 {
		failed.Cause = caught[0]
	}
	return out
}

// Refused returns a control that denies because of the given issue. The reader of a bundle uses
// it for a control that the writer of the bundle could not compile.
func Refused(m Meta, source string, libs []lang.Library, issue lang.Issue) *Control {
	c := Defer(m, source, libs)
	c.once.Do(func() {
		c.compiled = &compiled{issues: []lang.Issue{issue}}
		c.once.done.Store(true)
	})
	return c
}

// whyProgram is a control compiled for explanations. It is compiled at its first use.
type whyProgram struct {
	once sync.Once
	prog *why.Module // nil: not possible
}

// Why returns the program that explains the control's outcomes; nil if there is none. The first
// call compiles it from the source, which takes milliseconds.
func (c *Control) Why() *why.Module {
	c.ready()
	if len(c.issues) > 0 {
		return nil
	}
	c.reasons.once.Do(func() { c.reasons.prog = lang.CompileWhy(c.source, c.code.Libraries) })
	return c.reasons.prog
}

// derivative is a value that another package derives from a control.
type derivative struct {
	once sync.Once
	v    any
}

// Derive returns the result of create. It calls create once, and keeps the result as long as the
// control lives. Package bundle builds a control's text in this way, so that a new bundle costs
// work only for the controls that changed. A control holds one such value.
func (c *Control) Derive(create func() any) any {
	c.derived.once.Do(func() { c.derived.v = create() })
	return c.derived.v
}

// Rules returns which of the four rules the control defines.
func (c *Control) Rules() lang.RuleSet {
	c.ready()
	return c.code.Rules
}

// EvalError is the error of a control that could not be evaluated.
type EvalError struct {
	Control int64
	Message string
	// Line is the line in the source; 0 if it is unknown, as for a rule's value of the wrong type.
	Line  int
	Cause error
}

// Error returns the message.
func (e *EvalError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *EvalError) Unwrap() error { return e.Cause }

// failed returns the outcome of a control that could not be evaluated.
func (c *Control) failed(err error) Outcome {
	if errors.Is(err, ErrLimit) {
		return Outcome{Effect: Deny, Reason: ReasonLimit, Err: ErrLimit}
	}
	msg := fmt.Sprintf("Control %q could not be evaluated: %s", c.meta.Name, lang.FirstLine(err.Error()))
	line := 0
	if at, ok := errors.AsType[*atLine](err); ok {
		line = at.line
	}
	return Outcome{Effect: Deny, Reason: msg, Err: &EvalError{Control: c.meta.ID, Message: msg, Line: line, Cause: err}}
}
