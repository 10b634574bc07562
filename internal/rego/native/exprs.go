package native

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// expr makes the step of an expression from the step that follows it. Which
// variables it binds is settled when it is made, not when it is applied.
type expr func(next step) step

func pass(next step) step { return next }

func sequence(chain []expr) expr {
	if len(chain) == 1 {
		return chain[0]
	}
	return func(next step) step {
		for i := len(chain) - 1; i >= 0; i-- {
			next = chain[i](next)
		}
		return next
	}
}

// when goes on if cond holds.
func when(cond func(m *machine) bool) expr {
	return func(next step) step {
		return func(m *machine) bool {
			if cond(m) {
				return next(m)
			}
			return m.err != nil
		}
	}
}

// found is the step after the last where one solution is enough.
func found(*machine) bool { return true }

func (s *scope) body(body ast.Body) expr {
	var chain []expr
	for _, e := range body {
		if t, ok := e.Terms.(*ast.Term); ok && !e.Negated && len(e.With) == 0 {
			if b, ok := t.Value.(ast.Boolean); ok && bool(b) {
				continue
			}
		}
		chain = append(chain, s.expr(e))
	}
	if len(chain) == 0 {
		return pass
	}
	return sequence(chain)
}

func (s *scope) expr(e *ast.Expr) expr {
	outer, at := s.at, s.c.at
	s.at, s.c.at = e.Location, e.Location
	x := s.expression(e)
	s.at, s.c.at = outer, at
	return x
}

func (s *scope) expression(e *ast.Expr) expr {
	if len(e.With) > 0 {
		return s.with(e)
	}
	if e.Negated {
		return s.not(ast.NewBody(e.ComplementNoWith()))
	}
	switch t := e.Terms.(type) {
	case []*ast.Term:
		if e.IsEquality() && len(t) == 3 {
			return s.unify(operand{t: t[1]}, operand{t: t[2]})
		}
		return s.callExpr(t)
	case *ast.Term:
		return s.truth(t)
	case *ast.Every:
		return s.every(t)
	case *ast.Not:
		return s.not(t.Body)
	case *ast.LogicalAnd:
		return sequence([]expr{s.once(t.Lhs), s.once(t.Rhs)})
	case *ast.LogicalOr:
		return s.either(t.Lhs, t.Rhs)
	}
	fail("expression %T", e.Terms)
	return nil
}

// truth holds for each value of a term that is not false.
func (s *scope) truth(t *ast.Term) expr {
	if ref, ok := t.Value.(ast.Ref); ok && s.open(t) {
		out := s.c.slot()
		return sequence([]expr{s.walkRef(ref, out), when(func(m *machine) bool { return !m.slots[out].False() })})
	}
	v := s.term(t)
	return when(func(m *machine) bool {
		x := v(m)
		return x.Defined() && !x.False()
	})
}

func (s *scope) not(body ast.Body) expr {
	at := s.c.slot()
	last := found
	if len(body) > 1 {
		// topdown looks for all solutions, and may meet a conflict on the way.
		last = func(m *machine) bool {
			m.slots[at] = value.Bool(true)
			return false
		}
	}
	probe := s.inner().body(body)(last)
	return func(next step) step {
		return func(m *machine) bool {
			if m.tick() {
				return true
			}
			m.slots[at] = value.Value{}
			if probe(m) || m.slots[at].Defined() {
				return m.err != nil
			}
			return next(m)
		}
	}
}

// once holds if a body does, at most one time; what it binds stays inside.
func (s *scope) once(body ast.Body) expr {
	probe := s.inner().body(body)(found)
	return when(func(m *machine) bool { return !m.tick() && probe(m) && m.err == nil })
}

func (s *scope) either(a, b ast.Body) expr {
	left, right := s.inner().body(a)(found), s.inner().body(b)(found)
	return when(func(m *machine) bool {
		return !m.tick() && (left(m) || m.err == nil && right(m)) && m.err == nil
	})
}

func (s *scope) every(e *ast.Every) expr {
	domain := s.term(e.Domain)
	in := s.inner()
	var chain []expr
	k, v := s.c.slot(), s.c.slot()
	if e.Key != nil {
		chain = append(chain, in.match(slotTerm(k), e.Key))
	}
	chain = append(chain, in.match(slotTerm(v), e.Value), in.body(e.Body))
	holds := sequence(chain)(found)
	// A step that stops at the first element for which the body does not hold.
	fails := func(m *machine) bool { return !holds(m) || m.err != nil }
	return func(next step) step {
		return func(m *machine) bool {
			d := domain(m)
			if d.Kind() < value.ArrayKind {
				return m.err != nil
			}
			if iterate(m, d, k, v, fails) {
				return m.err != nil
			}
			return next(m)
		}
	}
}

