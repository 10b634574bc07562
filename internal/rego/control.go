package rego

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Control is one compiled control: immutable and safe for concurrent use.
type Control struct {
	meta   Meta
	source string
	pkg    ast.Ref
	module *ast.Module
	refs   Refs
	has    ruleSet
	native *native.Program // nil: topdown
	slow   *interpreted
	sum    [32]byte // of all that its outcome depends on
	// reads is refs.Input, and fixedReason tells that no reason is made of it
	// (hidden.go).
	reads       []readPath
	fixedReason bool
	text        *bundledText
	// reasons is a pointer: copies of the control share it.
	reasons *whyProgram
	libs    []*linked // by package
}

// ruleSet says which of the four rules a control defines.
type ruleSet struct{ allow, deny, mask, reason bool }

// Compile checks and compiles source with those of libs that it reaches. A
// control that does not pass is nil, and the issues say why.
func Compile(m Meta, source string, libs ...Library) (*Control, []Issue) {
	c, issues := check(source, false, libs)
	if len(issues) > 0 {
		return nil, issues
	}
	ctl := &Control{meta: m, source: source, pkg: c.pkg, module: c.module, sum: identityOf(m, source, c.libs), text: &bundledText{}, libs: c.libs, reasons: &whyProgram{}}
	compiled := c.compiler.Modules[sourceName]
	ctl.refs = findRefs(c.compiler, c.pkg, c.libs)
	ctl.reads, ctl.fixedReason = readPaths(ctl.refs.Input), fixedReason(compiled.Rules)
	for _, r := range compiled.Rules {
		ref := r.Head.Ref()
		name, ok := ref[0].Value.(ast.Var)
		if !ok || len(r.Head.Args) > 0 {
			continue
		}
		switch name {
		case "allow":
			ctl.has.allow = true
		case "deny":
			ctl.has.deny = true
		case "mask":
			ctl.has.mask = true
		case "reason":
			ctl.has.reason = true
		}
	}
	// The native compiler reads the compiled rules, so it comes before they are
	// pointed at the bounded built-ins.
	if p, err := native.Compile(c.module, c.compiler, c.pkg); err == nil {
		ctl.native, ctl.refs.Native = p, true
	}
	pointAtBounded(c.compiler.Modules)
	slow, err := interpret(c.compiler, c.pkg, ctl.has)
	if err != nil {
		return nil, []Issue{{Message: err.Error(), Severity: SeverityError, Rule: "compiler"}}
	}
	ctl.slow = slow
	return ctl, nil
}

// Meta is what the control was compiled with.
func (c *Control) Meta() Meta { return c.meta }

// Source is the control's text.
func (c *Control) Source() string { return c.source }

// Package is the control's package, dotted, without data.
func (c *Control) Package() string { return c.pkg[1:].String() }

// Libraries are the libraries that the control reaches, by package.
func (c *Control) Libraries() []Library {
	out := make([]Library, 0, len(c.libs))
	for _, l := range c.libs {
		out = append(out, l.Library)
	}
	return out
}

// Of reports whether compiling meta and source with libs would give c again.
func (c *Control) Of(m Meta, source string, libs []Library) bool {
	if c.meta != m || c.source != source {
		return false
	}
	for _, l := range c.libs {
		if !slices.Contains(libs, l.Library) {
			return false
		}
	}
	return true
}

// Refs is what the control reads.
func (c *Control) Refs() Refs { return c.refs }

// Interpreted is the control without its native program: what topdown, the
// oracle of the native compiler, makes of it.
func (c *Control) Interpreted() *Control {
	cpy := *c
	cpy.native, cpy.refs.Native = nil, false
	return &cpy
}

// DataSource is where a control's data comes from: the paths begin with
// "resources" or "pip".
type DataSource = native.DataSource

// Eval evaluates the control over an input (contract 4). It never fails: an
// error is a Deny with the reason and Err set, a limit is a Deny with the
// reason ReasonLimit.
func (c *Control) Eval(ctx context.Context, in value.Value, data DataSource, lim Limits) Outcome {
	b := newBudget(ctx, lim)
	defer b.release()
	run := newRun(in, data, lim)
	out := c.effect(ctx, run, b)
	c.explain(ctx, run, b, &out)
	return out
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
