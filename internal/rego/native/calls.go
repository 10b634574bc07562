package native

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/builtin"
	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// callExpr compiles a call that is an expression of its own, with or without a last operand that
// receives the result.
func (s *Scope) callExpr(t []*ast.Term) Expr {
	op, ok := t[0].Value.(ast.Ref)
	if !ok {
		fail("call of %v", t[0])
	}
	name := op.String()
	if _, ok := s.c.functions[name]; ok {
		return s.mocked(name, t, s.c.arity(op))
	}
	return s.call(t)
}

func (c *Builder) arity(op ast.Ref) int {
	if op[0].Equal(ast.DefaultRootDocument) {
		g := c.function(op)
		if g == nil {
			fail("function %v", op)
		}
		return len(g.params)
	}
	b := ast.BuiltinMap[op.String()]
	if b == nil {
		fail("built-in %v", op)
	}
	return b.Decl.Arity()
}

func (s *Scope) call(t []*ast.Term) Expr {
	op, args := t[0].Value.(ast.Ref), t[1:]
	n := s.c.arity(op)
	if !op[0].Equal(ast.DefaultRootDocument) {
		name := op.String()
		if name == ast.WalkBuiltin.Name {
			return s.walk(args)
		}
		if ast.BuiltinMap[name].Decl.NamedFuncArgs().Variadic != nil {
			fail("built-in %s", name)
		}
		if cond := (&builtinCall{name, args}).condition(s, n); cond != nil {
			return when(cond)
		}
	}
	if len(args) < n || len(args) > n+1 {
		fail("%v with %d operands", op, len(args))
	}
	return s.result(s.callTerm(op, args[:n]), args[n:])
}

func (s *Scope) callTerm(op ast.Ref, args []*ast.Term) Term {
	if op[0].Equal(ast.DefaultRootDocument) {
		return s.functionCall(op, args)
	}
	return (&builtinCall{op.String(), args}).term(s)
}

// result unifies the value of a call with its last operand. Without one, the value must not be
// false.
func (s *Scope) result(call Term, out []*ast.Term) Expr {
	if len(out) == 0 {
		return when(func(m *Machine) bool {
			v := call(m)
			return v.Defined() && !v.False()
		})
	}
	if _, ok := out[0].Value.(ast.Var); ok {
		return s.match(call, out[0])
	}
	// The call is evaluated once, even if the pattern reads the value in several places.
	at := s.c.slot()
	return Sequence([]Expr{
		when(func(m *Machine) bool {
			v := call(m)
			m.Slots[at] = v
			return v.Defined()
		}),
		s.match(slotTerm(at), out[0]),
	})
}

func (s *Scope) functionCall(op ast.Ref, args []*ast.Term) Term {
	g := s.c.function(op)
	if g == nil || len(args) != len(g.params) {
		fail("function %v", op)
	}
	s.c.build(g)
	ts := s.Terms(args)
	n := len(ts)
	if n > maxArity {
		return func(m *Machine) value.Value {
			a, ok := gather(m, ts)
			if !ok {
				return value.Value{}
			}
			return g.call(m, a)
		}
	}
	return func(m *Machine) value.Value {
		var a [maxArity]value.Value
		for i, t := range ts {
			if a[i] = t(m); !a[i].Defined() {
				return value.Value{}
			}
		}
		return g.call(m, a[:n])
	}
}

// maxArity is the largest number of arguments of a call that needs no slice on the heap.
const maxArity = 8

// condition compiles a comparison that needs no result, or returns nil.
func (b *builtinCall) condition(s *Scope, arity int) func(m *Machine) bool {
	if len(b.args) != arity || arity != 2 {
		return nil
	}
	test, count, ok := builtin.Comparison(b.name)
	if !ok {
		return nil
	}
	x, y := s.Term(b.args[0]), s.Term(b.args[1])
	return func(m *Machine) bool {
		a := x(m)
		if !a.Defined() {
			return false
		}
		b := y(m)
		if !b.Defined() || count(&m.Budget, a, b) {
			return false
		}
		return test(a, b)
	}
}