// iterate runs next with each key and value of a collection in its slots.
func iterate(m *machine, d value.Value, k, v int, next step) bool {
	switch d.Kind() {
	case value.ArrayKind:
		for i, x := range d.Elems() {
			if m.tick() {
				return true
			}
			m.slots[k], m.slots[v] = value.Int(int64(i)), x
			if next(m) {
				return true
			}
		}
	case value.SetKind:
		for _, x := range d.Elems() {
			if m.tick() {
				return true
			}
			m.slots[k], m.slots[v] = x, x
			if next(m) {
				return true
			}
		}
	case value.ObjectKind:
		for i := range d.Len() {
			if m.tick() {
				return true
			}
			p := d.Pair(i)
			m.slots[k], m.slots[v] = p.K, p.V
			if next(m) {
				return true
			}
		}
	}
	return false
}

// operand is one side of an equation: a term of the module, or a value that is
// already there.
type operand struct {
	t  *ast.Term
	ev term
}

// comprehended is the kind of what a comprehension makes; undefined for other
// terms. What is of another kind is not compared with it, in topdown too, save
// what comes from a document under data.
func comprehended(t *ast.Term) value.Kind {
	switch t.Value.(type) {
	case *ast.ArrayComprehension:
		return value.ArrayKind
	case *ast.SetComprehension:
		return value.SetKind
	case *ast.ObjectComprehension:
		return value.ObjectKind
	}
	return value.UndefinedKind
}

func (o operand) ofData() bool {
	return o.isRef() && o.t.Value.(ast.Ref)[0].Equal(ast.DefaultRootDocument)
}

func (o operand) isRef() bool {
	if o.t == nil {
		return false
	}
	_, ok := o.t.Value.(ast.Ref)
	return ok
}

// ready tells that the operand has one value without binding anything.
func (s *scope) ready(o operand) bool { return o.ev != nil || !s.open(o.t) }

func (s *scope) eval(o operand) term {
	if o.ev != nil {
		return o.ev
	}
	return s.term(o.t)
}

// unify makes two sides equal, binding the variables that are not bound yet.
func (s *scope) unify(a, b operand) expr {
	if e, o, ok := s.hoist(a); ok {
		return sequence([]expr{e, s.unify(o, b)})
	}
	if s.ready(a) {
		if e, o, ok := s.settleFirst(a, b); ok {
			return sequence([]expr{e, s.unify(o, b)})
		}
		if e, o, ok := s.hoist(b); ok {
			return sequence([]expr{e, s.unify(a, o)})
		}
		if s.ready(b) {
			return s.same(a, b)
		}
		return s.match(s.eval(a), b.t)
	}
	if e, o, ok := s.hoist(b); ok {
		return sequence([]expr{e, s.unify(a, o)})
	}
	if s.ready(b) {
		return s.match(s.eval(b), a.t)
	}
	return s.patterns(a.t, b.t)
}

// hoist walks a reference that has unbound variables, so that its value stands in a slot.
func (s *scope) hoist(o operand) (expr, operand, bool) {
	if o.ev != nil {
		return nil, o, false
	}
	ref, ok := o.t.Value.(ast.Ref)
	if !ok || !s.open(o.t) {
		return nil, o, false
	}
	out := s.c.slot()
	return s.walkRef(ref, out), operand{ev: slotTerm(out)}, true
}

// settleFirst evaluates a reference on the left before one on the right that
// is walked, as topdown does: it may be a rule with an error in it.
func (s *scope) settleFirst(a, b operand) (expr, operand, bool) {
	if a.t == nil || b.t == nil || !s.open(b.t) {
		return nil, a, false
	}
	if _, ok := a.t.Value.(ast.Ref); !ok {
		return nil, a, false
	}
	v, at := s.term(a.t), s.c.slot()
	return when(func(m *machine) bool {
		m.slots[at] = v(m)
		return m.slots[at].Defined()
	}), operand{ev: slotTerm(at)}, true
}

func (s *scope) same(a, b operand) expr {
	// topdown follows references before it evaluates comprehensions, which may end
	// with an error.
	if a.t != nil && (ast.IsConstant(a.t.Value) || ast.IsComprehension(a.t.Value) && b.isRef()) {
		a, b = b, a
	}
	x := s.eval(a)
	if b.t != nil {
		if _, ok := b.t.Value.(ast.String); ok {
			want := s.c.constant(b.t)
			return when(func(m *machine) bool {
				got, ok := x(m).Str()
				return ok && got == m.prog.text(want)
			})
		}
	}
	y := s.eval(b)
	if b.t != nil {
		if kind := comprehended(b.t); kind != value.UndefinedKind && !a.ofData() {
			return when(func(m *machine) bool {
				v := x(m)
				return (v.Kind() == kind || v.Kind() == value.SetKind) && m.equal(v, y(m))
			})
		}
	}
	return when(func(m *machine) bool {
		v := x(m)
		return v.Defined() && m.equal(v, y(m))
	})
}

