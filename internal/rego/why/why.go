// Package why explains the rules of one module condition by condition: which conditions held,
// which did not, and which would have to change. It compiles the conditions a second time, with
// package native.
package why

import (
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Module is a module that was compiled a second time, to explain its rules condition by condition:
// which conditions held, which did not, and with which values. Unlike an evaluation, it continues
// after the first condition that fails and tries the later ones too, as far as their variables are
// known, because readers want to see everything that was missing.
//
// It is safe for concurrent use.
type Module struct {
	prog   *native.Program
	groups map[string]*group
	names  map[ast.Var]ast.Var // compiled name -> the author's name
	pkg    ast.Ref
}

// Fact is one condition of the source, and its outcome.
type Fact struct {
	// Rule is the name of the rule that contains the condition.
	Rule string
	// Line is the condition's first line, from 1.
	Line int
	// Source is the condition as the author wrote it.
	Source string
	Holds  bool
	// Unreached means that the condition was not evaluated, because it needs a value from an
	// earlier condition that failed. Holds is then false.
	Unreached bool
	// Seen lists the values that the condition read.
	Seen []Seen
	// Because lists the conditions in another rule that gave this condition its outcome, if it has
	// the outcome that was asked for. All of them must change to change this condition.
	Because []Fact
}

// Seen is a value that a condition read.
type Seen struct {
	// Path is where the value comes from, such as input.user.roles[0]. For a computed value it is
	// the variable's name.
	Path string
	// Variable is the author's name for the value, or empty.
	Variable string
	// Value is undefined if there was no value.
	Value value.Value
}

// Branch is one rule, and how near it is to holding.
type Branch struct {
	Rule string
	Line int
	// Value is the value of the rule. It is undefined if it depends on what is missing.
	Value value.Value
	// Held and Missing are the conditions of the rule and of the rules that it uses, in source
	// order. A fact in Missing that holds is one that must not hold.
	Held, Missing []Fact
	// Reached are the facts in source order, up to the first that does not hold. The facts of a
	// rule precede those of the condition that uses the rule.
	Reached []Fact
}

// group is the rules of one name.
type group struct {
	*native.Group
	chains      [][]*clause // the rules, each with its else branches
	defaultLine int         // 0 without a default rule
}

// clause is one rule, or one else branch.
type clause struct {
	of     *group
	line   int
	conds  []*condition
	segs   []segment
	run    native.Step
	value  native.Term // the value of the head, or the key of a partial set
	fixed  bool        // the value is a constant
	head   string
	lo, hi int // the range of its slots
}

// condition is a condition of the source. It consists of one or more expressions of the compiled
// module.
type condition struct {
	span
	exprs []native.Expr
	probe native.Step // evaluates the condition with the variables of a leaf
	uses  []use
	shows []shown
}

// segment is a compiled expression, which belongs to one condition.
type segment struct {
	cond         int
	expr         native.Expr
	needs, binds []int
}

// use is a reference in a condition to rules of the same module.
type use struct {
	group *group
	args  []native.Term // arguments of a function
	from  []*shown
}

// Compile compiles the module of package pkg for explanations. mod is the module as it was parsed,
// for its text and locations; compiler has compiled it.
func Compile(mod *ast.Module, compiler *ast.Compiler, pkg ast.Ref) (*Module, error) {
	w := &Module{groups: map[string]*group{}, names: compiler.RewrittenVars, pkg: pkg}
	prog, err := native.CompileParts(compiler, pkg, func(c *native.Builder) error { return w.compile(c, mod, compiler) })
	if err != nil {
		return nil, err
	}
	w.prog = prog
	return w, nil
}

// compile compiles all rules of the module.
func (w *Module) compile(c *native.Builder, mod *ast.Module, compiler *ast.Compiler) error {
	var compiled *ast.Module
	for _, m := range compiler.Modules {
		if m.Package.Path.Equal(w.pkg) {
			compiled = m
		}
	}
	if len(compiled.Rules) != len(mod.Rules) {
		return &native.ErrUnsupported{What: "rules that the compiler added"}
	}
	of := map[*ast.Rule]*group{}
	for name, g := range c.Groups() {
		w.groups[name] = &group{Group: g}
		for _, r := range g.Source() {
			of[r] = w.groups[name]
		}
	}
	for i, r := range compiled.Rules {
		wg := of[r]
		if r.Default {
			wg.defaultLine = r.Location.Row
			continue
		}
		var chain []*clause
		for p, x := mod.Rules[i], r; x != nil; p, x = p.Else, x.Else {
			if p == nil || p.Location.Row != x.Location.Row {
				return &native.ErrUnsupported{What: "rules that the compiler moved", Location: x.Location}
			}
			chain = append(chain, w.clause(c, wg, p, x))
		}
		wg.chains = append(wg.chains, chain)
	}
	return nil
}

// Inquiry explains the rules for one input. It is not safe for concurrent use.
type Inquiry struct {
	why   *Module
	m     *native.Machine
	state map[*group][]reading // readings of rules, but not of functions
	// origin says where the parameters of a function got their values, by slot.
	origin map[int]string
	// assumedGone is a rule that is assumed not to hold.
	assumedGone *group
}

// Ask calls fn with an inquiry about an input. Errors of built-ins do not fail it: their results
// are undefined. fn must not keep the inquiry. The error is eval.ErrLimit, an
// *eval.Error or a *eval.PanicError; what fn learned before the error remains valid.
func (w *Module) Ask(env *eval.Env, input value.Value, data native.DataSource, fn func(q *Inquiry)) error {
	lenient := *env
	lenient.Strict = false
	return w.prog.Run(&lenient, input, data, func(m *native.Machine) {
		defer func() { m.Attached = nil }()
		fn(&Inquiry{why: w, m: m, state: map[*group][]reading{}, origin: map[int]string{}})
	})
}

// Value returns the value of a rule.
func (q *Inquiry) Value(rule string) value.Value { return q.m.Rule(rule) }

// DefaultLine returns the line of a rule's default, or 0.
func (q *Inquiry) DefaultLine(rule string) int {
	if g := q.why.groups[rule]; g != nil {
		return g.defaultLine
	}
	return 0
}

func (q *Inquiry) stopped() bool { return q.m.Err != nil }

func isLimit(err error) bool { return errors.Is(err, eval.ErrLimit) }
