package native

import (
	"errors"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// This file has what package why needs besides programs: it compiles the conditions of rules again,
// one by one, and evaluates them in assumed states.

// CompileParts compiles the module of package pkg, as Compile does. Then it calls parts with the
// compilation, to add code to the program. The error is that of parts, or an *ErrUnsupported.
func CompileParts(compiler *ast.Compiler, pkg ast.Ref, parts func(c *Builder) error) (p *Program, err error) {
	err = recoverUnsupported(func(c *Builder) error {
		c.load(compiler, pkg)
		c.module()
		if err := parts(c); err != nil {
			return err
		}
		p = c.program()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Groups returns the rules of the module and those of its libraries that it uses, by name.
func (c *Builder) Groups() map[string]*Group { return c.rules }

// Slots returns the number of slots that the program has so far.
func (c *Builder) Slots() int { return c.prog.slots }

// Name returns the name of the rules: a.b, or data.lib.x.f in a library.
func (g *Group) Name() string { return g.name }

// Kind returns the kind of document that the rules define.
func (g *Group) Kind() Kind { return g.kind }

// Source returns the syntax of the rules, the default rule included.
func (g *Group) Source() []*ast.Rule { return g.src }

// Params returns the slots of a function's parameters.
func (g *Group) Params() []int { return g.params }

// Default returns the value of the default rule. It is undefined without one.
func (g *Group) Default(m *Machine) value.Value {
	if g.defaultTerm == nil {
		return value.Value{}
	}
	return g.defaultTerm(m)
}

// Parameters compiles the patterns of a function's parameters. It returns nil if there are none.
func (s *Scope) Parameters(g *Group, r *ast.Rule) Expr {
	s.params = g.params
	return s.matchHead(r)
}

// Find returns the name of the rules that a reference below data leads to, and the number of its
// parts that name them. ok is false if it leads to no rules. The name is empty if it leads to
// rules of several names.
func (s *variables) Find(ref ast.Ref) (name string, used int, ok bool) {
	n, used := s.c.find(ref)
	if n == nil {
		return "", 0, false
	}
	if len(n.rules) == 0 {
		return "", used, true
	}
	return n.name, used, true
}

// Bound returns a copy of the set of bound variables.
func (s *variables) Bound() map[ast.Var]bool { return maps.Clone(s.bound) }

// IsBound reports whether a variable is bound.
func (s *variables) IsBound(v ast.Var) bool { return s.bound[v] }

// Slot returns the slot of a variable, or -1.
func (s *variables) Slot(v ast.Var) int {
	if at, ok := s.slots[v]; ok {
		return at
	}
	return -1
}

// Input returns the input of the evaluation.
func (m *Machine) Input() value.Value { return m.input }

// Document returns a document under data, as the data source has it.
func (m *Machine) Document(path []string) value.Value {
	if m.data == nil {
		return value.Value{}
	}
	return m.document(path)
}

// SetParams sets the parameters of a function.
func (m *Machine) SetParams(g *Group, args []value.Value) {
	for i, p := range g.params {
		m.Slots[p] = args[i]
	}
}

// Without calls fn as if no rule of a group held. Rules that use the group are evaluated again.
func (m *Machine) Without(g *Group, fn func()) {
	known, done := slices.Clone(m.values), slices.Clone(m.evaluated)
	clear(m.evaluated)
	m.values[g.id], m.evaluated[g.id] = value.Value{}, true
	if g.kind == PartialSet {
		m.values[g.id] = value.SetOf(nil)
	}
	m.forgetCalls()
	fn()
	m.restoreValues(known, done)
}

// Suppose evaluates a condition as if a group had another value: a function for the given
// arguments, any other group at all. The condition does not hold if it fails with an error.
func (m *Machine) Suppose(g *Group, args []value.Value, v value.Value, condition Step) bool {
	if m.Err != nil || m.Work(8+len(m.values)) {
		return false
	}
	known, done := slices.Clone(m.values), slices.Clone(m.evaluated)
	m.forgetCalls()
	if g.kind == Function {
		m.calls[g.id].put(args, v)
	} else {
		m.values[g.id], m.evaluated[g.id] = v, true
	}
	ok := condition(m)
	m.restoreValues(known, done)
	if m.Err != nil && !errors.Is(m.Err, eval.ErrLimit) {
		m.Err = nil // an error of a hypothetical state
		return false
	}
	return ok && m.Err == nil
}

func (m *Machine) restoreValues(known []value.Value, done []bool) {
	copy(m.values, known)
	copy(m.evaluated, done)
	m.forgetCalls()
}

func (m *Machine) forgetCalls() {
	for i := range m.calls {
		m.calls[i].reset()
	}
}
