package native

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Expr makes the step of an expression from the step that follows it. It is fixed at compile time
// which variables the expression binds.
type Expr func(next Step) Step

func pass(next Step) Step { return next }

// Sequence combines several expressions, which must all hold. An empty sequence always holds.
func Sequence(chain []Expr) Expr {
	if len(chain) == 1 {
		return chain[0]
	}
	return func(next Step) Step {
		for _, expr := range slices.Backward(chain) {
			next = expr(next)
		}
		return next
	}
}

// when continues if cond holds.
func when(cond func(m *Machine) bool) Expr {
	return func(next Step) Step {
		return func(m *Machine) bool {
			if cond(m) {
				return next(m)
			}
			return m.Err != nil
		}
	}
}

// StopAtFirst is the last step if one solution is enough.
func StopAtFirst(*Machine) bool { return true }

func (s *Scope) body(body ast.Body) Expr {
	var chain []Expr
	for _, e := range body {
		if t, ok := e.Terms.(*ast.Term); ok && !e.Negated && len(e.With) == 0 {
			if b, ok := t.Value.(ast.Boolean); ok && bool(b) {
				continue
			}
		}
		chain = append(chain, s.Expr(e))
	}
	if len(chain) == 0 {
		return pass
	}
	return Sequence(chain)
}

// Expr compiles an expression, and marks the variables that it binds.
func (s *Scope) Expr(e *ast.Expr) Expr {
	outer, at := s.at, s.c.at
	s.at, s.c.at = e.Location, e.Location
	x := s.expression(e)
	s.at, s.c.at = outer, at
	return x
}

func (s *Scope) expression(e *ast.Expr) Expr {
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
		return Sequence([]Expr{s.once(t.Lhs), s.once(t.Rhs)})
	case *ast.LogicalOr:
		return s.either(t.Lhs, t.Rhs)
	}
	fail("expression %T", e.Terms)
	return nil
}

// truth has a solution for each value of a term that is not false.
func (s *Scope) truth(t *ast.Term) Expr {
	if ref, ok := t.Value.(ast.Ref); ok && s.Open(t) {
		out := s.c.slot()
		return Sequence([]Expr{s.walkRef(ref, out), when(func(m *Machine) bool { return !m.Slots[out].False() })})
	}
	v := s.Term(t)
	return when(func(m *Machine) bool {
		x := v(m)
		return x.Defined() && !x.False()
	})
}

func (s *Scope) not(body ast.Body) Expr {
	at := s.c.slot()
	last := StopAtFirst
	if len(body) > 1 {
		// topdown looks for all solutions, and may find a conflict while it does.
		last = func(m *Machine) bool {
			m.Slots[at] = value.Bool(true)
			return false
		}
	}
	probe := s.inner().body(body)(last)
	return func(next Step) Step {
		return func(m *Machine) bool {
			if m.Tick() {
				return true
			}
			m.Slots[at] = value.Value{}
			if probe(m) || m.Slots[at].Defined() {
				return m.Err != nil
			}
			return next(m)
		}
	}
}

// once holds if a body has a solution, and then only once. What the body binds is local to it.
func (s *Scope) once(body ast.Body) Expr {
	probe := s.inner().body(body)(StopAtFirst)
	return when(func(m *Machine) bool { return !m.Tick() && probe(m) && m.Err == nil })
}

func (s *Scope) either(a, b ast.Body) Expr {
	left, right := s.inner().body(a)(StopAtFirst), s.inner().body(b)(StopAtFirst)
	return when(func(m *Machine) bool {
		return !m.Tick() && (left(m) || m.Err == nil && right(m)) && m.Err == nil
	})
}

func (s *Scope) every(e *ast.Every) Expr {
	domain := s.Term(e.Domain)
	in := s.inner()
	var chain []Expr
	k, v := s.c.slot(), s.c.slot()
	if e.Key != nil {
		chain = append(chain, in.match(slotTerm(k), e.Key))
	}
	chain = append(chain, in.match(slotTerm(v), e.Value), in.body(e.Body))
	holds := Sequence(chain)(StopAtFirst)
	// Stop at the first element for which the body does not hold.
	fails := func(m *Machine) bool { return !holds(m) || m.Err != nil }
	return func(next Step) Step {
		return func(m *Machine) bool {
			d := domain(m)
			if d.Kind() < value.ArrayKind {
				return m.Err != nil
			}
			if iterate(m, d, k, v, fails) {
				return m.Err != nil
			}
			return next(m)
		}
	}
}

