package native

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Open reports whether a term has variables that are not bound here. Variables that a comprehension
// binds are its own, and do not count.
func (s *variables) Open(t *ast.Term) bool {
	switch x := t.Value.(type) {
	case ast.Var:
		return !s.bound[x]
	case ast.Ref:
		for i, e := range x {
			if i == 0 && (e.Equal(ast.InputRootDocument) || e.Equal(ast.DefaultRootDocument)) {
				continue
			}
			if s.Open(e) {
				return true
			}
		}
	case *ast.Array:
		for i := range x.Len() {
			if s.Open(x.Elem(i)) {
				return true
			}
		}
	case ast.Set:
		return slices.ContainsFunc(x.Slice(), s.Open)
	case ast.Object:
		for _, k := range x.Keys() {
			if s.Open(k) || s.Open(x.Get(k)) {
				return true
			}
		}
	}
	return false
}

// Term compiles a term whose variables are all bound.
func (s *Scope) Term(t *ast.Term) Term {
	if ast.IsConstant(t.Value) {
		return s.c.constant(t)
	}
	switch x := t.Value.(type) {
	case ast.Var:
		if !s.bound[x] {
			fail("variable %v before it is bound", x)
		}
		return slotTerm(s.slots[x])
	case ast.Ref:
		return s.ref(x)
	case *ast.Array:
		return s.array(x)
	case ast.Set:
		return s.set(x)
	case ast.Object:
		return s.object(x)
	case *ast.ArrayComprehension:
		return s.arrayComprehension(x)
	case *ast.SetComprehension:
		return s.setComprehension(x)
	case *ast.ObjectComprehension:
		return s.objectComprehension(x)
	}
	fail("term %v", t)
	return nil
}

// constant compiles a constant. It reads the constant from the program, because programs that share
// their code have different constants.
func (c *Builder) constant(t *ast.Term) Term {
	at := c.addConstant(t)
	return func(m *Machine) value.Value { return m.prog.constants[at] }
}

// addConstant adds a constant to the program, and returns its index.
func (c *Builder) addConstant(t *ast.Term) int {
	c.prog.constants = append(c.prog.constants, literal(t))
	return len(c.prog.constants) - 1
}

func literal(t *ast.Term) value.Value {
	v, err := value.FromAST(t.Value)
	if err != nil {
		fail("the constant %.80v: %v", t, err)
	}
	return v
}

// Terms compiles terms whose variables are all bound.
func (s *Scope) Terms(ts []*ast.Term) []Term {
	out := make([]Term, len(ts))
	for i, t := range ts {
		out[i] = s.Term(t)
	}
	return out
}

// gather evaluates terms into a new slice. ok is false if one is undefined.
func gather(m *Machine, ts []Term) ([]value.Value, bool) {
	if !m.Alloc(eval.ValueBytes * len(ts)) {
		return nil, false
	}
	out := make([]value.Value, len(ts))
	for i, t := range ts {
		if out[i] = t(m); !out[i].Defined() {
			return nil, false
		}
	}
	return out, true
}

func (s *Scope) array(x *ast.Array) Term {
	var parts []*ast.Term
	for i := range x.Len() {
		parts = append(parts, x.Elem(i))
	}
	ts := s.Terms(parts)
	return func(m *Machine) value.Value {
		out, ok := gather(m, ts)
		if !ok {
			return value.Value{}
		}
		return m.CheckSize(value.Array(out...))
	}
}

func (s *Scope) set(x ast.Set) Term {
	ts := s.Terms(x.Slice())
	return func(m *Machine) value.Value {
		out, ok := gather(m, ts)
		if !ok || !m.SortWork(out) {
			return value.Value{}
		}
		return m.CheckSize(value.SetOf(out))
	}
}

func (s *Scope) object(x ast.Object) Term {
	var parts []*ast.Term
	for _, k := range x.Keys() {
		parts = append(parts, k, x.Get(k))
	}
	ts := s.Terms(parts)
	return func(m *Machine) value.Value {
		if !m.Alloc(eval.ValueBytes * len(ts)) {
			return value.Value{}
		}
		pairs := make([]value.Pair, len(ts)/2)
		for i := range pairs {
			pairs[i].K, pairs[i].V = ts[2*i](m), ts[2*i+1](m)
			if !pairs[i].K.Defined() || !pairs[i].V.Defined() {
				return value.Value{}
			}
		}
		return m.CheckSize(value.LiteralOf(pairs))
	}
}