type builtinCall struct {
	name string
	args []*ast.Term
}

// term compiles the value of the call. It uses our own implementation if there is one and the
// operands have the usual types, and OPA's in all other cases.
func (b *builtinCall) term(s *Scope) Term {
	name := b.name
	if t := b.specialise(s); t != nil {
		return t
	}
	ts := s.Terms(b.args)
	if test, count, ok := builtin.Comparison(name); ok && len(ts) == 2 {
		x, y := ts[0], ts[1]
		return func(m *Machine) value.Value {
			a, b := x(m), y(m)
			if !a.Defined() || !b.Defined() || count(&m.Budget, a, b) {
				return value.Value{}
			}
			return value.Bool(test(a, b))
		}
	}
	slow := b.bridge(s)
	switch len(ts) {
	case 1:
		if fast := builtin.Unary(name); fast != nil {
			return unaryTerm(ts[0], fast, slow)
		}
	case 2:
		if fast := builtin.Binary(name); fast != nil {
			return binaryTerm(ts[0], ts[1], fast, slow)
		}
	case 3:
		if fast := builtin.Ternary(name); fast != nil {
			return ternaryTerm(ts[0], ts[1], ts[2], fast, slow)
		}
	}
	many := builtin.Nary(name)
	return func(m *Machine) value.Value {
		args := make([]value.Value, len(ts))
		for i, t := range ts {
			if args[i] = t(m); !args[i].Defined() {
				return value.Value{}
			}
		}
		if many != nil {
			if v, ok := many(&m.Memory, args); ok {
				return v
			}
		}
		return slow(&m.Memory, args...)
	}
}

// bridge returns a function that calls OPA's implementation of the built-in.
func (b *builtinCall) bridge(s *Scope) builtin.Bridged {
	slow, ok := builtin.Bridge(b.name, s.c.place(s.at))
	if !ok {
		fail("the built-in %s is not offered", b.name)
	}
	return slow
}

func unaryTerm(x Term, fast builtin.One, slow builtin.Bridged) Term {
	return func(m *Machine) value.Value {
		a := x(m)
		if !a.Defined() {
			return a
		}
		if v, ok := fast(&m.Memory, a); ok {
			return v
		}
		return slow(&m.Memory, a)
	}
}

func binaryTerm(x, y Term, fast builtin.Two, slow builtin.Bridged) Term {
	return func(m *Machine) value.Value {
		a := x(m)
		if !a.Defined() {
			return a
		}
		b := y(m)
		if !b.Defined() {
			return b
		}
		if v, ok := fast(&m.Memory, a, b); ok {
			return v
		}
		return slow(&m.Memory, a, b)
	}
}

func ternaryTerm(x, y, z Term, fast builtin.Three, slow builtin.Bridged) Term {
	return func(m *Machine) value.Value {
		a, b, c := x(m), y(m), z(m)
		if !a.Defined() || !b.Defined() || !c.Defined() {
			return value.Value{}
		}
		if v, ok := fast(&m.Memory, a, b, c); ok {
			return v
		}
		return slow(&m.Memory, a, b, c)
	}
}

// walk compiles walk(x, [path, value]), which has a solution for each part of x.
func (s *Scope) walk(args []*ast.Term) Expr {
	if len(args) != 2 {
		fail("walk without a result")
	}
	from := s.Term(args[0])
	arr, ok := args[1].Value.(*ast.Array)
	path, val := s.c.slot(), s.c.slot()
	noPath := false
	keys := s.walkedKeys(args[1])
	var pattern Expr
	if ok && arr.Len() == 2 {
		v, isVar := arr.Elem(0).Value.(ast.Var)
		noPath = isVar && v.IsWildcard()
		var first Expr = pass
		if noPath {
			s.bound[v] = true // nothing can read a wildcard
		} else {
			first = s.match(slotTerm(path), arr.Elem(0))
		}
		pattern = Sequence([]Expr{first, s.match(slotTerm(val), arr.Elem(1))})
	} else {
		pattern = s.match(func(m *Machine) value.Value { return value.Array(m.Slots[path], m.Slots[val]) }, args[1])
	}
	return func(next Step) Step {
		w := &walker{path: path, val: val, noPath: noPath, next: pattern(next)}
		return func(m *Machine) bool {
			v := from(m)
			return v.Defined() && w.visit(m, nil, v, keys(m)) || m.Err != nil
		}
	}
}

