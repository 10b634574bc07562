package native

import (
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// groupKind is what a group of rules makes together.
type groupKind uint8

const (
	complete groupKind = iota
	function
	partialSet
	partialObject // p[x] := v, and nothing deeper
	partialTree   // any other head with a variable: p[x].q := v, p[x] contains y
)

// group is all rules of one place in a package.
type group struct {
	id    int
	name  string
	kind  groupKind
	rules []*clause
	// path is where the group is below data, depth how much of a rule's head
	// names it.
	path  []string
	depth int
	src   []*ast.Rule
	// dflt is the value of the default rule, nil where there is none.
	dflt term
	// first tells that all rules have one and the same constant value, so that
	// the first that holds settles it.
	first bool
	built bool
	// acc and cur are slots: the value so far, and that of the rule at hand.
	acc, cur int
	params   []int
}

// clause is one rule. Its else is tried where the rule itself is undefined.
type clause struct {
	run  step
	els  *clause
	line *ast.Location
}

// builder compiles a module, and of the libraries beside it what the module uses.
type builder struct {
	prog     *Program
	groups   []*group
	rules    map[string]*group // by name
	places   map[place]*ast.Location
	pkg      ast.Ref
	packages []*rulePackage
	// targets are what some `with` of the program replaces: functions by name,
	// with the functions that stand in for them, and documents under data.
	functions map[string][]ast.Ref
	documents [][]string
	// at is what is being compiled, for messages.
	at *ast.Location
}

func newBuilder() *builder {
	return &builder{prog: &Program{code: &code{}}, rules: map[string]*group{}, places: map[place]*ast.Location{}}
}

// place is a line of a module.
type place struct {
	file string
	row  int
}

// place is the line of a location, without the text that the parser keeps with it.
func (c *builder) place(loc *ast.Location) *ast.Location {
	if loc == nil {
		return nil
	}
	at := place{loc.File, loc.Row}
	if c.places[at] == nil {
		c.places[at] = &ast.Location{File: loc.File, Row: loc.Row}
	}
	return c.places[at]
}

func fail(format string, args ...any) {
	panic(&ErrUnsupported{What: fmt.Sprintf(format, args...)})
}

func (c *builder) slot() int {
	c.prog.slots++
	return c.prog.slots - 1
}

func (c *builder) module() {
	for _, p := range c.packages {
		if p.own {
			p.root.each(func(n *node) { c.declare(n) })
		}
	}
	for _, g := range slices.Clone(c.groups) {
		c.build(g)
	}
	for _, p := range c.packages {
		if p.own {
			for _, k := range p.root.order {
				c.entry(p.root.kids[k])
			}
		}
	}
}

// entry makes the value of all rules of one name, as far as it is no function.
func (c *builder) entry(n *node) {
	if n.group == nil || n.group.kind != function {
		c.prog.entries = append(c.prog.entries, entry{n.name, c.extent(n)})
	}
}

func (c *builder) declare(n *node) *group {
	if n.group != nil {
		return n.group
	}
	g := &group{
		id: len(c.groups), name: n.name, kind: kindOf(n), path: n.path, depth: n.depth,
		src: n.rules, acc: c.slot(), cur: c.slot(),
	}
	if g.kind == function {
		for range g.src[0].Head.Args {
			g.params = append(g.params, c.slot())
		}
	}
	g.first = oneValue(g, g.src)
	n.group = g
	c.groups = append(c.groups, g)
	c.rules[n.name] = g
	return g
}

// build compiles a group once: in order, or before that when it is referred to.
func (c *builder) build(g *group) {
	if g.built {
		return
	}
	g.built = true
	at := c.at
	c.group(g, g.src)
	c.at = at
}

func kindOf(n *node) groupKind {
	kind := complete
	for i, r := range n.rules {
		k := n.ruleKind(r)
		switch {
		case i == 0 || k == kind:
			kind = k
		case k >= partialSet && kind >= partialSet:
			kind = partialTree
		default:
			fail("the rule %s is of several kinds", n.name)
		}
	}
	return kind
}

func (n *node) ruleKind(r *ast.Rule) groupKind {
	h := r.Head
	dynamic := len(h.Ref()) - n.depth
	many := h.RuleKind() == ast.MultiValue
	switch {
	case len(h.Args) > 0:
		return function
	case dynamic == 0 && many:
		return partialSet
	case dynamic == 0:
		return complete
	case r.Else != nil || r.Default:
		fail("else and default in a rule with variables in its name")
	case dynamic == 1 && !many:
		return partialObject
	}
	return partialTree
}

func (c *builder) group(g *group, rules []*ast.Rule) {
	for _, r := range rules {
		c.at = r.Location
		if r.Default {
			s := c.scope()
			if s.head(r) != nil {
				fail("default function %s with patterns", g.name)
			}
			g.dflt = s.defaultValue(r)
			continue
		}
		g.rules = append(g.rules, c.clause(g, r))
	}
}

// defaultValue is the value of a default rule. A comprehension in it has become
// a condition of the rule.
func (s *scope) defaultValue(r *ast.Rule) term {
	if ast.IsConstant(r.Head.Value.Value) {
		return s.constant(r.Head.Value)
	}
	body, at := s.body(r.Body), s.c.slot()
	val := s.term(r.Head.Value)
	run := body(func(m *machine) bool {
		m.slots[at] = val(m)
		return true
	})
	return func(m *machine) value.Value {
		m.slots[at] = value.Value{}
		if run(m); m.err != nil {
			return value.Value{}
		}
		return m.slots[at]
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
	c.at = r.Location
	s := c.scope()
	head := s.heads(g, r)
	body := s.body(r.Body)
	cl := &clause{line: c.place(r.Location)}
	cl.run = head(body(s.finish(g, r)))
	if r.Else != nil {
		cl.els = c.clause(g, r.Else)
	}
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
		key, val := s.term(r.Head.Ref()[g.depth]), s.term(r.Head.Value)
		return func(m *machine) bool {
			k, v := key(m), val(m)
			return k.Defined() && v.Defined() && m.pushPair(k, v) || m.err != nil
		}
	case partialTree:
		return s.grow(g, r)
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
	loc := s.c.place(r.Location)
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
		v = g.evaluate(m)
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
			m.conflict(keyConflict, g.rules[0].line)
		}
	case partialTree:
		v = g.tree(m)
	}
	if m.err != nil {
		return value.Value{}
	}
	m.done[g.id], m.known[g.id] = true, v
	return v
}

