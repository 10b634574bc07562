package native

import (
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Kind is the kind of document that a group of rules defines.
type Kind uint8

// The kinds. From PartialSet on, each rule that holds adds to the document.
const (
	complete      Kind = iota
	Function           // f(x) := v
	PartialSet         // p contains x
	PartialObject      // p[x] := v, and nothing deeper
	partialTree        // any other head with a variable: p[x].q := v, p[x] contains y
)

// Group holds all rules of one name in a package.
type Group struct {
	id    int
	name  string
	kind  Kind
	rules []*clause
	// path is where the group's value is below data. depth is the number of parts of a rule's head
	// that name the group.
	path  []string
	depth int
	src   []*ast.Rule
	// defaultTerm is the value of the default rule, or nil.
	defaultTerm Term
	// sameValue means that all rules have the same constant value, so that evaluation stops at the
	// first rule that holds.
	sameValue bool
	built     bool
	// acc and cur are slots: the value so far, and the value of the current rule.
	acc, cur int
	params   []int
}

// clause is one rule. otherwise is tried if the rule itself is undefined.
type clause struct {
	run       Step
	otherwise *clause
	line      *ast.Location
}

// Builder compiles a module, and those parts of its libraries that it uses.
type Builder struct {
	prog     *Program
	groups   []*Group
	rules    map[string]*Group // by name
	places   map[place]*ast.Location
	pkg      ast.Ref
	packages []*rulePackage
	// functions holds the functions that some `with` of the program replaces, by name, with their
	// replacements. documents holds the paths below data that some `with` replaces.
	functions map[string][]ast.Ref
	documents [][]string
	// at is the location of what is being compiled, for messages.
	at *ast.Location
}

func newBuilder() *Builder {
	return &Builder{prog: &Program{code: &code{}}, rules: map[string]*Group{}, places: map[place]*ast.Location{}}
}

type place struct {
	file string
	row  int
}

// place returns the line of a location, without the source text that the parser keeps in it.
func (c *Builder) place(loc *ast.Location) *ast.Location {
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

func (c *Builder) slot() int {
	c.prog.slots++
	return c.prog.slots - 1
}

func (c *Builder) module() {
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

// entry adds the value of all rules of one name, unless they are a function.
func (c *Builder) entry(n *node) {
	if n.group == nil || n.group.kind != Function {
		c.prog.entries = append(c.prog.entries, entry{n.name, c.extent(n)})
	}
}

func (c *Builder) declare(n *node) *Group {
	if n.group != nil {
		return n.group
	}
	g := &Group{
		id: len(c.groups), name: n.name, kind: kindOf(n), path: n.path, depth: n.depth,
		src: n.rules, acc: c.slot(), cur: c.slot(),
	}
	if g.kind == Function {
		for range g.src[0].Head.Args {
			g.params = append(g.params, c.slot())
		}
	}
	g.sameValue = oneValue(g, g.src)
	n.group = g
	c.groups = append(c.groups, g)
	c.rules[n.name] = g
	return g
}

// build compiles a group once: in order, or earlier if another group refers to it.
func (c *Builder) build(g *Group) {
	if g.built {
		return
	}
	g.built = true
	at := c.at
	c.group(g, g.src)
	c.at = at
}

func kindOf(n *node) Kind {
	kind := complete
	for i, r := range n.rules {
		k := n.ruleKind(r)
		switch {
		case i == 0 || k == kind:
			kind = k
		case k >= PartialSet && kind >= PartialSet:
			kind = partialTree
		default:
			fail("the rule %s is of several kinds", n.name)
		}
	}
	return kind
}

func (n *node) ruleKind(r *ast.Rule) Kind {
	h := r.Head
	dynamic := len(h.Ref()) - n.depth
	many := h.RuleKind() == ast.MultiValue
	switch {
	case len(h.Args) > 0:
		return Function
	case dynamic == 0 && many:
		return PartialSet
	case dynamic == 0:
		return complete
	case r.Else != nil || r.Default:
		fail("else and default in a rule with variables in its name")
	case dynamic == 1 && !many:
		return PartialObject
	}
	return partialTree
}

func (c *Builder) group(g *Group, rules []*ast.Rule) {
	for _, r := range rules {
		c.at = r.Location
		if r.Default {
			s := c.Scope()
			if s.matchHead(r) != nil {
				fail("default function %s with patterns", g.name)
			}
			g.defaultTerm = s.defaultValue(r)
			continue
		}
		g.rules = append(g.rules, c.clause(g, r))
	}
}

// defaultValue compiles the value of a default rule. OPA's compiler moves a comprehension in it to
// the body of the rule.
func (s *Scope) defaultValue(r *ast.Rule) Term {
	if ast.IsConstant(r.Head.Value.Value) {
		return s.c.constant(r.Head.Value)
	}
	body, at := s.body(r.Body), s.c.slot()
	val := s.Term(r.Head.Value)
	run := body(func(m *Machine) bool {
		m.Slots[at] = val(m)
		return true
	})
	return func(m *Machine) value.Value {
		m.Slots[at] = value.Value{}
		if run(m); m.Err != nil {
			return value.Value{}
		}
		return m.Slots[at]
	}
}

// oneValue reports whether all rules of a group, with their else branches but without the default,
// have the same constant value.
func oneValue(g *Group, rules []*ast.Rule) bool {
	if g.kind != complete && g.kind != Function {
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

func (c *Builder) clause(g *Group, r *ast.Rule) *clause {
	c.at = r.Location
	s := c.Scope()
	head := g.matchArguments(s, r)
	body := s.body(r.Body)
	cl := &clause{line: c.place(r.Location)}
	cl.run = head(body(g.emit(s, r)))
	if r.Else != nil {
		cl.otherwise = c.clause(g, r.Else)
	}
	return cl
}

// matchArguments matches the arguments of a function against the patterns of a rule's head.
func (g *Group) matchArguments(s *Scope, r *ast.Rule) Expr {
	if g.kind != Function {
		return pass
	}
	if len(r.Head.Args) != len(g.params) {
		fail("function %s of several arities", g.name)
	}
	s.params = g.params
	chain := s.matchHead(r)
	if chain == nil {
		return pass
	}
	return chain
}

// matchHead compiles the patterns of the head. It returns nil if all arguments are distinct variables,
// which then use the slots of the parameters.
func (s *Scope) matchHead(r *ast.Rule) Expr {
	var chain []Expr
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
	return Sequence(chain)
}

// emit returns the step that runs when the body of a rule holds.
func (g *Group) emit(s *Scope, r *ast.Rule) Step {
	switch g.kind {
	case PartialSet:
		key := s.Term(r.Head.Key)
		return func(m *Machine) bool {
			v := key(m)
			return v.Defined() && m.Push(v) || m.Err != nil
		}
	case PartialObject:
		key, val := s.Term(r.Head.Ref()[g.depth]), s.Term(r.Head.Value)
		return func(m *Machine) bool {
			k, v := key(m), val(m)
			return k.Defined() && v.Defined() && m.pushPair(k, v) || m.Err != nil
		}
	case partialTree:
		return g.addToTree(s, r)
	}
	val := s.Term(r.Head.Value)
	if g.sameValue {
		return func(m *Machine) bool {
			m.Slots[g.acc] = val(m)
			m.Slots[g.cur] = m.Slots[g.acc]
			return true
		}
	}
	message := "complete rules must not produce multiple outputs"
	if g.kind == Function {
		message = "functions must not produce multiple outputs for same inputs"
	}
	loc := s.c.place(r.Location)
	return func(m *Machine) bool {
		v := val(m)
		if !v.Defined() {
			return m.Err != nil
		}
		if prev := m.Slots[g.acc]; !prev.Defined() {
			m.Slots[g.acc] = v
		} else if !m.Equal(prev, v) {
			if m.Err != nil {
				return true
			}
			return m.Conflict(message, loc)
		}
		m.Slots[g.cur] = v
		return false
	}
}

// Value evaluates the group's rules, once for each world.
func (g *Group) Value(m *Machine) value.Value {
	if m.evaluated[g.id] {
		return m.values[g.id]
	}
	if m.Err != nil || m.Tick() {
		return value.Value{}
	}
	var v value.Value
	switch g.kind {
	case Function:
		return v
	case complete:
		v = g.evaluate(m)
	case PartialSet:
		base := m.Depth()
		for _, r := range g.rules {
			if r.run(m) && m.Err != nil {
				break
			}
		}
		v = m.PopSet(base)
	case PartialObject:
		base := len(m.pairs)
		for _, r := range g.rules {
			if r.run(m) && m.Err != nil {
				break
			}
		}
		var ok bool
		if v, ok = m.popObject(base); !ok {
			m.Conflict(keyConflict, g.rules[0].line)
		}
	case partialTree:
		v = g.tree(m)
	}
	if m.Err != nil {
		return value.Value{}
	}
	m.evaluated[g.id], m.values[g.id] = true, v
	return v
}

// evaluate runs the rules of a complete document, or of a function whose parameters are set. It
// runs every rule, because two of them may conflict, unless all have the same value.
func (g *Group) evaluate(m *Machine) value.Value {
	m.Slots[g.acc] = value.Value{}
	for _, r := range g.rules {
		for ; r != nil; r = r.otherwise {
			m.Slots[g.cur] = value.Value{}
			r.run(m)
			if m.Err != nil {
				return value.Value{}
			}
			if m.Slots[g.cur].Defined() {
				break
			}
		}
		if g.sameValue && m.Slots[g.acc].Defined() {
			break
		}
	}
	if v := m.Slots[g.acc]; v.Defined() || g.defaultTerm == nil {
		return v
	}
	return g.defaultTerm(m)
}

// call returns the function's value for arguments that are all defined.
func (g *Group) call(m *Machine, args []value.Value) value.Value {
	if m.Tick() {
		return value.Value{}
	}
	memo := &m.calls[g.id]
	if v, ok := memo.find(args); ok {
		return v
	}
	for i, p := range g.params {
		m.Slots[p] = args[i]
	}
	v := g.evaluate(m)
	if m.Err != nil {
		return value.Value{}
	}
	memo.put(args, v)
	return v
}

// variables holds the variables of one rule, and which of them are bound at the current place of the
// compilation.
type variables struct {
	c     *Builder
	slots map[ast.Var]int
	bound map[ast.Var]bool
}

// Scope compiles the expressions and terms of one rule.
type Scope struct {
	variables
	params []int
	at     *ast.Location // location of the expression that is being compiled
}

// Scope returns the scope of a new rule, in which nothing is bound.
func (c *Builder) Scope() *Scope {
	return &Scope{variables: variables{c, map[ast.Var]int{}, map[ast.Var]bool{}}}
}

// inner returns the scope of a closure: variables that it binds are bound only in it.
func (s *Scope) inner() *Scope {
	return &Scope{variables: variables{s.c, s.slots, maps.Clone(s.bound)}, at: s.at}
}

// bind gives a variable its slot, and marks it as bound.
func (s *variables) bind(v ast.Var) int {
	at, ok := s.slots[v]
	if !ok {
		at = s.c.slot()
		s.slots[v] = at
	}
	s.bound[v] = true
	return at
}

// slotTerms are the terms of the first slots; all programs share them.
var slotTerms = func() (list [128]Term) {
	for i := range list {
		list[i] = func(m *Machine) value.Value { return m.Slots[i] }
	}
	return list
}()

func slotTerm(i int) Term {
	if i < len(slotTerms) {
		return slotTerms[i]
	}
	return func(m *Machine) value.Value { return m.Slots[i] }
}
