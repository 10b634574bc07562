// Package explain says why controls came to an outcome: the rule that decided, its
// conditions with the values that they saw, the nearest rule that would have allowed,
// and the trace of all conditions.
//
// It runs a second program of each control (why.Module), which the engine never waits
// for.
package explain

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/why"
)

// Binding is a value that a condition saw.
type Binding struct {
	// Path is where it comes from, as Rego writes it: input.user.roles[0]. Of a
	// value that was computed it is the variable's name.
	Path string `json:"path" doc:"Source of the value, as written in Rego"`
	// Variable is the author's name for it, if it has one.
	Variable string `json:"variable,omitempty" doc:"The control's own name for it"`
	// Value is absent where nothing was there.
	Value value.Value `json:"value,omitzero" doc:"The value; absent where there was none"`
}

// Condition is one condition of a control's text and how it came out.
type Condition struct {
	Rule   string `json:"rule" doc:"The rule that contains the condition"`
	Line   int    `json:"line" doc:"Its line in the control, 1-based"`
	Source string `json:"source" doc:"The condition as it is written"`
	Holds  bool   `json:"holds" doc:"Whether it held"`
	// Unreached: it needs a value that an earlier condition would have given.
	Unreached bool      `json:"unreached,omitempty" doc:"Not evaluated, because an earlier condition gave it no value"`
	Values    []Binding `json:"values" doc:"The value that it read"`
	// Because are the conditions of other rules of the control that made this
	// one come out so. For it to come out the other way, they all would have to.
	Because []Condition `json:"because,omitempty" doc:"Conditions of the rules that it refers to and that decided its value"`
}

// Alternative is a rule that did not decide.
type Alternative struct {
	Rule string `json:"rule" doc:"The rule's name"`
	Line int    `json:"line" doc:"Its line, 1-based"`
	// Missing are the conditions that would have to come out the other way; one
	// that holds must not. Those of the rules that the rule asks are among them.
	Missing []Condition `json:"missing" doc:"What would have to change; a condition that holds must not"`
	Held    []Condition `json:"held" doc:"Conditions that were already met"`
}

// Explanation says why one control came to its outcome.
type Explanation struct {
	PolicyID      int64  `json:"policy_id"`
	PolicyName    string `json:"policy_name"`
	PolicyVersion int64  `json:"policy_version"`
	Effect        string `json:"effect" enum:"ALLOW,DENY,MASK,NO_MATCH"`
	// Rule and Line are what decided; empty and 0 where no rule did. Line is
	// that of the default where nothing else held.
	Rule string `json:"rule,omitempty" doc:"The rule that decided"`
	Line int    `json:"line,omitempty" doc:"Its line, 1-based"`
	// Conditions are those of the rule that decided.
	Conditions []Condition `json:"conditions" doc:"The conditions that made the rule hold"`
	// Also are further rules that held and would have decided the same.
	Also []Alternative `json:"also,omitempty" doc:"Other rules that held and give the same decision"`
	// Nearest is, where access was not granted, the rule that would have
	// granted it with the fewest differences; nil where there is none. Where a
	// deny rule decided, it counts only once that one (and those in Also) no
	// longer holds: one condition of each has to fail. Missing is then empty if
	// nothing else stood in the way.
	Nearest *Alternative `json:"nearest,omitempty" doc:"The nearest rule that would have granted access"`
	// Partial: the explanation ran into its limit.
	Partial bool `json:"partial,omitempty" doc:"Not everything could be explained"`
	// Text is for administrators, Public for the person who asked for access.
	Text   string `json:"text" doc:"The explanation in words, for administrators"`
	Public string `json:"public" doc:"The explanation for the person who was refused"`
}

// The bounds of one explanation: some milliseconds, whatever the control.
const (
	whySteps = 300_000
	whyBytes = 16 << 20
	maxAlso  = 8
)

// Control evaluates a control and says why it came out so. It costs some
// microseconds more than Control.Eval; the control's first explanation compiles it a
// second time (milliseconds).
func Control(ctx context.Context, c *rego.Control, in value.Value, data rego.DataSource, lim rego.Limits) (rego.Outcome, Explanation) {
	out := c.Eval(ctx, in, data, lim)
	return out, Outcome(ctx, c, in, data, lim, out)
}

// Outcome says why out is the outcome of a control on an input.
func Outcome(ctx context.Context, c *rego.Control, in value.Value, data rego.DataSource, lim rego.Limits, out rego.Outcome) Explanation {
	m := c.Meta()
	e := Explanation{
		PolicyID: m.ID, PolicyName: m.Name, PolicyVersion: m.Version,
		Effect: out.Effect.String(), Conditions: []Condition{},
	}
	e.askRules(ctx, c, in, data, lim, out)
	e.Public = (&rego.Decision{Effect: out.Effect, Reason: out.Reason, Err: out.Err, PolicyName: m.Name}).Public()
	e.Text = e.words(out)
	return e
}

