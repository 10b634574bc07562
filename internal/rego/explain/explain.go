// Package explain explains the outcomes of controls: the rule that decided, its conditions with the
// values that they read, the nearest rule that would have granted access, and the trace of all
// conditions.
//
// It runs a second program of each control (why.Module). A decision never waits for that program.
package explain

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/why"
)

// The bounds of one explanation: a few milliseconds, whatever the control.
const (
	whySteps = 300_000
	whyBytes = 16 << 20
	maxAlso  = 8
)

// Control evaluates a control and explains its outcome. It takes a few microseconds more than
// rego.Control.Eval. The first explanation of a control compiles it a second time, which takes
// milliseconds.
func Control(ctx context.Context, c *rego.Control, in value.Value, data rego.DataSource, lim rego.Limits) (rego.Outcome, reason.Explanation) {
	out := c.Eval(ctx, in, data, lim)
	return out, Outcome(ctx, c, in, data, lim, out)
}

// Outcome explains why out is the outcome of a control on an input.
func Outcome(ctx context.Context, c *rego.Control, in value.Value, data rego.DataSource, lim rego.Limits, out rego.Outcome) reason.Explanation {
	m := c.Meta()
	e := reason.Explanation{
		PolicyID: m.ID, PolicyName: m.Name, PolicyVersion: m.Version,
		Effect: out.Effect.String(), Conditions: []reason.Condition{},
	}
	explainRules(ctx, &e, c, in, data, lim, out)
	e.Public = (&rego.Decision{Effect: out.Effect, Reason: out.Reason, Err: out.Err, PolicyName: m.Name}).CallerReason()
	e.Text = e.Words(headline(&e, out))
	return e
}

// explainRules fills in the part of an explanation that the rules give. A panic in it makes the
// explanation partial, because it must not affect the decision.
func explainRules(ctx context.Context, e *reason.Explanation, c *rego.Control, in value.Value, data rego.DataSource, lim rego.Limits, out rego.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			e.Partial = true
			if lim.Caught != nil {
				lim.Caught(&rego.Panic{Value: p, Stack: debug.Stack()})
			}
		}
	}()
	w := c.Why()
	failure, failed := errors.AsType[*rego.EvalError](out.Err)
	switch {
	case failed:
		e.Line = failure.Line
	case out.Err != nil:
	case w == nil:
		e.Partial = true
	default:
		if err := inquire(ctx, w, in, data, lim, func(q *why.Inquiry) { fill(e, q, out.Effect) }); err != nil {
			e.Partial = true
		}
	}
}

// inquire calls fn with an inquiry into the rules of a control, within the bounds of one
// explanation and those of lim.
func inquire(ctx context.Context, w *why.Module, in value.Value, data rego.DataSource, lim rego.Limits, fn func(q *why.Inquiry)) error {
	env, release := lim.Env(ctx)
	defer release()
	env.Steps, env.Bytes = whySteps, whyBytes
	err := w.Ask(env, in, data, fn)
	if fault, ok := errors.AsType[*rego.Panic](err); ok && lim.Caught != nil {
		lim.Caught(fault)
	}
	return err
}

func always(value.Value) bool { return true }

// fill fills in the rules that led to the effect, and the nearest rule that would grant access.
func fill(e *reason.Explanation, q *why.Inquiry, effect rego.Effect) {
	switch effect {
	case rego.Allow:
		decided(e, q.Holding("allow", value.Value.True))
	case rego.Mask:
		decided(e, q.Holding("mask", masks))
	case rego.Deny:
		if denying := denyBranches(q); len(denying) > 0 {
			decided(e, denying)
			q.Without("deny", func() { e.Nearest = nearestWay(q) })
			return
		}
		decided(e, q.Holding("allow", value.Value.False))
		if e.Rule == "" {
			e.Rule, e.Line = "allow", q.DefaultLine("allow")
		}
		e.Nearest = nearestWay(q)
	default:
		e.Nearest = nearestWay(q)
	}
}

// denyBranches returns the rules named deny that hold and deny.
func denyBranches(q *why.Inquiry) []why.Branch {
	v := q.Value("deny")
	if !rego.Denies(v) {
		return nil
	}
	if v.Kind() == value.SetKind || v.Kind() == value.ObjectKind {
		return q.Holding("deny", always)
	}
	return q.Holding("deny", rego.Denies)
}

// decided fills in the first branch as the rule that decided, and the others as Also.
func decided(e *reason.Explanation, branches []why.Branch) {
	for i, b := range branches {
		if i == 0 {
			e.Rule, e.Line, e.Conditions = b.Rule, b.Line, conditions(b.Held)
			continue
		}
		if len(e.Also) == maxAlso {
			e.Partial = true
			break
		}
		e.Also = append(e.Also, reason.Alternative{Rule: b.Rule, Line: b.Line, Missing: []reason.Condition{}, Held: conditions(b.Held)})
	}
}

// nearestWay returns the nearest rule that would grant access, apart from deny; nil if there is
// none.
func nearestWay(q *why.Inquiry) *reason.Alternative {
	best, ok := nearestGrant(q)
	if !ok {
		return nil
	}
	return &reason.Alternative{Rule: best.Rule, Line: best.Line, Missing: conditions(best.Missing), Held: conditions(best.Held)}
}

// nearestGrant returns the rule that grants access, apart from deny, or that would grant it with
// the fewest changes: a rule allow, or a rule mask if allow is not false.
func nearestGrant(q *why.Inquiry) (why.Branch, bool) {
	refused := q.Value("allow").False()
	if !refused {
		if held := q.Holding("mask", masks); len(held) > 0 {
			return held[0], true
		}
	}
	if held := q.Holding("allow", value.Value.True); len(held) > 0 {
		return held[0], true
	}
	best, ok := q.Nearest("allow", value.Value.True)
	if !refused {
		if m, found := q.Nearest("mask", masks); found && (!ok || len(m.Missing) < len(best.Missing)) {
			best, ok = m, true
		}
	}
	return best, ok
}

// masks reports whether a value of mask, or an element of it, asks for a mask.
func masks(v value.Value) bool {
	return v.Defined() && !v.False() && (v.Kind() < value.ArrayKind || v.Len() > 0)
}

func conditions(facts []why.Fact) []reason.Condition {
	out := make([]reason.Condition, len(facts))
	for i, f := range facts {
		values := make([]reason.Binding, len(f.Seen))
		for j, s := range f.Seen {
			values[j] = reason.Binding{Path: s.Path, Variable: s.Variable, Value: brief(s.Value)}
		}
		out[i] = reason.Condition{Rule: f.Rule, Line: f.Line, Source: f.Source, Holds: f.Holds, Unreached: f.Unreached, Values: values}
		if len(f.Because) > 0 {
			out[i].Because = conditions(f.Because)
		}
	}
	return out
}

// maxBrief is the greatest size of a value (value.Value.Size) that an explanation contains.
const maxBrief = 2 << 10

// brief returns a value, or a note about its kind if it is too large.
func brief(v value.Value) value.Value {
	if v.Size() <= maxBrief {
		return v
	}
	return value.String("(" + v.Kind().String() + ", too long to show)")
}
