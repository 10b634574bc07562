package rego

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// run is the state of the evaluation of one input by all controls in scope.
type run struct {
	in   value.Value
	data DataSource
	lim  Limits
	nat  *eval.Env
}

func newRun(in value.Value, data DataSource, lim Limits) *run {
	return &run{in: in, data: data, lim: lim}
}

// env returns the environment that compiled programs get. It is built once for all controls.
func (r *run) env(b *timeBudget) *eval.Env {
	if r.nat != nil {
		return r.nat
	}
	lim := r.lim
	e := &eval.Env{Now: lim.Now, Done: b.done, Pause: lim.Pause, Bytes: int(lim.Bytes), Steps: lim.Steps, SkipReason: true, Strict: true, DenyDecides: Denies}
	if lim.Clock != nil {
		e.Clock, e.Deadline = lim.Clock, lim.Clock().Add(b.deadline)
	} else {
		e.Expired = b.channel()
	}
	r.nat = e
	return e
}

// Env converts the limits to the evaluator's environment. The caller must call release after the
// evaluation.
func (l Limits) Env(ctx context.Context) (env *eval.Env, release func()) {
	b := newTimeBudget(ctx, l)
	return newRun(value.Value{}, nil, l).env(b), b.release
}

// Panic is a recovered panic of the evaluator. The control then denies, and Decision.Err holds
// the panic so that the caller can log and count it.
type Panic = eval.PanicError

// Panic returns the panic of the evaluator that caused this denial; nil for all other decisions.
func (d *Decision) Panic() *Panic {
	p, _ := errors.AsType[*Panic](d.Err)
	return p
}

// evaluatorError converts an error of the evaluator to the terms of this package.
func evaluatorError(err error) error {
	if errors.Is(err, eval.ErrLimit) {
		return ErrLimit
	}
	if e, ok := errors.AsType[*eval.Error](err); ok {
		if pkg, ok := strings.CutSuffix(e.File, ".rego"); ok && strings.HasPrefix(pkg, lang.LibraryRoot+".") {
			return &atLine{message: fmt.Sprintf("library %s: %s", pkg, e.Message), line: e.Line}
		}
		return &atLine{message: e.Message, line: e.Line}
	}
	return err
}

// failure converts an error like evaluatorError, and also passes a panic to Limits.Caught.
func (r *run) failure(err error) error {
	err = evaluatorError(err)
	if p, ok := errors.AsType[*Panic](err); ok && r.lim.Caught != nil {
		r.lim.Caught(p)
	}
	return err
}

// atLine is an error with its line in the source.
type atLine struct {
	message string
	line    int
}

func (e *atLine) Error() string { return e.message }