// iterate runs next for each key and value of a collection, which it stores in slots k and v.
func iterate(m *Machine, d value.Value, k, v int, next Step) bool {
	switch d.Kind() {
	case value.ArrayKind:
		for i, x := range d.Elems() {
			if m.Tick() {
				return true
			}
			m.Slots[k], m.Slots[v] = value.Int(int64(i)), x
			if next(m) {
				return true
			}
		}
	case value.SetKind:
		for _, x := range d.Elems() {
			if m.Tick() {
				return true
			}
			m.Slots[k], m.Slots[v] = x, x
			if next(m) {
				return true
			}
		}
	case value.ObjectKind:
		for i := range d.Len() {
			if m.Tick() {
				return true
			}
			p := d.Pair(i)
			m.Slots[k], m.Slots[v] = p.K, p.V
			if next(m) {
				return true
			}
		}
	}
	return false
}

// operand is one side of an equation: a term of the module, or a value that is already computed.
type operand struct {
	t  *ast.Term
	ev Term
}

// comprehended returns the kind of value that a comprehension makes, and undefined for other terms.
// Like topdown, native does not compare a comprehension with a value of another kind, unless that
// value comes from a document under data.
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

// isReady reports whether the operand has one value without binding anything.
func (o operand) isReady(s *Scope) bool { return o.ev != nil || !s.Open(o.t) }

func (o operand) eval(s *Scope) Term {
	if o.ev != nil {
		return o.ev
	}
	return s.Term(o.t)
}

// unify makes two sides equal, and binds the variables that are not bound yet.
func (s *Scope) unify(a, b operand) Expr {
	if e, o, ok := a.hoist(s); ok {
		return Sequence([]Expr{e, s.unify(o, b)})
	}
	if a.isReady(s) {
		if e, o, ok := a.evaluateBefore(s, b); ok {
			return Sequence([]Expr{e, s.unify(o, b)})
		}
		if e, o, ok := b.hoist(s); ok {
			return Sequence([]Expr{e, s.unify(a, o)})
		}
		if b.isReady(s) {
			return s.same(a, b)
		}
		return s.match(a.eval(s), b.t)
	}
	if e, o, ok := b.hoist(s); ok {
		return Sequence([]Expr{e, s.unify(a, o)})
	}
	if b.isReady(s) {
		return s.match(b.eval(s), a.t)
	}
	return s.patterns(a.t, b.t)
}

// hoist iterates over a reference with unbound variables, and stores its value in a slot.
func (o operand) hoist(s *Scope) (Expr, operand, bool) {
	if o.ev != nil {
		return nil, o, false
	}
	ref, ok := o.t.Value.(ast.Ref)
	if !ok || !s.Open(o.t) {
		return nil, o, false
	}
	out := s.c.slot()
	return s.walkRef(ref, out), operand{ev: slotTerm(out)}, true
}

// evaluateBefore evaluates a reference on the left before it iterates over one on the right, as
// topdown does: the left one may be a rule with an error.
func (o operand) evaluateBefore(s *Scope, right operand) (Expr, operand, bool) {
	if o.t == nil || right.t == nil || !s.Open(right.t) {
		return nil, o, false
	}
	if _, ok := o.t.Value.(ast.Ref); !ok {
		return nil, o, false
	}
	v, at := s.Term(o.t), s.c.slot()
	return when(func(m *Machine) bool {
		m.Slots[at] = v(m)
		return m.Slots[at].Defined()
	}), operand{ev: slotTerm(at)}, true
}