func (s *Scope) arrayComprehension(x *ast.ArrayComprehension) Term {
	run := pushes(s, x.Body, x.Term)
	return func(m *Machine) value.Value {
		base := m.Depth()
		run(m)
		out := m.Pop(base)
		if m.Err != nil {
			return value.Value{}
		}
		return m.CheckSize(value.Array(out...))
	}
}

func (s *Scope) setComprehension(x *ast.SetComprehension) Term {
	run := pushes(s, x.Body, x.Term)
	return func(m *Machine) value.Value {
		base := m.Depth()
		run(m)
		v := m.PopSet(base)
		if m.Err != nil {
			return value.Value{}
		}
		return v
	}
}

// pushes compiles the body of a comprehension. It pushes the value of the term for each solution.
func pushes(s *Scope, body ast.Body, of *ast.Term) func(*Machine) bool {
	in := s.inner()
	solve := in.body(body)
	elem := in.Term(of)
	return solve(func(m *Machine) bool {
		v := elem(m)
		return v.Defined() && m.Push(v) || m.Err != nil
	})
}

func (s *Scope) objectComprehension(x *ast.ObjectComprehension) Term {
	in := s.inner()
	body := in.body(x.Body)
	key, val := in.Term(x.Key), in.Term(x.Value)
	loc := s.c.place(x.Key.Location)
	run := body(func(m *Machine) bool {
		k, v := key(m), val(m)
		return k.Defined() && v.Defined() && m.pushPair(k, v) || m.Err != nil
	})
	return func(m *Machine) value.Value {
		base := len(m.pairs)
		run(m)
		v, ok := m.popObject(base)
		if !ok {
			m.Conflict(keyConflict, loc)
		}
		if m.Err != nil {
			return value.Value{}
		}
		return v
	}
}

// access looks up one part of a reference.
type access func(v, key value.Value) value.Value

func lookup(v, key value.Value) value.Value { return v.Lookup(key) }

// BaseLookup looks up a key in a base document as OPA's store does: by the text of the key, so that
// data.resources[42] is data.resources["42"].
func BaseLookup(v, key value.Value) value.Value {
	text, ok := key.Str()
	if !ok {
		if key.Kind() != value.NumberKind {
			return value.Value{}
		}
		text = key.NumberText()
	}
	switch v.Kind() {
	case value.ObjectKind:
		return v.Get(text)
	case value.ArrayKind:
		if i, ok := util.Atoi(text); ok { // the store reads 1.0 and 01 in the same way
			return v.Index(i)
		}
	}
	return value.Value{}
}

// refStart is the compiled head of a reference: its value, the parts that follow, and how to look
// them up.
type refStart struct {
	value Term
	parts []*ast.Term
	get   access
}

// start compiles the head of a reference: the part that needs no key at run time.
func (s *Scope) start(ref ast.Ref) refStart {
	head := ref[0]
	switch {
	case head.Equal(ast.InputRootDocument):
		path, parts := ConstantPath(ref[1:])
		return refStart{inputTerm(path), parts, lookup}
	case head.Equal(ast.DefaultRootDocument):
		return s.c.startData(ref)
	}
	if v, ok := head.Value.(ast.Var); ok {
		if !s.bound[v] {
			fail("reference %v before its head is bound", ref)
		}
		return refStart{slotTerm(s.slots[v]), ref[1:], lookup}
	}
	return refStart{s.Term(head), ref[1:], lookup}
}

func (c *Builder) startData(ref ast.Ref) refStart {
	if n, used := c.find(ref); n != nil {
		if len(n.rules) > 0 {
			if g := c.declare(n); g.kind == Function {
				return refStart{func(*Machine) value.Value { return value.Value{} }, nil, lookup}
			}
		}
		return refStart{c.extent(n), ref[used:], lookup}
	}
	for _, p := range c.packages {
		if p.mayContain(ref) {
			fail("a reference that may lead to any rule: %v", ref)
		}
	}
	return c.baseTerm(ref)
}

// mayContain reports whether a reference covers the package or may do so. No rule has the reference's
// name (see find).
func (p *rulePackage) mayContain(ref ast.Ref) bool {
	pkg := p.path
	for i := 1; i < len(pkg); i++ {
		if i == len(ref) {
			return true
		}
		if !ref[i].Equal(pkg[i]) {
			_, str := ref[i].Value.(ast.String)
			return !str && !ast.IsScalar(ref[i].Value)
		}
	}
	return len(ref) == len(pkg) || !ast.IsConstant(ref[len(pkg)].Value)
}

