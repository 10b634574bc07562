package rego

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Control is one control: its text, and what that compiles to. It is immutable
// and safe for concurrent use.
type Control struct {
	meta   Meta
	source string
	shelf  []Library // that it may use
	once   *lazily
	// compiled is there once ready was called; every exported method calls it, and
	// a plan does for its controls.
	*compiled
	text *bundledText
	// reasons is a pointer: copies of the control share it.
	reasons *whyProgram
	actions *actionNames // a pointer for the same reason
}

// lazily is what happens once, and whether it did.
type lazily struct {
	sync.Once
	done atomic.Bool
}

// compiled is what an evaluation needs of a control. Nothing of the compiler and
// of the syntax tree is kept beside it: an environment may have thousands.
type compiled struct {
	// issues are why there is nothing to evaluate: the control denies.
	issues []Issue
	pkg    string // dotted, without data
	refs   Refs
	has    ruleSet
	native *native.Program
	sum    [32]byte // of all that its outcome depends on
	// reads is refs.Input, and fixedReason tells that no reason is made of it
	// (hidden.go).
	reads       []readPath
	fixedReason bool
	libs        []Library // that it reaches, by package
}

// Compile checks and compiles source with those of libs that it reaches. A
// control that does not pass is nil, and the issues say why.
func Compile(m Meta, source string, libs ...Library) (*Control, []Issue) {
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
func Defer(m Meta, source string, libs []Library) *Control {
	return &Control{meta: m, source: source, shelf: libs, once: &lazily{}, text: &bundledText{}, reasons: &whyProgram{}, actions: &actionNames{}}
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
func (c *Control) Broken() []Issue {
	c.ready()
	return c.issues
}

func compile(m Meta, source string, libs []Library) (out *compiled) {
	defer func() {
		// Whoever asks a control must have an answer, on hostile text too.
		if p := recover(); p != nil {
			out = &compiled{issues: []Issue{brokeOff("the source cannot be compiled", p, "compiler")}}
		}
	}()
	c, issues := check(source, false, libs)
	if len(issues) > 0 {
		return &compiled{issues: issues}
	}
	out = &compiled{pkg: c.pkg[1:].String(), sum: identityOf(m, source, c.libs)}
	for _, l := range c.libs {
		out.libs = append(out.libs, l.Library)
	}
	rules := c.compiler.Modules[sourceName].Rules
	out.refs = findRefs(c.compiler, c.pkg, c.libs)
	out.reads, out.fixedReason = readPaths(out.refs.Input), fixedReason(rules)
	out.has = rulesOf(rules)
	out.native = c.program
	return out
}

// rulesOf says which of the four rules are defined.
func rulesOf(rules []*ast.Rule) (has ruleSet) {
	for _, r := range rules {
		name, ok := r.Head.Ref()[0].Value.(ast.Var)
		if !ok || len(r.Head.Args) > 0 {
			continue
		}
		switch name {
		case "allow":
			has.allow = true
		case "deny":
			has.deny = true
		case "mask":
			has.mask = true
		case "reason":
			has.reason = true
		}
	}
	return has
}

// parsed is the control's module and the libraries that it reaches, as they are
// written. They are read anew each time: few ask.
func (c *Control) parsed() (*ast.Module, []*linked, error) {
	mod, issues := parse(sourceName, c.source)
	if len(issues) > 0 {
		return nil, nil, fmt.Errorf("control %d: line %d: %s", c.meta.ID, issues[0].Line, issues[0].Message)
	}
	k := newLinker(c.shelf)
	k.follow(mod, []string{mod.Package.Path[1:].String()}, nil)
	return mod, k.sorted(), nil
}

// Meta is what the control was compiled with.
func (c *Control) Meta() Meta { return c.meta }

// Source is the control's text.
func (c *Control) Source() string { return c.source }

// Package is the control's package, dotted, without data.
func (c *Control) Package() string {
	c.ready()
	return c.pkg
}

// Libraries are the libraries that the control reaches, by package.
func (c *Control) Libraries() []Library {
	c.ready()
	return slices.Clone(c.libs)
}

// Of reports whether the control is that of meta and source with libs: made of
// these, it would be no other.
func (c *Control) Of(m Meta, source string, libs []Library) bool {
	if c.meta != m || c.source != source {
		return false
	}
	if c.once.done.Load() && len(c.issues) == 0 {
		return !slices.ContainsFunc(c.libs, func(l Library) bool { return !slices.Contains(libs, l) })
	}
	// Whoever reaches a library names its root.
	return !strings.Contains(source, LibraryRoot) || slices.Equal(c.shelf, libs)
}

// Refs is what the control reads.
func (c *Control) Refs() Refs {
	c.ready()
	return c.refs
}

// DataSource is where a control's data comes from: the paths begin with
// "resources" or "pip".
type DataSource = native.DataSource

// Eval evaluates the control over an input. It never fails: an
// error is a Deny with the reason and Err set, a limit is a Deny with the
// reason ReasonLimit.
func (c *Control) Eval(ctx context.Context, in value.Value, data DataSource, lim Limits) Outcome {
	c.ready()
	b := newBudget(ctx, lim)
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
	if caught := Caught(is); len(caught) > 0 && errors.As(out.Err, &failed) {
		failed.Cause = caught[0]
	}
	return out
}

// refusedControl is a control of a bundle whose writer could not compile it.
func refusedControl(m Meta, source string, libs []Library, issue Issue) *Control {
	c := Defer(m, source, libs)
	c.once.Do(func() {
		c.compiled = &compiled{issues: []Issue{issue}}
		c.once.done.Store(true)
	})
	return c
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
	msg := fmt.Sprintf("Control %q could not be evaluated: %s", c.meta.Name, firstLine(err.Error()))
	var at *atLine
	line := 0
	if errors.As(err, &at) {
		line = at.line
	}
	return Outcome{Effect: Deny, Reason: msg, Err: &EvalError{Control: c.meta.ID, Message: msg, Line: line, Cause: err}}
}