func (s *Scope) same(a, b operand) Expr {
	// topdown follows references before it evaluates comprehensions, which may fail.
	if a.t != nil && (ast.IsConstant(a.t.Value) || ast.IsComprehension(a.t.Value) && b.isRef()) {
		a, b = b, a
	}
	x := a.eval(s)
	if b.t != nil {
		if _, ok := b.t.Value.(ast.String); ok {
			want := s.c.addConstant(b.t)
			return when(func(m *Machine) bool {
				got, ok := x(m).Str()
				return ok && got == m.prog.text(want)
			})
		}
	}
	y := b.eval(s)
	if b.t != nil {
		if kind := comprehended(b.t); kind != value.UndefinedKind && !a.ofData() {
			return when(func(m *Machine) bool {
				v := x(m)
				return (v.Kind() == kind || v.Kind() == value.SetKind) && m.Equal(v, y(m))
			})
		}
	}
	return when(func(m *Machine) bool {
		v := x(m)
		return v.Defined() && m.Equal(v, y(m))
	})
}

// patterns unifies two arrays or two objects that both contain unbound variables.
func (s *Scope) patterns(a, b *ast.Term) Expr {
	left, ok := flatten(nil, a, b)
	if !ok { // different shapes never match
		s.bindAll(a)
		s.bindAll(b)
		return when(func(*Machine) bool { return false })
	}
	return s.pairs(left)
}

// flatten breaks two patterns down into pairs; at least one side of each pair is not a pattern.
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

func composite(t *ast.Term) bool {
	switch t.Value.(type) {
	case *ast.Array, ast.Object:
		return true
	}
	return false
}

// bindAll marks all variables of a term as bound. Nothing reads them.
func (s *variables) bindAll(t *ast.Term) {
	vis := ast.NewVarVisitor().WithParams(ast.VarVisitorParams{SkipClosures: true, SkipRefHead: true})
	vis.Walk(t)
	for v := range vis.Vars() {
		s.bind(v)
	}
}

// pairs unifies each pair as soon as one of its sides has a value: unifying one pair may bind the
// variables of another.
func (s *Scope) pairs(left [][2]*ast.Term) Expr {
	var chain []Expr
	for len(left) > 0 {
		at := slices.IndexFunc(left, func(p [2]*ast.Term) bool { return s.hasValue(p[0]) || s.hasValue(p[1]) })
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
	return Sequence(chain)
}

// hasValue reports whether a term has values without the other side.
func (s *variables) hasValue(t *ast.Term) bool {
	if _, ok := t.Value.(ast.Ref); ok {
		return true
	}
	return !s.Open(t)
}

// match destructures a value by a pattern.
func (s *Scope) match(src Term, t *ast.Term) Expr {
	if !s.Open(t) {
		return s.same(operand{ev: src}, operand{t: t})
	}
	switch x := t.Value.(type) {
	case ast.Var:
		at := s.bind(x)
		return when(func(m *Machine) bool {
			v := src(m)
			m.Slots[at] = v
			return v.Defined()
		})
	case ast.Ref:
		out := s.c.slot()
		return Sequence([]Expr{s.walkRef(x, out), s.same(operand{ev: src}, operand{ev: slotTerm(out)})})
	case *ast.Array:
		return s.matchArray(src, x)
	case ast.Object:
		return s.matchObject(src, x)
	}
	fail("pattern %v", t)
	return nil
}

func (s *Scope) matchArray(src Term, x *ast.Array) Expr {
	at, n := s.c.slot(), x.Len()
	chain := []Expr{when(func(m *Machine) bool {
		v := src(m)
		m.Slots[at] = v
		return v.Kind() == value.ArrayKind && v.Len() == n
	})}
	for i := range n {
		chain = append(chain, s.match(func(m *Machine) value.Value { return m.Slots[at].Index(i) }, x.Elem(i)))
	}
	return Sequence(chain)
}

func (s *Scope) matchObject(src Term, x ast.Object) Expr {
	at, n := s.c.slot(), x.Len()
	chain := []Expr{when(func(m *Machine) bool {
		v := src(m)
		m.Slots[at] = v
		return v.Kind() == value.ObjectKind && v.Len() == n
	})}
	for _, k := range x.Keys() {
		if s.Open(k) {
			fail("unbound key in a pattern")
		}
		key := s.Term(k)
		chain = append(chain, s.match(func(m *Machine) value.Value { return m.Slots[at].Lookup(key(m)) }, x.Get(k)))
	}
	return Sequence(chain)
}
