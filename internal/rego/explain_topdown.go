package rego

import (
	"context"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Controls that are not within what is compiled run on OPA's evaluator, and are
// explained by watching it. That tells less: a body is left at its first
// condition that fails, so that those behind it are only known as not reached.

// watcher follows topdown through the rules of one control.
type watcher struct {
	rules  map[place]*watched
	open   map[uint64]*visit // by query
	visits []*visit
	input  value.Value
	events int
}

// maxEvents is how much of an evaluation is watched.
const maxEvents = 100_000

type place struct{ row, col int }

// watched is a rule, or else branch, of the parsed module.
type watched struct {
	name  string
	line  int
	rule  *ast.Rule
	conds []native.Place
}

// visit is one evaluation of a rule's body.
type visit struct {
	rule *watched
	at   int // the condition that was reached; -1: none
	top  int // the furthest
	done bool
}

// newWatcher reads the conditions from the parsed module.
func (c *Control) newWatcher(in value.Value) *watcher {
	w := &watcher{rules: map[place]*watched{}, open: map[uint64]*visit{}, input: in}
	mod, _, err := c.parsed()
	if err != nil {
		return w
	}
	for _, r := range mod.Rules {
		for e := r; e != nil; e = e.Else {
			if e.Location == nil || e.Default {
				continue
			}
			name := ""
			if ref := e.Head.Ref(); len(ref) > 0 {
				name = string(ref[0].Value.(ast.Var))
			}
			w.rules[place{e.Location.Row, e.Location.Col}] = &watched{name: name, line: e.Location.Row, rule: e, conds: native.Places(e)}
		}
	}
	return w
}

// Enabled is always true.
func (w *watcher) Enabled() bool { return w.events < maxEvents }

// Config asks for no variables: values are read from the input.
func (w *watcher) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent follows one step of topdown.
func (w *watcher) TraceEvent(e topdown.Event) {
	w.events++
	switch e.Op {
	case topdown.EnterOp:
		if r, ok := e.Node.(*ast.Rule); ok && r.Location != nil {
			if known := w.rules[place{r.Location.Row, r.Location.Col}]; known != nil {
				v := &visit{rule: known, at: -1, top: -1}
				w.open[e.QueryID] = v
				w.visits = append(w.visits, v)
			}
		}
	case topdown.EvalOp:
		v := w.open[e.QueryID]
		if v == nil || e.Location == nil {
			return
		}
		for i := range v.rule.conds {
			if v.rule.conds[i].Holds(e.Location) {
				v.at, v.top = i, max(v.top, i)
				return
			}
		}
	case topdown.ExitOp:
		if v := w.open[e.QueryID]; v != nil {
			v.done = true
		}
	}
}

// whyTopdown explains a control that runs on OPA's evaluator.
func (c *Control) whyTopdown(ctx context.Context, in value.Value, data DataSource, lim Limits, out Outcome, e *Explanation) *watcher {
	w := c.newWatcher(in)
	e.Partial = true
	b := newBudget(ctx, lim)
	defer b.release()
	run := newRun(in, data, lim)
	s := session{watch: w}
	var values [ruleCount]value.Value
	for _, rule := range []int{ruleDeny, ruleMask, ruleAllow} {
		if !c.has.defines(rule) {
			continue
		}
		v, err := c.slow.ask(ctx, &s, rule, run, b)
		if err != nil {
			return w
		}
		values[rule] = v
	}
	deciding := map[Effect]string{Allow: "allow", Mask: "mask"}[out.Effect]
	if out.Effect == Deny {
		deciding = "allow"
		if denies(values[ruleDeny]) {
			deciding = "deny"
		}
	}
	e.watched(w, deciding)
	if out.Effect == Deny && e.Rule == "" {
		e.Rule, e.Line = "allow", c.defaultLine("allow")
	}
	if !out.Effect.Permits() {
		e.Nearest = w.nearest()
	}
	return w
}

// defaultLine is where the default of a rule stands; 0 where there is none.
func (c *Control) defaultLine(name string) int {
	mod, _, err := c.parsed()
	if err != nil {
		return 0
	}
	for _, r := range mod.Rules {
		if r.Default && r.Head.Name.String() == name && r.Location != nil {
			return r.Location.Row
		}
	}
	return 0
}

// watched takes the first rule of a name that held for the one that decided.
func (e *Explanation) watched(w *watcher, name string) {
	seen := map[*watched]bool{}
	for _, v := range w.visits {
		if v.rule.name != name || !v.done || seen[v.rule] {
			continue
		}
		seen[v.rule] = true
		held := w.told(v, len(v.rule.conds))
		if e.Rule == "" {
			e.Rule, e.Line, e.Conditions = name, v.rule.line, held
		} else if len(e.Also) < maxAlso {
			e.Also = append(e.Also, Alternative{Rule: name, Line: v.rule.line, Missing: []Condition{}, Held: held})
		}
	}
}

// nearest is the rule allow (or mask) that came furthest.
func (w *watcher) nearest() *Alternative {
	best := w.furthest([]string{"allow", "mask"})
	if best == nil {
		return nil
	}
	alt := &Alternative{Rule: best.rule.name, Line: best.rule.line, Missing: []Condition{}}
	alt.Held = w.told(best, best.top)
	for i := max(best.top, 0); i < len(best.rule.conds); i++ {
		c := w.condition(best.rule, i, false)
		c.Unreached = i > best.top
		if inner := w.behind(best.rule, i); inner != nil && !c.Unreached {
			alt.Missing = append(alt.Missing, inner.Missing...)
			continue
		}
		alt.Missing = append(alt.Missing, c)
	}
	return alt
}

// furthest is the visit of a rule that does not hold with the fewest conditions
// left.
func (w *watcher) furthest(names []string) *visit {
	var best *visit
	for _, v := range w.visits {
		if v.done || !slices.Contains(names, v.rule.name) || len(v.rule.conds) == 0 {
			continue
		}
		if best == nil || len(v.rule.conds)-v.top < len(best.rule.conds)-best.top {
			best = v
		}
	}
	return best
}

// behind is the nearest rule that a condition asks, where that is why it fails.
func (w *watcher) behind(r *watched, i int) *Alternative {
	var names []string
	for _, e := range r.rule.Body {
		if !r.conds[i].Holds(e.Location) || e.Negated {
			continue
		}
		ast.WalkVars(e, func(v ast.Var) bool {
			names = append(names, string(v))
			return false
		})
	}
	v := w.furthest(names)
	if v == nil || v.rule == r {
		return nil
	}
	alt := &Alternative{}
	for i := max(v.top, 0); i < len(v.rule.conds); i++ {
		c := w.condition(v.rule, i, false)
		c.Unreached = i > v.top
		alt.Missing = append(alt.Missing, c)
	}
	return alt
}

// told are the first n conditions of a visit, which held.
func (w *watcher) told(v *visit, n int) []Condition {
	out := []Condition{}
	for i := range min(max(n, 0), len(v.rule.conds)) {
		out = append(out, w.condition(v.rule, i, true))
	}
	return out
}

// condition is one condition, with the parts of input that it names.
func (w *watcher) condition(r *watched, i int, holds bool) Condition {
	c := Condition{Rule: r.name, Line: r.conds[i].Line, Source: r.conds[i].Source, Holds: holds, Values: []Binding{}}
	for _, e := range r.rule.Body {
		if !r.conds[i].Holds(e.Location) {
			continue
		}
		walkRefs(e, func(ref ast.Ref) {
			if len(ref) < 2 || !ref[0].Equal(ast.InputRootDocument) {
				return
			}
			path, _ := inputParts(ref)
			name := "input." + keyOf(path)
			if len(path) > 0 && !slices.ContainsFunc(c.Values, func(b Binding) bool { return b.Path == name }) {
				c.Values = append(c.Values, Binding{Path: name, Value: brief(w.input.At(path...))})
			}
		})
	}
	return c
}

// reached are the conditions that were evaluated, rule by rule.
func (w *watcher) reached() []Condition {
	var out []Condition
	for _, v := range w.visits {
		out = append(out, w.told(v, v.top)...)
		if v.top >= 0 {
			out = append(out, w.condition(v.rule, v.top, v.done))
		}
		if len(out) > MaxSteps {
			break
		}
	}
	return out
}
