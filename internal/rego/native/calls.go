package native

import (
	"errors"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// callExpr compiles a call that stands as an expression of its own: with or
// without a last operand that takes the result.
func (s *scope) callExpr(t []*ast.Term) expr {
	op, ok := t[0].Value.(ast.Ref)
	if !ok {
		fail("call of %v", t[0])
	}
	args := t[1:]
	if op[0].Equal(ast.DefaultRootDocument) {
		return s.functionCall(op, args)
	}
	name := op.String()
	b := ast.BuiltinMap[name]
	if b == nil {
		fail("built-in %s", name)
	}
	if name == ast.WalkBuiltin.Name {
		return s.walk(args)
	}
	arity := b.Decl.Arity()
	if b.Decl.NamedFuncArgs().Variadic != nil || len(args) < arity || len(args) > arity+1 {
		fail("built-in %s with %d operands", name, len(args))
	}
	if cond := s.condition(name, args, arity); cond != nil {
		return when(cond)
	}
	return s.result(s.builtin(name, args[:arity]), args[arity:])
}

// result unifies what a call gives with its last operand, or tests it where
// there is none.
func (s *scope) result(call term, out []*ast.Term) expr {
	if len(out) == 0 {
		return when(func(m *machine) bool {
			v := call(m)
			return v.Defined() && !v.False()
		})
	}
	if _, ok := out[0].Value.(ast.Var); ok {
		return s.match(call, out[0])
	}
	// Evaluated once, even where the pattern looks at it in several places.
	at := s.c.slot()
	return sequence([]expr{
		when(func(m *machine) bool {
			v := call(m)
			m.slots[at] = v
			return v.Defined()
		}),
		s.match(slotTerm(at), out[0]),
	})
}

func (s *scope) functionCall(op ast.Ref, args []*ast.Term) expr {
	g, used := s.c.find(op)
	if g == nil || used != len(op) || g.kind != function || len(args) < len(g.params) || len(args) > len(g.params)+1 {
		fail("function %v", op)
	}
	s.c.build(g)
	n := len(g.params)
	if slices.ContainsFunc(args[:n], s.loose) {
		fail("call with a set of variables") // the function might iterate over it
	}
	s.taint = g.loose
	defer func() { s.taint = false }()
	if len(args) > n {
		// topdown unifies the result with the head before the body runs: only
		// with a variable that is unbound does that come to the same.
		if v, ok := args[n].Value.(ast.Var); !ok || s.bound[v] {
			fail("call of %v with a bound result", op)
		}
	}
	if n > maxArity {
		fail("function of %d arguments", n)
	}
	ts := s.terms(args[:n])
	return s.result(func(m *machine) value.Value {
		var a [maxArity]value.Value
		for i, t := range ts {
			if a[i] = t(m); !a[i].Defined() {
				return value.Value{}
			}
		}
		return g.call(m, a[:n])
	}, args[n:])
}

const maxArity = 8

// condition compiles the calls that only test, for which a result need not be made.
func (s *scope) condition(name string, args []*ast.Term, arity int) func(m *machine) bool {
	if len(args) != arity || arity != 2 {
		return nil
	}
	test, ok := comparisons[name]
	if !ok {
		return nil
	}
	x, y := s.term(args[0]), s.term(args[1])
	return func(m *machine) bool {
		a := x(m)
		if !a.Defined() {
			return false
		}
		b := y(m)
		if !b.Defined() || deep(m, a, b) {
			return false
		}
		return test(a, b)
	}
}

// deep counts the work of a comparison; true means stop.
func deep(m *machine, a, b value.Value) bool {
	if a.Kind() < value.ArrayKind || b.Kind() < value.ArrayKind {
		return false
	}
	return m.work(int(min(a.Size(), b.Size()) >> 4))
}

// builtin compiles a call of a built-in: by our own implementation where we
// have one and its operands are of the usual types, by OPA's in all other cases.
func (s *scope) builtin(name string, args []*ast.Term) term {
	if t := s.special(name, args); t != nil {
		return t
	}
	ts := s.terms(args)
	if test, ok := comparisons[name]; ok {
		x, y := ts[0], ts[1]
		return func(m *machine) value.Value {
			a, b := x(m), y(m)
			if !a.Defined() || !b.Defined() || deep(m, a, b) {
				return value.Value{}
			}
			return value.Bool(test(a, b))
		}
	}
	slow := s.bridge(name)
	switch len(ts) {
	case 1:
		if fast, ok := unary[name]; ok {
			return unaryTerm(ts[0], fast, slow)
		}
	case 2:
		if fast, ok := binary[name]; ok {
			return binaryTerm(ts[0], ts[1], fast, slow)
		}
	case 3:
		if fast, ok := ternary[name]; ok {
			return ternaryTerm(ts[0], ts[1], ts[2], fast, slow)
		}
	}
	return func(m *machine) value.Value {
		args := make([]value.Value, len(ts))
		for i, t := range ts {
			if args[i] = t(m); !args[i].Defined() {
				return value.Value{}
			}
		}
		return slow(m, args...)
	}
}

type slowFunc func(m *machine, args ...value.Value) value.Value

func unaryTerm(x term, fast func(*machine, value.Value) (value.Value, bool), slow slowFunc) term {
	return func(m *machine) value.Value {
		a := x(m)
		if !a.Defined() {
			return a
		}
		if v, ok := fast(m, a); ok {
			return v
		}
		return slow(m, a)
	}
}

func binaryTerm(x, y term, fast func(m *machine, a, b value.Value) (value.Value, bool), slow slowFunc) term {
	return func(m *machine) value.Value {
		a := x(m)
		if !a.Defined() {
			return a
		}
		b := y(m)
		if !b.Defined() {
			return b
		}
		if v, ok := fast(m, a, b); ok {
			return v
		}
		return slow(m, a, b)
	}
}

func ternaryTerm(x, y, z term, fast func(m *machine, a, b, c value.Value) (value.Value, bool), slow slowFunc) term {
	return func(m *machine) value.Value {
		a, b, c := x(m), y(m), z(m)
		if !a.Defined() || !b.Defined() || !c.Defined() {
			return value.Value{}
		}
		if v, ok := fast(m, a, b, c); ok {
			return v
		}
		return slow(m, a, b, c)
	}
}

// bridge calls OPA's implementation of a built-in on converted operands. An
// error of the built-in makes the expression undefined, as it does in topdown,
// unless the environment is strict.
func (s *scope) bridge(name string) slowFunc {
	s.c.risk = max(s.c.risk, strict)
	if !bridged[name] {
		if hasFast(name) {
			return func(m *machine, _ ...value.Value) value.Value {
				if m.env.Strict {
					m.fail(&ErrUnsupported{"an error of a built-in"})
				}
				return value.Value{}
			}
		}
		fail("built-in %s", name)
	}
	f := topdown.GetBuiltin(name)
	if f == nil {
		fail("built-in %s", name)
	}
	guard := guards[name]
	return func(m *machine, args ...value.Value) value.Value {
		if m.err != nil {
			return value.Value{}
		}
		size := 0
		for _, a := range args {
			size += int(a.Size())
		}
		if guard != nil {
			size += guard(args)
		}
		if size > maxBridged || !m.alloc(4*size) || m.work(16+size>>3) {
			m.fail(ErrLimit)
			return value.Value{}
		}
		operands := make([]*ast.Term, len(args))
		for i, a := range args {
			operands[i] = a.Term()
		}
		return m.callOPA(f, operands)
	}
}

// maxBridged bounds operands and expected result of OPA's built-ins, which
// cannot be stopped while they run.
const maxBridged = 2 << 20

func (m *machine) callOPA(f topdown.BuiltinFunc, operands []*ast.Term) (v value.Value) {
	defer func() {
		if r := recover(); r != nil { // a bug of OPA's must not end the process
			m.fail(&ErrUnsupported{fmt.Sprintf("a built-in panicked: %v", r)})
			v = value.Value{}
		}
	}()
	err := f(m.context(), operands, func(out *ast.Term) (err error) {
		if v, err = value.FromAST(out.Value); err != nil {
			m.fail(&ErrUnsupported{"result " + out.String()})
			return nil
		}
		if m.alloc(int(v.Size())) {
			v = m.made(v)
		}
		return nil
	})
	var halt topdown.Halt
	if errors.As(err, &halt) {
		e := &EvalError{Code: topdown.BuiltinErr, Message: halt.Error()}
		var te *topdown.Error
		if errors.As(halt.Err, &te) {
			e.Code, e.Message = te.Code, te.Message
		}
		m.fail(e)
	}
	if err != nil && m.env.Strict {
		m.fail(&ErrUnsupported{"an error of a built-in"})
	}
	if err != nil || m.err != nil {
		return value.Value{}
	}
	return v
}

// walk compiles walk(x, [path, value]), which holds for each part of x.
func (s *scope) walk(args []*ast.Term) expr {
	if len(args) != 2 {
		fail("walk without a result")
	}
	from := s.term(args[0])
	arr, ok := args[1].Value.(*ast.Array)
	path, val := s.c.slot(), s.c.slot()
	noPath := false
	var pattern expr
	if ok && arr.Len() == 2 {
		v, isVar := arr.Elem(0).Value.(ast.Var)
		noPath = isVar && v.IsWildcard()
		var first expr = pass
		if noPath {
			s.bound[v] = true // nothing can read it
		} else {
			first = s.match(slotTerm(path), arr.Elem(0))
		}
		pattern = sequence([]expr{first, s.match(slotTerm(val), arr.Elem(1))})
	} else {
		pattern = s.match(func(m *machine) value.Value { return value.Array(m.slots[path], m.slots[val]) }, args[1])
	}
	return func(next step) step {
		w := &walker{path: path, val: val, noPath: noPath, next: pattern(next)}
		return func(m *machine) bool {
			v := from(m)
			return v.Defined() && w.visit(m, nil, v) || m.err != nil
		}
	}
}

type walker struct {
	path, val int
	noPath    bool
	next      step
}

func (w *walker) visit(m *machine, path []value.Value, v value.Value) bool {
	if m.tick() {
		return true
	}
	if !w.noPath {
		if !m.alloc(valueBytes*len(path)) || m.work(len(path)) {
			return true
		}
		m.slots[w.path] = value.Array(append([]value.Value(nil), path...)...)
	}
	m.slots[w.val] = v
	if w.next(m) {
		return true
	}
	switch v.Kind() {
	case value.ArrayKind:
		for i, x := range v.Elems() {
			if w.visit(m, append(path, value.Int(int64(i))), x) {
				return true
			}
		}
	case value.SetKind:
		for _, x := range v.Elems() {
			if w.visit(m, append(path, x), x) {
				return true
			}
		}
	case value.ObjectKind:
		for i := range v.Len() {
			p := v.Pair(i)
			if w.visit(m, append(path, p.K), p.V) {
				return true
			}
		}
	}
	return false
}
