package native

import (
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// groupKind is what a group of rules of one name makes together.
type groupKind uint8

const (
	complete groupKind = iota
	function
	partialSet
	partialObject
)

// group is all rules of one name.
type group struct {
	id    int
	name  string
	kind  groupKind
	rules []*clause
	// dflt is the value of the default rule, nil where there is none.
	dflt term
	// first tells that all rules have one and the same constant value, so that
	// the first that holds settles it; topdown stops early then, too.
	first bool
	// loose tells that the value may be one that topdown has not put together
	// yet where it is first used; see scope.loose.
	loose bool
	built bool
	risk  risk
	// acc and cur are slots: the value so far, and that of the rule at hand.
	acc, cur int
	params   []int
}

// clause is one rule. Its else is tried where the rule itself is undefined.
type clause struct {
	run  step
	els  *clause
	line *ast.Location
	risk risk // of the rule and its else
}

// risk tells whether an evaluation may end in an error. Where one rule settles
// a document, topdown does not run the others; but which one it runs first is
// its index's choice. So what can fail is run in any case, and if it does fail,
// topdown is asked.
type risk uint8

const (
	none   risk = iota
	strict      // by a built-in, where such errors count
	always      // by a conflict
)

// builder compiles a module, and of the libraries beside it what the module uses.
type builder struct {
	prog *Program
	pkg  ast.Ref
	src  map[string][]*ast.Rule // by the group's name
	libs []library
	risk risk // of what is being compiled
}

// library is a package whose rules the module may refer to. Its groups are named
// by package and rule, and are made when they are first referred to.
type library struct {
	pkg    ast.Ref
	prefix string
}

func fail(format string, args ...any) {
	panic(&ErrUnsupported{fmt.Sprintf(format, args...)})
}

func (c *builder) slot() int {
	c.prog.slots++
	return c.prog.slots - 1
}

func (c *builder) module(mod *ast.Module) {
	// All groups exist before any body is compiled: bodies refer to them.
	for _, name := range c.rules(mod, "") {
		c.declare(name)
	}
	for _, g := range slices.Clone(c.prog.groups) {
		c.build(g)
	}
}

// rules takes the rules of a module by name; order is that of the text.
func (c *builder) rules(mod *ast.Module, prefix string) (order []string) {
	for _, r := range mod.Rules {
		name := prefix + string(r.Head.Ref()[0].Value.(ast.Var))
		if c.src[name] == nil {
			order = append(order, name)
		}
		c.src[name] = append(c.src[name], r)
	}
	return order
}

func (c *builder) declare(name string) *group {
	g := &group{id: len(c.prog.groups), name: name, kind: kindOf(name, c.src[name]), acc: c.slot(), cur: c.slot()}
	if g.kind == function {
		for range c.src[name][0].Head.Args {
			g.params = append(g.params, c.slot())
		}
	}
	g.first = oneValue(g, c.src[name])
	c.prog.groups = append(c.prog.groups, g)
	c.prog.rules[name] = g
	return g
}

// find is the group that a reference below data leads to, and how much of the
// reference names it; nil where it leads to none.
func (c *builder) find(ref ast.Ref) (g *group, used int) {
	name, used := c.nameOf(ref)
	if g := c.prog.rules[name]; g != nil || c.src[name] == nil {
		return g, used
	}
	return c.declare(name), used
}

func (c *builder) nameOf(ref ast.Ref) (name string, used int) {
	at := library{pkg: c.pkg}
	for _, l := range c.libs {
		if ref.HasPrefix(l.pkg) {
			at = l
		}
	}
	if n := len(at.pkg); len(ref) > n && ref.HasPrefix(at.pkg) {
		if s, ok := ref[n].Value.(ast.String); ok {
			return at.prefix + string(s), n + 1
		}
	}
	return "", 0
}

// build compiles a group once: in order, or before that when it is referred to.
func (c *builder) build(g *group) {
	if !g.built {
		g.built = true
		outer := c.risk
		c.risk = none
		if g.kind == partialObject || g.kind != partialSet && !g.first {
			c.risk = always
		}
		c.group(g, c.src[g.name])
		g.risk, c.risk = c.risk, outer
	}
	c.risk = max(c.risk, g.risk)
}

func kindOf(name string, rules []*ast.Rule) groupKind {
	kind := ruleKind(rules[0])
	for _, r := range rules[1:] {
		if ruleKind(r) != kind {
			fail("rule %s of several kinds", name)
		}
	}
	return kind
}

func ruleKind(r *ast.Rule) groupKind {
	h := r.Head
	n := len(h.Ref())
	switch {
	case len(h.Args) > 0 && n == 1:
		return function
	case n == 1 && h.RuleKind() == ast.MultiValue:
		return partialSet
	case n == 1:
		return complete
	case n == 2 && len(h.Args) == 0 && h.RuleKind() == ast.SingleValue && r.Else == nil && !r.Default:
		return partialObject
	}
	fail("rule head %s", h.Ref())
	return 0
}

func (c *builder) group(g *group, rules []*ast.Rule) {
	for _, r := range rules {
		if r.Default {
			s := c.scope()
			if s.head(r) != nil {
				fail("default function %s with patterns", g.name)
			}
			g.dflt = s.term(r.Head.Value)
			continue
		}
		g.rules = append(g.rules, c.clause(g, r))
	}
}

// oneValue tells whether all rules of a group (their else, too, but not the
// default) have the same constant value.
func oneValue(g *group, rules []*ast.Rule) bool {
	if g.kind != complete && g.kind != function {
		return false
	}
	var val *ast.Term
	for _, r := range rules {
		if r.Default {
			continue
		}
		for x := r; x != nil; x = x.Else {
			v := x.Head.Value
			if v == nil || !ast.IsConstant(v.Value) || val != nil && !val.Equal(v) {
				return false
			}
			val = v
		}
	}
	return true
}

func (c *builder) clause(g *group, r *ast.Rule) *clause {
	s := c.scope()
	outer := c.risk
	c.risk = none
	head := s.heads(g, r)
	body := s.body(r.Body)
	if g.kind == complete || g.kind == function {
		g.loose = g.loose || s.loose(r.Head.Value)
	}
	cl := &clause{line: r.Location}
	cl.run = head(body(s.finish(g, r)))
	if r.Else != nil {
		cl.els = c.clause(g, r.Else)
	}
	cl.risk, c.risk = c.risk, max(c.risk, outer)
	return cl
}

// heads matches a function's arguments against the patterns of the head.
func (s *scope) heads(g *group, r *ast.Rule) expr {
	if g.kind != function {
		return pass
	}
	if len(r.Head.Args) != len(g.params) {
		fail("function %s of several arities", g.name)
	}
	s.params = g.params
	chain := s.head(r)
	if chain == nil {
		return pass
	}
	return chain
}

// head is nil where all arguments are distinct variables, which then are the parameters' slots.
func (s *scope) head(r *ast.Rule) expr {
	var chain []expr
	for i, a := range r.Head.Args {
		if v, ok := a.Value.(ast.Var); ok && !s.bound[v] {
			if s.params != nil {
				s.slots[v] = s.params[i]
			}
			s.bound[v] = true
			continue
		}
		if s.params == nil {
			fail("pattern in the head of a default function")
		}
		chain = append(chain, s.match(slotTerm(s.params[i]), a))
	}
	if chain == nil {
		return nil
	}
	return sequence(chain)
}

// finish is what happens when a rule's body holds.
func (s *scope) finish(g *group, r *ast.Rule) step {
	switch g.kind {
	case partialSet:
		key := s.term(r.Head.Key)
		return func(m *machine) bool {
			v := key(m)
			return v.Defined() && m.push(v) || m.err != nil
		}
	case partialObject:
		key, val := s.term(r.Head.Ref()[1]), s.term(r.Head.Value)
		return func(m *machine) bool {
			k, v := key(m), val(m)
			return k.Defined() && v.Defined() && m.pushPair(k, v) || m.err != nil
		}
	}
	val := s.term(r.Head.Value)
	if g.first {
		return func(m *machine) bool {
			m.slots[g.acc] = val(m)
			m.slots[g.cur] = m.slots[g.acc]
			return true
		}
	}
	message := "complete rules must not produce multiple outputs"
	if g.kind == function {
		message = "functions must not produce multiple outputs for same inputs"
	}
	loc := r.Location
	return func(m *machine) bool {
		v := val(m)
		if !v.Defined() {
			return m.err != nil
		}
		if prev := m.slots[g.acc]; !prev.Defined() {
			m.slots[g.acc] = v
		} else if !m.equal(prev, v) {
			if m.err != nil {
				return true
			}
			return m.conflict(message, loc)
		}
		m.slots[g.cur] = v
		return false
	}
}

// value is the value of the group's rules, evaluated once.
func (g *group) value(m *machine) value.Value {
	if m.done[g.id] {
		return m.known[g.id]
	}
	if m.err != nil || m.tick() {
		return value.Value{}
	}
	var v value.Value
	switch g.kind {
	case function:
		return v
	case complete:
		v = g.settle(m)
	case partialSet:
		base := len(m.stack)
		for _, r := range g.rules {
			if r.run(m) && m.err != nil {
				break
			}
		}
		v = m.popSet(base)
	case partialObject:
		base := len(m.pairs)
		for _, r := range g.rules {
			if r.run(m) && m.err != nil {
				break
			}
		}
		var ok bool
		if v, ok = m.popObject(base); !ok {
			m.conflict("object keys must be unique", g.rules[0].line)
		}
	}
	if m.err != nil {
		return value.Value{}
	}
	m.done[g.id], m.known[g.id] = true, v
	return v
}

// settle runs the rules of a complete document or of a function whose
// parameters are set. Every rule runs, as two of them might disagree, unless
// all have the same value.
func (g *group) settle(m *machine) value.Value {
	m.slots[g.acc] = value.Value{}
	bearable := strict
	if m.env.Strict {
		bearable = none
	}
	for _, r := range g.rules {
		if g.first && r.risk <= bearable && m.slots[g.acc].Defined() {
			continue
		}
		for ; r != nil; r = r.els {
			m.slots[g.cur] = value.Value{}
			r.run(m)
			if m.err != nil {
				return value.Value{}
			}
			if m.slots[g.cur].Defined() {
				break
			}
		}
	}
	if v := m.slots[g.acc]; v.Defined() || g.dflt == nil {
		return v
	}
	return g.dflt(m)
}

// call is the function's value for arguments, which are all defined.
func (g *group) call(m *machine, args []value.Value) value.Value {
	if m.tick() {
		return value.Value{}
	}
	memo := &m.calls[g.id]
	if v, ok := memo.find(args); ok {
		return v
	}
	for i, p := range g.params {
		m.slots[p] = args[i]
	}
	v := g.settle(m)
	if m.err != nil {
		return value.Value{}
	}
	memo.put(args, v)
	return v
}

// scope knows the variables of one rule and which of them are bound at the
// place that is being compiled.
type scope struct {
	c      *builder
	slots  map[ast.Var]int
	bound  map[ast.Var]bool
	params []int
	// unplugged are the variables that may hold a loose value; taint tells
	// that those bound now are such.
	unplugged map[ast.Var]bool
	taint     bool
}

func (c *builder) scope() *scope {
	return &scope{c: c, slots: map[ast.Var]int{}, bound: map[ast.Var]bool{}, unplugged: map[ast.Var]bool{}}
}

// inner is the scope of a closure: what it binds stays bound in it only.
func (s *scope) inner() *scope {
	return &scope{c: s.c, slots: s.slots, bound: maps.Clone(s.bound), unplugged: s.unplugged}
}

// bind gives a variable its slot and calls it bound from here on.
func (s *scope) bind(v ast.Var) int {
	at, ok := s.slots[v]
	if !ok {
		at = s.c.slot()
		s.slots[v] = at
	}
	s.bound[v] = true
	if s.taint {
		s.unplugged[v] = true
	}
	return at
}

func slotTerm(i int) term { return func(m *machine) value.Value { return m.slots[i] } }