// walkedKeys returns the keys that the path of a pattern names, with undefined for those that the
// pattern binds. A walk looks these keys up, as a reference does: an index of 1e0 matches nothing.
func (s *Scope) walkedKeys(pattern *ast.Term) func(m *Machine) []value.Value {
	whole := func(t *ast.Term, path func(v value.Value) value.Value) func(m *Machine) []value.Value {
		v := s.Term(t)
		return func(m *Machine) []value.Value {
			if p := path(v(m)); p.Kind() == value.ArrayKind {
				return p.Elems()
			}
			return nil
		}
	}
	if !s.Open(pattern) {
		return whole(pattern, func(v value.Value) value.Value {
			if v.Kind() != value.ArrayKind || v.Len() != 2 {
				return value.Value{}
			}
			return v.Index(0)
		})
	}
	if arr, ok := pattern.Value.(*ast.Array); ok && arr.Len() == 2 {
		if !s.Open(arr.Elem(0)) {
			return whole(arr.Elem(0), func(v value.Value) value.Value { return v })
		}
		if path, ok := arr.Elem(0).Value.(*ast.Array); ok {
			return someKeys(s, path)
		}
	}
	return func(*Machine) []value.Value { return nil }
}

func someKeys(s *Scope, path *ast.Array) func(m *Machine) []value.Value {
	terms := make([]Term, path.Len())
	for i := range terms {
		if !s.Open(path.Elem(i)) {
			terms[i] = s.Term(path.Elem(i))
		}
	}
	return func(m *Machine) []value.Value {
		keys := make([]value.Value, len(terms))
		for i, t := range terms {
			if t != nil {
				keys[i] = t(m)
			}
		}
		return keys
	}
}

type walker struct {
	path, val int
	noPath    bool
	next      Step
}

// visit walks v and its parts. keys are the keys that the rest of the path must have; undefined
// matches any key.
func (w *walker) visit(m *Machine, path []value.Value, v value.Value, keys []value.Value) bool {
	if m.Tick() {
		return true
	}
	if len(keys) > 0 {
		return w.parts(m, path, v, keys[0], keys[1:])
	}
	if !w.noPath {
		if !m.Alloc(eval.ValueBytes*len(path)) || m.Work(len(path)) {
			return true
		}
		m.Slots[w.path] = value.Array(append([]value.Value(nil), path...)...)
	}
	m.Slots[w.val] = v
	if w.next(m) {
		return true
	}
	return w.parts(m, path, v, value.Value{}, nil)
}

func (w *walker) parts(m *Machine, path []value.Value, v, key value.Value, keys []value.Value) bool {
	if key.Defined() {
		x := v.Lookup(key)
		return x.Defined() && w.visit(m, append(path, key), x, keys)
	}
	switch v.Kind() {
	case value.ArrayKind:
		for i, x := range v.Elems() {
			if w.visit(m, append(path, value.Int(int64(i))), x, keys) {
				return true
			}
		}
	case value.SetKind:
		for _, x := range v.Elems() {
			if w.visit(m, append(path, x), x, keys) {
				return true
			}
		}
	case value.ObjectKind:
		for i := range v.Len() {
			p := v.Pair(i)
			if w.visit(m, append(path, p.K), p.V, keys) {
				return true
			}
		}
	}
	return false
}