// askRules is the part of an explanation that asks the rules. A fault in it must
// not become one of the decision.
func (e *Explanation) askRules(ctx context.Context, c *rego.Control, in value.Value, data rego.DataSource, lim rego.Limits, out rego.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			e.Partial = true
			if lim.Caught != nil {
				lim.Caught(&rego.Panic{Value: p, Stack: debug.Stack()})
			}
		}
	}()
	w := c.Why()
	var failure *rego.EvalError
	switch {
	case errors.As(out.Err, &failure):
		e.Line = failure.Line
	case out.Err != nil:
	case w == nil:
		e.Partial = true
	default:
		if err := inquire(ctx, w, in, data, lim, func(q *why.Inquiry) { e.fill(q, out.Effect) }); err != nil {
			e.Partial = true
		}
	}
}

// inquire puts questions to the rules of a control, within the bounds of one
// explanation and those of lim.
func inquire(ctx context.Context, w *why.Module, in value.Value, data rego.DataSource, lim rego.Limits, fn func(q *why.Inquiry)) error {
	env, release := lim.Env(ctx)
	defer release()
	env.Steps, env.Bytes = whySteps, whyBytes
	err := w.Ask(env, in, data, fn)
	var fault *rego.Panic
	if errors.As(err, &fault) && lim.Caught != nil {
		lim.Caught(fault)
	}
	return err
}

func isTrue(v value.Value) bool  { return v.True() }
func isFalse(v value.Value) bool { return v.False() }
func always(value.Value) bool    { return true }

// fill asks why the effect is what it is.
func (e *Explanation) fill(q *why.Inquiry, effect rego.Effect) {
	switch effect {
	case rego.Allow:
		e.decided(q.Holding("allow", isTrue))
	case rego.Mask:
		e.decided(q.Holding("mask", masks))
	case rego.Deny:
		if denying := denyBranches(q); len(denying) > 0 {
			e.decided(denying)
			q.Without("deny", func() { e.Nearest = nearestWay(q) })
			return
		}
		e.decided(q.Holding("allow", isFalse))
		if e.Rule == "" {
			e.Rule, e.Line = "allow", q.DefaultLine("allow")
		}
		e.Nearest = nearestWay(q)
	default:
		e.Nearest = nearestWay(q)
	}
}

// denyBranches are the rules named deny that hold and deny.
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

// decided takes the first branch as the rule that decided.
func (e *Explanation) decided(branches []why.Branch) {
	for i, b := range branches {
		if i == 0 {
			e.Rule, e.Line, e.Conditions = b.Rule, b.Line, conditions(b.Held)
			continue
		}
		if len(e.Also) == maxAlso {
			e.Partial = true
			break
		}
		e.Also = append(e.Also, Alternative{Rule: b.Rule, Line: b.Line, Missing: []Condition{}, Held: conditions(b.Held)})
	}
}

// nearestWay is the nearest rule that would grant access, but for deny.
func nearestWay(q *why.Inquiry) *Alternative {
	best, ok := nearestGrant(q)
	if !ok {
		return nil
	}
	return &Alternative{Rule: best.Rule, Line: best.Line, Missing: conditions(best.Missing), Held: conditions(best.Held)}
}

// nearestGrant is the rule that grants access, but for deny, or would with the
// fewest differences: allow, or mask where allow is not false.
func nearestGrant(q *why.Inquiry) (why.Branch, bool) {
	refused := q.Value("allow").False()
	if !refused {
		if held := q.Holding("mask", masks); len(held) > 0 {
			return held[0], true
		}
	}
	if held := q.Holding("allow", isTrue); len(held) > 0 {
		return held[0], true
	}
	best, ok := q.Nearest("allow", isTrue)
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

func conditions(facts []why.Fact) []Condition {
	out := make([]Condition, len(facts))
	for i, f := range facts {
		values := make([]Binding, len(f.Seen))
		for j, s := range f.Seen {
			values[j] = Binding{Path: s.Path, Variable: s.Variable, Value: brief(s.Value)}
		}
		out[i] = Condition{Rule: f.Rule, Line: f.Line, Source: f.Source, Holds: f.Holds, Unreached: f.Unreached, Values: values}
		if len(f.Because) > 0 {
			out[i].Because = conditions(f.Because)
		}
	}
	return out
}

// maxBrief is the size from which on a value is not repeated in an explanation.
const maxBrief = 2 << 10

// brief is a value, or what kind of value it is where it is long.
func brief(v value.Value) value.Value {
	if v.Size() <= maxBrief {
		return v
	}
	return value.String("(" + v.Kind().String() + ", too long to show)")
}