func (c *Builder) baseTerm(ref ast.Ref) refStart {
	path, parts := ConstantPath(ref[1:])
	at := slices.IndexFunc(c.prog.data, func(p []string) bool { return slices.Equal(p, path) })
	if at < 0 {
		at = len(c.prog.data)
		c.prog.data = append(c.prog.data, path)
	}
	return refStart{func(m *Machine) value.Value { return m.doc(at) }, parts, BaseLookup}
}

// ConstantPath splits off the leading parts that are constant strings.
func ConstantPath(parts []*ast.Term) (path []string, rest []*ast.Term) {
	for i, p := range parts {
		str, ok := p.Value.(ast.String)
		if !ok {
			return path, parts[i:]
		}
		path = append(path, string(str))
	}
	return path, nil
}

func inputTerm(path []string) Term {
	switch len(path) {
	case 0:
		return func(m *Machine) value.Value { return m.input }
	case 1:
		a := path[0]
		return func(m *Machine) value.Value { return getString(m.input, a) }
	case 2:
		a, b := path[0], path[1]
		return func(m *Machine) value.Value { return getString(getString(m.input, a), b) }
	}
	return func(m *Machine) value.Value { return getPath(m.input, path) }
}

// getString is Lookup with a string: a member of an object, or an element of a set.
func getString(v value.Value, key string) value.Value {
	if v.Kind() == value.SetKind {
		return v.Lookup(value.String(key))
	}
	return v.Get(key)
}

func getPath(v value.Value, path []string) value.Value {
	for _, p := range path {
		v = getString(v, p)
	}
	return v
}

func (s *Scope) ref(ref ast.Ref) Term {
	return s.start(ref).follow(s)
}

// follow compiles the other parts, which are all bound.
func (r refStart) follow(s *Scope) Term {
	if len(r.parts) == 0 {
		return r.value
	}
	path, rest := ConstantPath(r.parts)
	base, get := r.value, r.get
	switch len(path) {
	case 0:
	case 1:
		p := path[0]
		key := value.String(p)
		return refStart{func(m *Machine) value.Value {
			b := base(m)
			if b.Kind() == value.ObjectKind {
				return b.Get(p)
			}
			return get(b, key)
		}, rest, get}.follow(s)
	default:
		keys := make([]value.Value, len(path))
		for i, p := range path {
			keys[i] = value.String(p)
		}
		return refStart{func(m *Machine) value.Value {
			b := base(m)
			for i := range keys {
				b = get(b, keys[i])
			}
			return b
		}, rest, get}.follow(s)
	}
	key := s.Term(r.parts[0])
	return refStart{func(m *Machine) value.Value {
		b := base(m)
		if !b.Defined() {
			return b
		}
		k := key(m)
		if k.Kind() >= value.ArrayKind && m.Work(int(k.Size()>>2)) {
			return value.Value{}
		}
		return get(b, k)
	}, r.parts[1:], get}.follow(s)
}

// walkRef runs the next step for each value of a reference with unbound variables. The value is in
// slot out.
func (s *Scope) walkRef(ref ast.Ref, out int) Expr {
	if v, ok := ref[0].Value.(ast.Var); ok && !s.bound[v] && !ref[0].Equal(ast.InputRootDocument) && !ref[0].Equal(ast.DefaultRootDocument) {
		fail("reference %v before its head is bound", ref)
	}
	r := s.start(ref)
	var chain []Expr
	for {
		n := 0
		for n < len(r.parts) && !s.Open(r.parts[n]) {
			n++
		}
		from := refStart{r.value, r.parts[:n], r.get}.follow(s)
		if n == len(r.parts) {
			chain = append(chain, when(func(m *Machine) bool {
				x := from(m)
				m.Slots[out] = x
				return x.Defined()
			}))
			return Sequence(chain)
		}
		k, at := s.c.slot(), s.c.slot()
		chain = append(chain, s.eachKey(from, r.parts[n], k, at))
		r.value, r.parts = slotTerm(at), r.parts[n+1:]
	}
}

// eachKey binds one unbound part of a reference to every key of a collection.
func (s *Scope) eachKey(from Term, part *ast.Term, k, at int) Expr {
	if x, ok := part.Value.(ast.Var); ok {
		key := s.bind(x)
		return func(next Step) Step {
			return func(m *Machine) bool {
				return iterate(m, from(m), key, at, next) || m.Err != nil
			}
		}
	}
	pattern := s.match(slotTerm(k), part)
	return func(next Step) Step {
		next = pattern(next)
		return func(m *Machine) bool {
			d := from(m)
			if d.Kind() == value.ArrayKind { // a composite never equals an index
				return m.Err != nil
			}
			return iterate(m, d, k, at, next) || m.Err != nil
		}
	}
}
