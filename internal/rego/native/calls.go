package native

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// callExpr compiles a call that stands as an expression of its own: with or
// without a last operand that takes the result.
func (s *scope) callExpr(t []*ast.Term) expr {
	op, ok := t[0].Value.(ast.Ref)
	if !ok {
		fail("call of %v", t[0])
	}
	name := op.String()
	if _, ok := s.c.functions[name]; ok {
		return s.mocked(name, t, s.arity(op))
	}
	return s.call(t)
}

// arity is the number of arguments of a function or built-in.
func (s *scope) arity(op ast.Ref) int {
	if op[0].Equal(ast.DefaultRootDocument) {
		g := s.c.function(op)
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

// call compiles a call of what its operator names.
func (s *scope) call(t []*ast.Term) expr {
	op, args := t[0].Value.(ast.Ref), t[1:]
	n := s.arity(op)
	if !op[0].Equal(ast.DefaultRootDocument) {
		name := op.String()
		if name == ast.WalkBuiltin.Name {
			return s.walk(args)
		}
		if ast.BuiltinMap[name].Decl.NamedFuncArgs().Variadic != nil {
			fail("built-in %s", name)
		}
		if cond := s.condition(name, args, n); cond != nil {
			return when(cond)
		}
	}
	if len(args) < n || len(args) > n+1 {
		fail("%v with %d operands", op, len(args))
	}
	return s.result(s.callTerm(op, args[:n]), args[n:])
}

// callTerm compiles the value of a call.
func (s *scope) callTerm(op ast.Ref, args []*ast.Term) term {
	if op[0].Equal(ast.DefaultRootDocument) {
		return s.functionCall(op, args)
	}
	return s.builtin(op.String(), args)
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

func (s *scope) functionCall(op ast.Ref, args []*ast.Term) term {
	g := s.c.function(op)
	if g == nil || len(args) != len(g.params) {
		fail("function %v", op)
	}
	s.c.build(g)
	ts := s.terms(args)
	n := len(ts)
	if n > maxArity {
		return func(m *machine) value.Value {
			a, ok := gather(m, ts)
			if !ok {
				return value.Value{}
			}
			return g.call(m, a)
		}
	}
	return func(m *machine) value.Value {
		var a [maxArity]value.Value
		for i, t := range ts {
			if a[i] = t(m); !a[i].Defined() {
				return value.Value{}
			}
		}
		return g.call(m, a[:n])
	}
}

// maxArity is the number of arguments up to which a call needs no slice.
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
	x, y, weigh := s.term(args[0]), s.term(args[1]), weigh(name)
	return func(m *machine) bool {
		a := x(m)
		if !a.Defined() {
			return false
		}
		b := y(m)
		if !b.Defined() || weigh(m, a, b) {
			return false
		}
		return test(a, b)
	}
}

// deep counts the work of a comparison; true means stop.
func deep(m *machine, a, b value.Value) bool {
	if a.Kind() < value.StringKind || a.Kind() != b.Kind() {
		return false
	}
	if n := min(a.Size(), b.Size()); n > 64 {
		return m.work(int(n >> 5))
	}
	return false
}

// searched counts the work of looking for a value in a collection.
func searched(m *machine, x, coll value.Value) bool {
	switch coll.Kind() {
	case value.SetKind:
		return m.work(int(x.Size()>>5) * log2(coll.Len()))
	case value.ArrayKind, value.ObjectKind:
		n := coll.Len()
		if x.Kind() >= value.StringKind {
			n += int(min(uint64(x.Size())*uint64(n), uint64(coll.Size())) >> 5)
		}
		return m.work(n >> 2)
	}
	return false
}

// weigh is how the work of a comparison is counted.
func weigh(name string) func(m *machine, a, b value.Value) bool {
	if name == ast.Member.Name {
		return searched
	}
	return deep
}

// builtin compiles a call of a built-in: by our own implementation where we
// have one and its operands are of the usual types, by OPA's in all other cases.
func (s *scope) builtin(name string, args []*ast.Term) term {
	if t := s.special(name, args); t != nil {
		return t
	}
	ts := s.terms(args)
	if test, ok := comparisons[name]; ok && len(ts) == 2 {
		x, y, weigh := ts[0], ts[1], weigh(name)
		return func(m *machine) value.Value {
			a, b := x(m), y(m)
			if !a.Defined() || !b.Defined() || weigh(m, a, b) {
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
	many := quaternary[name]
	return func(m *machine) value.Value {
		args := make([]value.Value, len(ts))
		for i, t := range ts {
			if args[i] = t(m); !args[i].Defined() {
				return value.Value{}
			}
		}
		if many != nil {
			if v, ok := many(m, args); ok {
				return v
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
	if !bridged[name] {
		fail("the built-in %s is not offered", name)
	}
	f := topdown.GetBuiltin(name)
	if f == nil {
		fail("the built-in %s is not offered", name)
	}
	b := &bridging{name: name, at: s.c.place(s.at), f: f}
	guard := guards[name]
	return func(m *machine, args ...value.Value) value.Value {
		if m.err != nil {
			return value.Value{}
		}
		size := 0
		for _, a := range args {
			size += int(a.Size())
		}
		if guard != nil && size <= maxBridged {
			size += guard(args)
		}
		if size > maxBridged || !m.alloc(4*size) || m.work(16+size>>3) {
			m.fail(ErrLimit)
			return value.Value{}
		}
		if name == ast.JWTDecodeVerify.Name && !stringKeys(args[1]) { // OPA's own would panic
			m.failed(name, b.at, builtins.NewOperandErr(2, "must be object with keys that are strings"))
			return value.Value{}
		}
		operands := make([]*ast.Term, len(args))
		for i, a := range args {
			operands[i] = a.Term()
		}
		return b.call(m, operands)
	}
}

// stringKeys tells that v is no object, or one with strings alone for keys.
func stringKeys(v value.Value) bool {
	for i := range v.Len() {
		if v.Kind() == value.ObjectKind && v.Pair(i).K.Kind() != value.StringKind {
			return false
		}
	}
	return true
}

// bridging is one call of one of OPA's built-ins in the program.
type bridging struct {
	name string
	at   *ast.Location
	f    topdown.BuiltinFunc
}

// maxBridged bounds operands and expected result of OPA's built-ins, which
// cannot be stopped while they run.
const maxBridged = 2 << 20

func (b *bridging) call(m *machine, operands []*ast.Term) (v value.Value) {
	defer func() {
		if r := recover(); r != nil { // a bug of OPA's: the control fails
			m.fail(&PanicError{Value: r, Stack: debug.Stack()})
			v = value.Value{}
		}
	}()
	err := b.f(m.bridge(), operands, func(out *ast.Term) (err error) {
		if v, err = result(out.Value, operands); err != nil {
			return err
		}
		if m.alloc(int(v.Size())) {
			v = m.made(v)
		}
		return nil
	})
	if err != nil {
		m.failed(b.name, b.at, err)
	}
	if err != nil || m.err != nil {
		return value.Value{}
	}
	return v
}

// result is what a built-in of OPA's gave. OPA takes numbers that are written
// with an exponent for exact integers when it reckons with them: those beyond
// our integers are doubles again.
func result(out ast.Value, operands []*ast.Term) (value.Value, error) {
	v, err := value.FromAST(out)
	n, isNumber := out.(ast.Number)
	if !errors.Is(err, value.ErrRange) || !isNumber || !slices.ContainsFunc(operands, exponential) {
		return v, err
	}
	f, perr := strconv.ParseFloat(string(n), 64)
	if perr != nil || f == 0 {
		return v, err
	}
	return value.Float(f), nil
}

func exponential(t *ast.Term) bool {
	n, ok := t.Value.(ast.Number)
	return ok && strings.ContainsAny(string(n), "eE")
}

// failed takes note of a built-in's error, in topdown's words. Where the
// environment is not strict, the expression is undefined.
func (m *machine) failed(name string, at *ast.Location, err error) {
	if m.err != nil {
		return
	}
	var halt topdown.Halt
	if isHalt := errors.As(err, &halt); isHalt {
		err = halt.Err
	} else if errors.Is(err, value.ErrRange) {
		m.fail(ErrLimit)
		return
	} else if !m.env.Strict || errors.Is(err, topdown.BuiltinEmpty{}) { //nolint:staticcheck // OPA's own built-ins still return it
		return
	}
	var te *topdown.Error
	var operand builtins.ErrOperand
	switch {
	case errors.As(err, &te) && te.Code == topdown.CancelErr:
		m.fail(ErrLimit)
	case te != nil:
		m.fail(errorAt(te.Code, te.Message, at))
	case errors.As(err, &operand):
		m.fail(errorAt(topdown.TypeErr, name+": "+err.Error(), at))
	default:
		m.fail(errorAt(topdown.BuiltinErr, name+": "+err.Error(), at))
	}
}

// bridge is what built-ins of OPA's are called with.
func (m *machine) bridge() topdown.BuiltinContext {
	if m.bctx.Time == nil {
		m.bctx.Time = ast.NewTerm(ast.Number(strconv.FormatInt(m.now(), 10)))
		m.bctx.Cancel = cancel{m}
		m.bctx.Context = context.Background()
		m.bctx.Seed = rand.Reader
		m.bctx.Metrics = metrics.NoOp()
	}
	return m.bctx
}

// cancel tells OPA's built-ins when to stop. Few of them ask.
type cancel struct{ m *machine }

// Cancel is not called by built-ins.
func (cancel) Cancel() {}

// Cancelled counts a step.
func (c cancel) Cancelled() bool { return c.m.tick() || c.m.err != nil }

// walk compiles walk(x, [path, value]), which holds for each part of x.
func (s *scope) walk(args []*ast.Term) expr {
	if len(args) != 2 {
		fail("walk without a result")
	}
	from := s.term(args[0])
	arr, ok := args[1].Value.(*ast.Array)
	path, val := s.c.slot(), s.c.slot()
	noPath := false
	keys := s.walkedKeys(args[1])
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
			return v.Defined() && w.visit(m, nil, v, keys(m)) || m.err != nil
		}
	}
}

// walkedKeys gives the keys that the path of a pattern names, undefined for those that
// it binds. A walk looks them up, as a reference does: an index of 1e0 is none.
func (s *scope) walkedKeys(pattern *ast.Term) func(m *machine) []value.Value {
	whole := func(t *ast.Term, path func(v value.Value) value.Value) func(m *machine) []value.Value {
		v := s.term(t)
		return func(m *machine) []value.Value {
			if p := path(v(m)); p.Kind() == value.ArrayKind {
				return p.Elems()
			}
			return nil
		}
	}
	if !s.open(pattern) {
		return whole(pattern, func(v value.Value) value.Value {
			if v.Kind() != value.ArrayKind || v.Len() != 2 {
				return value.Value{}
			}
			return v.Index(0)
		})
	}
	if arr, ok := pattern.Value.(*ast.Array); ok && arr.Len() == 2 {
		if !s.open(arr.Elem(0)) {
			return whole(arr.Elem(0), func(v value.Value) value.Value { return v })
		}
		if path, ok := arr.Elem(0).Value.(*ast.Array); ok {
			return s.someKeys(path)
		}
	}
	return func(*machine) []value.Value { return nil }
}

func (s *scope) someKeys(path *ast.Array) func(m *machine) []value.Value {
	terms := make([]term, path.Len())
	for i := range terms {
		if !s.open(path.Elem(i)) {
			terms[i] = s.term(path.Elem(i))
		}
	}
	return func(m *machine) []value.Value {
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
	next      step
}

// visit goes through v and its parts. keys are those that the rest of the path has to
// have, undefined for any.
func (w *walker) visit(m *machine, path []value.Value, v value.Value, keys []value.Value) bool {
	if m.tick() {
		return true
	}
	if len(keys) > 0 {
		return w.parts(m, path, v, keys[0], keys[1:])
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
	return w.parts(m, path, v, value.Value{}, nil)
}

func (w *walker) parts(m *machine, path []value.Value, v, key value.Value, keys []value.Value) bool {
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