// patterns unifies two arrays or two objects that both hold unbound variables.
func (s *scope) patterns(a, b *ast.Term) expr {
	left, ok := flatten(nil, a, b)
	if !ok { // of two shapes: they never are one
		s.bindAll(a)
		s.bindAll(b)
		return when(func(*machine) bool { return false })
	}
	return s.pairs(left)
}

// flatten takes two patterns apart to pairs of which one is no pattern.
func flatten(to [][2]*ast.Term, a, b *ast.Term) ([][2]*ast.Term, bool) {
	switch x := a.Value.(type) {
	case *ast.Array:
		y, ok := b.Value.(*ast.Array)
		if !ok {
			break
		}
		if x.Len() != y.Len() {
			return nil, false
		}
		for i := range x.Len() {
			if to, ok = flatten(to, x.Elem(i), y.Elem(i)); !ok {
				return nil, false
			}
		}
		return to, true
	case ast.Object:
		y, ok := b.Value.(ast.Object)
		if !ok {
			break
		}
		if x.Len() != y.Len() {
			return nil, false
		}
		for _, k := range x.Keys() {
			v := y.Get(k)
			if v == nil && ast.IsConstant(k.Value) {
				return nil, false
			}
			if v == nil {
				fail("unification of %v and %v", a, b)
			}
			if to, ok = flatten(to, x.Get(k), v); !ok {
				return nil, false
			}
		}
		return to, true
	}
	if composite(a) && composite(b) {
		return nil, false
	}
	return append(to, [2]*ast.Term{a, b}), true
}

// composite tells that a term is written as an array or object.
func composite(t *ast.Term) bool {
	switch t.Value.(type) {
	case *ast.Array, ast.Object:
		return true
	}
	return false
}

// bindAll calls all variables of a term bound, which nothing will read.
func (s *scope) bindAll(t *ast.Term) {
	vis := ast.NewVarVisitor().WithParams(ast.VarVisitorParams{SkipClosures: true, SkipRefHead: true})
	vis.Walk(t)
	for v := range vis.Vars() {
		s.bind(v)
	}
}

// pairs unifies what can be unified first: one pair's variables may be bound by another.
func (s *scope) pairs(left [][2]*ast.Term) expr {
	var chain []expr
	for len(left) > 0 {
		at := slices.IndexFunc(left, func(p [2]*ast.Term) bool { return s.settled(p[0]) || s.settled(p[1]) })
		if at < 0 {
			fail("unification of two unbound variables")
		}
		p := left[at]
		left = slices.Delete(slices.Clone(left), at, at+1)
		chain = append(chain, s.unify(operand{t: p[0]}, operand{t: p[1]}))
	}
	if len(chain) == 0 {
		return pass
	}
	return sequence(chain)
}

// settled tells that a term has values without the help of what it is unified with.
func (s *scope) settled(t *ast.Term) bool {
	if _, ok := t.Value.(ast.Ref); ok {
		return true
	}
	return !s.open(t)
}

// match takes a value apart by a pattern.
func (s *scope) match(src term, t *ast.Term) expr {
	if !s.open(t) {
		return s.same(operand{ev: src}, operand{t: t})
	}
	switch x := t.Value.(type) {
	case ast.Var:
		at := s.bind(x)
		return when(func(m *machine) bool {
			v := src(m)
			m.slots[at] = v
			return v.Defined()
		})
	case ast.Ref:
		out := s.c.slot()
		return sequence([]expr{s.walkRef(x, out), s.same(operand{ev: src}, operand{ev: slotTerm(out)})})
	case *ast.Array:
		return s.matchArray(src, x)
	case ast.Object:
		return s.matchObject(src, x)
	}
	fail("pattern %v", t)
	return nil
}

func (s *scope) matchArray(src term, x *ast.Array) expr {
	at, n := s.c.slot(), x.Len()
	chain := []expr{when(func(m *machine) bool {
		v := src(m)
		m.slots[at] = v
		return v.Kind() == value.ArrayKind && v.Len() == n
	})}
	for i := range n {
		chain = append(chain, s.match(func(m *machine) value.Value { return m.slots[at].Index(i) }, x.Elem(i)))
	}
	return sequence(chain)
}

func (s *scope) matchObject(src term, x ast.Object) expr {
	at, n := s.c.slot(), x.Len()
	chain := []expr{when(func(m *machine) bool {
		v := src(m)
		m.slots[at] = v
		return v.Kind() == value.ObjectKind && v.Len() == n
	})}
	for _, k := range x.Keys() {
		if s.open(k) {
			fail("unbound key in a pattern")
		}
		key := s.term(k)
		chain = append(chain, s.match(func(m *machine) value.Value { return m.slots[at].Lookup(key(m)) }, x.Get(k)))
	}
	return sequence(chain)
}
