package native

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// open tells whether a term has variables that are not bound here. What a
// comprehension binds inside is its own.
func (s *scope) open(t *ast.Term) bool {
	switch x := t.Value.(type) {
	case ast.Var:
		return !s.bound[x]
	case ast.Ref:
		for i, e := range x {
			if i == 0 && (e.Equal(ast.InputRootDocument) || e.Equal(ast.DefaultRootDocument)) {
				continue
			}
			if s.open(e) {
				return true
			}
		}
	case *ast.Array:
		for i := range x.Len() {
			if s.open(x.Elem(i)) {
				return true
			}
		}
	case ast.Set:
		return slices.ContainsFunc(x.Slice(), s.open)
	case ast.Object:
		for _, k := range x.Keys() {
			if s.open(k) || s.open(x.Get(k)) {
				return true
			}
		}
	}
	return false
}

// term compiles a term whose variables are all bound.
func (s *scope) term(t *ast.Term) term {
	if ast.IsConstant(t.Value) {
		return s.constant(t)
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

// constant compiles a constant: programs that share their code have others.
func (s *scope) constant(t *ast.Term) term {
	at := s.c.constant(t)
	return func(m *machine) value.Value { return m.prog.constants[at] }
}

// constant gives a constant its place in the program.
func (c *builder) constant(t *ast.Term) int {
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

func (s *scope) terms(ts []*ast.Term) []term {
	out := make([]term, len(ts))
	for i, t := range ts {
		out[i] = s.term(t)
	}
	return out
}

// gather evaluates terms into a new slice; ok is false if one is undefined.
func gather(m *machine, ts []term) ([]value.Value, bool) {
	if !m.alloc(valueBytes * len(ts)) {
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

func (s *scope) array(x *ast.Array) term {
	var parts []*ast.Term
	for i := range x.Len() {
		parts = append(parts, x.Elem(i))
	}
	ts := s.terms(parts)
	return func(m *machine) value.Value {
		out, ok := gather(m, ts)
		if !ok {
			return value.Value{}
		}
		return m.made(value.Array(out...))
	}
}

func (s *scope) set(x ast.Set) term {
	ts := s.terms(x.Slice())
	return func(m *machine) value.Value {
		out, ok := gather(m, ts)
		if !ok || !m.sortWork(out) {
			return value.Value{}
		}
		return m.made(value.SetOf(out))
	}
}

func (s *scope) object(x ast.Object) term {
	var parts []*ast.Term
	for _, k := range x.Keys() {
		parts = append(parts, k, x.Get(k))
	}
	ts := s.terms(parts)
	return func(m *machine) value.Value {
		if !m.alloc(valueBytes * len(ts)) {
			return value.Value{}
		}
		pairs := make([]value.Pair, len(ts)/2)
		for i := range pairs {
			pairs[i].K, pairs[i].V = ts[2*i](m), ts[2*i+1](m)
			if !pairs[i].K.Defined() || !pairs[i].V.Defined() {
				return value.Value{}
			}
		}
		v, err := value.ObjectOf(pairs)
		if err != nil { // keys that turn out equal: the last value counts, for the first key
			v = value.LastOf(firstKeys(pairs))
		}
		return m.made(v)
	}
}

// firstKeys gives the members of sorted pairs whose keys are equal the key of the
// first of them: one number may be written in two ways.
func firstKeys(pairs []value.Pair) []value.Pair {
	for i := 1; i < len(pairs); i++ {
		if value.Equal(pairs[i-1].K, pairs[i].K) {
			pairs[i].K = pairs[i-1].K
		}
	}
	return pairs
}

func (s *scope) arrayComprehension(x *ast.ArrayComprehension) term {
	run := pushes(s, x.Body, x.Term)
	return func(m *machine) value.Value {
		base := len(m.stack)
		run(m)
		out := m.pop(base)
		if m.err != nil {
			return value.Value{}
		}
		return m.made(value.Array(out...))
	}
}

func (s *scope) setComprehension(x *ast.SetComprehension) term {
	run := pushes(s, x.Body, x.Term)
	return func(m *machine) value.Value {
		base := len(m.stack)
		run(m)
		v := m.popSet(base)
		if m.err != nil {
			return value.Value{}
		}
		return v
	}
}

// pushes runs the body of a comprehension, and pushes its term for each solution.
func pushes(s *scope, body ast.Body, of *ast.Term) func(*machine) bool {
	in := s.inner()
	solve := in.body(body)
	elem := in.term(of)
	return solve(func(m *machine) bool {
		v := elem(m)
		return v.Defined() && m.push(v) || m.err != nil
	})
}

func (s *scope) objectComprehension(x *ast.ObjectComprehension) term {
	in := s.inner()
	body := in.body(x.Body)
	key, val := in.term(x.Key), in.term(x.Value)
	loc := s.c.place(x.Key.Location)
	run := body(func(m *machine) bool {
		k, v := key(m), val(m)
		return k.Defined() && v.Defined() && m.pushPair(k, v) || m.err != nil
	})
	return func(m *machine) value.Value {
		base := len(m.pairs)
		run(m)
		v, ok := m.popObject(base)
		if !ok {
			m.conflict(keyConflict, loc)
		}
		if m.err != nil {
			return value.Value{}
		}
		return v
	}
}

// access is how one part of a reference is followed.
type access func(v, key value.Value) value.Value

func lookup(v, key value.Value) value.Value { return v.Lookup(key) }

// baseLookup follows a path through a base document as OPA's store does: by
// the text of the key, so that data.resources[42] is data.resources["42"].
func baseLookup(v, key value.Value) value.Value {
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
		if i, ok := util.Atoi(text); ok { // the store's own reading of 1.0 and 01
			return v.Index(i)
		}
	}
	return value.Value{}
}

// start compiles the head of a reference: the part that needs no key at run
// time. It gives the value there, the parts that are left, and how to follow them.
func (s *scope) start(ref ast.Ref) (term, []*ast.Term, access) {
	head := ref[0]
	switch {
	case head.Equal(ast.InputRootDocument):
		path, rest := constantPath(ref[1:])
		return inputTerm(path), rest, lookup
	case head.Equal(ast.DefaultRootDocument):
		return s.startData(ref)
	}
	if v, ok := head.Value.(ast.Var); ok {
		if !s.bound[v] {
			fail("reference %v before its head is bound", ref)
		}
		return slotTerm(s.slots[v]), ref[1:], lookup
	}
	return s.term(head), ref[1:], lookup
}

func (s *scope) startData(ref ast.Ref) (term, []*ast.Term, access) {
	if n, used := s.c.find(ref); n != nil {
		if len(n.rules) > 0 {
			if g := s.c.declare(n); g.kind == function {
				return func(*machine) value.Value { return value.Value{} }, nil, lookup
			}
		}
		return s.c.extent(n), ref[used:], lookup
	}
	for _, p := range s.c.packages {
		if s.mayLead(ref, p.path) {
			fail("a reference that may lead to any rule: %v", ref)
		}
	}
	return s.baseTerm(ref)
}

// mayLead tells that a reference covers a package or may do so. There is no
// rule that it names (find).
func (s *scope) mayLead(ref, pkg ast.Ref) bool {
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

func (s *scope) baseTerm(ref ast.Ref) (term, []*ast.Term, access) {
	path, rest := constantPath(ref[1:])
	at := slices.IndexFunc(s.c.prog.data, func(p []string) bool { return slices.Equal(p, path) })
	if at < 0 {
		at = len(s.c.prog.data)
		s.c.prog.data = append(s.c.prog.data, path)
	}
	return func(m *machine) value.Value { return m.doc(at) }, rest, baseLookup
}

// constantPath splits off the leading parts that are constant strings.
func constantPath(parts []*ast.Term) (path []string, rest []*ast.Term) {
	for i, p := range parts {
		str, ok := p.Value.(ast.String)
		if !ok {
			return path, parts[i:]
		}
		path = append(path, string(str))
	}
	return path, nil
}

func inputTerm(path []string) term {
	switch len(path) {
	case 0:
		return func(m *machine) value.Value { return m.input }
	case 1:
		a := path[0]
		return func(m *machine) value.Value { return getString(m.input, a) }
	case 2:
		a, b := path[0], path[1]
		return func(m *machine) value.Value { return getString(getString(m.input, a), b) }
	}
	return func(m *machine) value.Value { return getPath(m.input, path) }
}

// getString is Lookup of a string: a member, or an element of a set.
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

// ref compiles a reference whose variables are all bound.
func (s *scope) ref(ref ast.Ref) term {
	v, rest, get := s.start(ref)
	return s.follow(v, rest, get)
}

// follow goes on from a value through parts that are all bound.
func (s *scope) follow(v term, parts []*ast.Term, get access) term {
	if len(parts) == 0 {
		return v
	}
	path, rest := constantPath(parts)
	if len(path) > 0 {
		base := v
		if len(path) == 1 {
			p := path[0]
			key := value.String(p)
			v = func(m *machine) value.Value {
				b := base(m)
				if b.Kind() == value.ObjectKind {
					return b.Get(p)
				}
				return get(b, key)
			}
		} else {
			keys := make([]value.Value, len(path))
			for i, p := range path {
				keys[i] = value.String(p)
			}
			v = func(m *machine) value.Value {
				b := base(m)
				for i := range keys {
					b = get(b, keys[i])
				}
				return b
			}
		}
		return s.follow(v, rest, get)
	}
	key, base := s.term(parts[0]), v
	return s.follow(func(m *machine) value.Value {
		b := base(m)
		if !b.Defined() {
			return b
		}
		k := key(m)
		if k.Kind() >= value.ArrayKind && m.work(int(k.Size()>>2)) {
			return value.Value{}
		}
		return get(b, k)
	}, parts[1:], get)
}

// walkRef runs what follows with each value that a reference with unbound
// variables has, in slot out.
func (s *scope) walkRef(ref ast.Ref, out int) expr {
	if v, ok := ref[0].Value.(ast.Var); ok && !s.bound[v] && !ref[0].Equal(ast.InputRootDocument) && !ref[0].Equal(ast.DefaultRootDocument) {
		fail("reference %v before its head is bound", ref)
	}
	v, parts, get := s.start(ref)
	var chain []expr
	for {
		n := 0
		for n < len(parts) && !s.open(parts[n]) {
			n++
		}
		from := s.follow(v, parts[:n], get)
		if n == len(parts) {
			chain = append(chain, when(func(m *machine) bool {
				x := from(m)
				m.slots[out] = x
				return x.Defined()
			}))
			return sequence(chain)
		}
		k, at := s.c.slot(), s.c.slot()
		chain = append(chain, s.each(from, parts[n], k, at))
		v, parts = slotTerm(at), parts[n+1:]
	}
}

// each binds one unbound part of a reference to every key of a collection.
func (s *scope) each(from term, part *ast.Term, k, at int) expr {
	if x, ok := part.Value.(ast.Var); ok {
		key := s.bind(x)
		return func(next step) step {
			return func(m *machine) bool {
				return iterate(m, from(m), key, at, next) || m.err != nil
			}
		}
	}
	pattern := s.match(slotTerm(k), part)
	return func(next step) step {
		next = pattern(next)
		return func(m *machine) bool {
			d := from(m)
			if d.Kind() == value.ArrayKind { // an index is never a composite
				return m.err != nil
			}
			return iterate(m, d, k, at, next) || m.err != nil
		}
	}
}