// evaluate runs the rules of a complete document or of a function whose
// parameters are set. Every rule runs, as two of them might disagree, unless
// all have the same value.
func (g *group) evaluate(m *machine) value.Value {
	m.slots[g.acc] = value.Value{}
	for _, r := range g.rules {
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
		if g.first && m.slots[g.acc].Defined() {
			break
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
	v := g.evaluate(m)
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
	at     *ast.Location // of the expression that is being compiled
}

func (c *builder) scope() *scope {
	return &scope{c: c, slots: map[ast.Var]int{}, bound: map[ast.Var]bool{}}
}

// inner is the scope of a closure: what it binds stays bound in it only.
func (s *scope) inner() *scope {
	return &scope{c: s.c, slots: s.slots, bound: maps.Clone(s.bound), at: s.at}
}

// bind gives a variable its slot and calls it bound from here on.
func (s *scope) bind(v ast.Var) int {
	at, ok := s.slots[v]
	if !ok {
		at = s.c.slot()
		s.slots[v] = at
	}
	s.bound[v] = true
	return at
}

// slotTerms are those of the first slots, for all programs.
var slotTerms = func() (list [128]term) {
	for i := range list {
		list[i] = func(m *machine) value.Value { return m.slots[i] }
	}
	return list
}()

func slotTerm(i int) term {
	if i < len(slotTerms) {
		return slotTerms[i]
	}
	return func(m *machine) value.Value { return m.slots[i] }
}
