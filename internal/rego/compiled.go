package rego

import (
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// errFallback says that the native program cannot settle it; the control is
// then evaluated on topdown.
var errFallback = errors.New("not settled by the compiled program")

// env is what a native program gets of a run: made once, for all controls.
func (r *run) env(b *budget) *native.Env {
	if r.nat != nil {
		return r.nat
	}
	lim := r.lim
	e := &native.Env{Now: lim.Now, Done: b.done, Bytes: int(lim.Bytes), Steps: lim.Steps, SkipReason: true, Strict: true}
	if lim.Clock != nil {
		e.Clock, e.Deadline = lim.Clock, lim.Clock().Add(b.deadline)
	} else {
		e.Done = b.channel()
	}
	r.nat = e
	return e
}

// effectNative is Control.effect on the native program. A control that fails
// is left to topdown: which of its rules fails, and in what words, is for one
// evaluator to say.
func (c *Control) effectNative(r *run, b *budget) (Outcome, error) {
	res, err := c.native.Eval(r.env(b), r.in, r.data)
	if err != nil {
		if err = nativeError(err); errors.Is(err, ErrLimit) {
			return c.failed(err), nil
		}
		return Outcome{}, err
	}
	if denies(res.Deny) {
		return Outcome{Effect: Deny, Reason: joinReasons(res.Deny)}, nil
	}
	return c.settle(res.Mask, res.Allow), nil
}

func (c *Control) reasonNative(r *run, b *budget) (value.Value, error) {
	v, err := c.native.Rule("reason", r.env(b), r.in, r.data)
	if err != nil {
		return value.Value{}, nativeError(err)
	}
	return v, nil
}

func nativeError(err error) error {
	if errors.Is(err, native.ErrLimit) {
		return ErrLimit
	}
	return errFallback
}
