package native

import (
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Why is a module compiled a second time, so that its rules can be asked
// condition by condition: what held, what did not, and with which values. A
// body is not left at its first condition that fails: those after it are tried
// as well, as far as their variables are known, for a reader wants to be told
// everything that was missing and not only what came first.
//
// It is safe for concurrent use.
type Why struct {
	prog   *Program
	rules  map[string]*group
	groups map[string]*whyGroup
	names  map[ast.Var]ast.Var // compiled name -> the author's
	pkg    ast.Ref
}

// Fact is one condition of the source and how it came out.
type Fact struct {
	// Rule is the name of the rule that the condition stands in.
	Rule string
	// Line is where it begins, 1-based.
	Line int
	// Source is the condition as the author wrote it.
	Source string
	Holds  bool
	// Unreached: the condition needs a value that an earlier one would have
	// given; it was not evaluated and does not hold.
	Unreached bool
	// Seen are the values that it looked at.
	Seen []Seen
	// Because are, of a condition that is as it has to be and asks another rule,
	// the conditions there that made it so. To turn the condition they all have
	// to come out the other way.
	Because []Fact
}

// Seen is a value that a condition looked at.
type Seen struct {
	// Path is where the value comes from, such as input.user.roles[0]; of a
	// value that was computed it is the variable's name.
	Path string
	// Variable is the author's name for it, if it has one.
	Variable string
	// Value is undefined where nothing was there.
	Value value.Value
}

// Branch is one of the rules of a name, and how near it is to holding.
type Branch struct {
	Rule string
	Line int
	// Value is what the rule gives; undefined where that hangs on what is missing.
	Value value.Value
	// Held and Missing are its conditions and those of the rules that it asks,
	// in the order of the text. A missing fact that holds is one that must not.
	Held, Missing []Fact
	// Reached are the facts in the order of the text, up to the first that does
	// not hold; a rule that is asked is told before the condition that asks.
	Reached []Fact
}

type whyGroup struct {
	*group
	chains      [][]*whyClause // the rules, each with its else branches
	defaultLine int            // 0: no default rule
}

// whyClause is one rule, or one else branch.
type whyClause struct {
	of     *whyGroup
	line   int
	conds  []*whyCond
	segs   []whySeg
	run    step
	value  term // what the head gives: the value, or the key of a partial set
	fixed  bool // the value is a constant
	head   string
	plain  *clause
	lo, hi int // its slots
}

// whyCond is a condition of the source: one or more expressions of the
// compiled module.
type whyCond struct {
	Place
	exprs []expr
	probe step // holds from the state at a leaf?
	uses  []use
	shows []shown
}

// whySeg is a compiled expression: part of one condition.
type whySeg struct {
	cond         int
	expr         expr
	needs, binds []int
}

// use is a reference of a condition to rules of the same module.
type use struct {
	group *whyGroup
	args  []term // of a function
	from  []*shown
}

// CompileWhy compiles a module for questions. The arguments are Compile's; the
// parsed module is needed here, for its text and places.
func CompileWhy(mod *ast.Module, compiler *ast.Compiler, pkg ast.Ref) (w *Why, err error) {
	c := newBuilder()
	err = guarded(c, func(c *builder) { w = c.why(mod, compiler, pkg) })
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (c *builder) why(mod *ast.Module, compiler *ast.Compiler, pkg ast.Ref) *Why {
	var compiled *ast.Module
	for _, m := range compiler.Modules {
		if m.Package.Path.Equal(pkg) {
			compiled = m
		}
	}
	if compiled == nil || len(compiled.Rules) != len(mod.Rules) {
		fail("rules that the compiler added")
	}
	c.load(compiler, pkg)
	c.module()
	w := &Why{prog: c.prog, rules: c.rules, groups: map[string]*whyGroup{}, names: compiler.RewrittenVars, pkg: pkg}
	at, plain := map[*ast.Rule]*whyGroup{}, map[*ast.Rule]*clause{}
	for name, g := range c.rules {
		wg := &whyGroup{group: g}
		w.groups[name] = wg
		rest := g.rules
		for _, r := range g.src {
			if at[r] = wg; !r.Default {
				plain[r], rest = rest[0], rest[1:]
			}
		}
	}
	for i, r := range compiled.Rules {
		wg := at[r]
		if r.Default {
			wg.defaultLine = r.Location.Row
			continue
		}
		cl := plain[r]
		var chain []*whyClause
		for p, x := mod.Rules[i], r; x != nil; p, x = p.Else, x.Else {
			if p == nil || p.Location.Row != x.Location.Row {
				fail("rules that the compiler moved")
			}
			chain = append(chain, w.clause(c, wg, cl, p, x))
			cl = cl.els
		}
		wg.chains = append(wg.chains, chain)
	}
	c.finish()
	return w
}

// Inquiry is one input under question. It is not safe for concurrent use.
type Inquiry struct {
	why   *Why
	m     *machine
	state map[*whyGroup][]reading // of rules, not of functions
	// origin is where the values of a function's parameters came from, by slot.
	origin map[int]string
	// gone is a rule that is supposed not to hold.
	gone *whyGroup
}

// Ask runs fn over an input. Errors of built-ins do not count here: what they
// would have given is undefined. fn must not keep the inquiry. The error is
// ErrLimit, an *EvalError or a *PanicError; what fn was told before stands.
func (w *Why) Ask(env *Env, input value.Value, data DataSource, fn func(q *Inquiry)) error {
	lenient := *env
	lenient.Strict = false
	return w.prog.run(&lenient, input, data, func(m *machine) {
		defer func() { m.seek = nil }()
		fn(&Inquiry{why: w, m: m, state: map[*whyGroup][]reading{}, origin: map[int]string{}})
	})
}

// Value is the value of a rule.
func (q *Inquiry) Value(rule string) value.Value { return q.m.rule(rule) }

// DefaultLine is where a rule's default stands; 0 where it has none.
func (q *Inquiry) DefaultLine(rule string) int {
	if g := q.why.groups[rule]; g != nil {
		return g.defaultLine
	}
	return 0
}

// stopped tells that the inquiry is at its end.
func (q *Inquiry) stopped() bool { return q.m.err != nil }

func isLimit(err error) bool { return errors.Is(err, ErrLimit) }
