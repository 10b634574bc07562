package native

import (
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// world is what an evaluation reads, and what it remembers of that. `with`
// puts another in its place.
type world struct {
	input   value.Value
	patches []patch // of data, the later ones over the earlier
	mocks   []mock  // of functions, the later ones over the earlier
	caches
}

// caches is what was evaluated in one context.
type caches struct {
	known []value.Value // the rules' values, by group
	done  []bool        // whether known holds
	base  []value.Value // documents under data, by path
	read  []bool        // whether base holds
	calls []callMemo    // functions' last results, by group
}

// patch is a document under data that was replaced.
type patch struct {
	path []string
	v    value.Value
}

// mock is what a function was replaced by: another function, by its place
// among those that some `with` names for it, or a value (then is -1).
type mock struct {
	name string
	then int
	v    value.Value
}

func (m *machine) newCaches() caches {
	if n := len(m.spare); n > 0 {
		c := m.spare[n-1]
		m.spare = m.spare[:n-1]
		c.resize(m.prog)
		return c
	}
	var c caches
	c.resize(m.prog)
	return c
}

// resize gives empty caches the room that a program needs.
func (c *caches) resize(p *Program) {
	n := len(p.groups)
	c.known, c.done, c.calls = sized(c.known, n), sized(c.done, n), sized(c.calls, n)
	c.base, c.read = sized(c.base, len(p.data)), sized(c.read, len(p.data))
}

func (c *caches) clear() {
	clear(c.known)
	clear(c.done)
	clear(c.base)
	clear(c.read)
	for i := range c.calls {
		c.calls[i].reset()
	}
}

// enter goes on in another context, whose caches are its own.
func (m *machine) enter(input value.Value, patches []patch, mocks []mock) bool {
	n := len(m.prog.groups) + len(m.prog.data)
	if m.work(16+n) || !m.alloc(64+n) || len(m.outer) > maxContexts {
		return m.fail(ErrLimit)
	}
	m.outer = append(m.outer, m.world)
	m.world = world{input: input, patches: patches, mocks: mocks, caches: m.newCaches()}
	return false
}

// maxContexts is how deep `with` may be nested in evaluation.
const maxContexts = 200

// popWorld goes back to the context before, and gives the one that it left.
func (m *machine) popWorld() world {
	inner := m.world
	m.world = m.outer[len(m.outer)-1]
	m.outer = m.outer[:len(m.outer)-1]
	return inner
}

// again goes back into a context that was left.
func (m *machine) again(inner world) {
	m.outer = append(m.outer, m.world)
	m.world = inner
}

// drop leaves a context for good.
func (m *machine) drop() {
	inner := m.popWorld()
	inner.caches.clear()
	m.spare = append(m.spare, inner.caches)
}

// collectTargets notes what the `with`s of a module replace.
func (c *builder) collectTargets(mod *ast.Module) {
	ast.NewGenericVisitor(func(x any) bool {
		e, ok := x.(*ast.Expr)
		if !ok {
			return false
		}
		for _, w := range e.With {
			target, _ := w.Target.Value.(ast.Ref)
			switch {
			case len(target) == 0 || target[0].Equal(ast.InputRootDocument):
			case target[0].Equal(ast.DefaultRootDocument) && c.function(target) == nil:
				c.documents = append(c.documents, constantStrings(target[1:]))
			default:
				c.replaceable(target.String(), w.Value)
			}
		}
		return false
	}).Walk(mod)
}

func (c *builder) replaceable(name string, by *ast.Term) {
	if c.functions == nil {
		c.functions = map[string][]ast.Ref{}
	}
	list := c.functions[name]
	if ref := c.functionRef(by); ref != nil && !slices.ContainsFunc(list, func(r ast.Ref) bool { return r.Equal(ref) }) {
		list = append(list, ref)
	}
	c.functions[name] = list
}

// functionRef is the function or built-in that a term names, or nil.
func (c *builder) functionRef(t *ast.Term) ast.Ref {
	ref, ok := t.Value.(ast.Ref)
	switch {
	case !ok || len(ref) == 0 || ref[0].Equal(ast.InputRootDocument):
		return nil
	case ref[0].Equal(ast.DefaultRootDocument):
		if c.function(ref) == nil {
			return nil
		}
	case ast.BuiltinMap[ref.String()] == nil:
		return nil
	}
	return ref
}

// replacement is one `with` of an expression.
type replacement struct {
	function string
	then     int
	path     []string // of input or data
	data     bool
	v        term // nil for a function by another
}

func (s *scope) replacement(w *ast.With) replacement {
	target, ok := w.Target.Value.(ast.Ref)
	if !ok {
		fail("with %v", w.Target)
	}
	var r replacement
	switch {
	case target[0].Equal(ast.InputRootDocument):
		r.path = constantStrings(target[1:])
	case target[0].Equal(ast.DefaultRootDocument) && s.c.function(target) == nil:
		r.path, r.data = constantStrings(target[1:]), true
	default:
		r.function = target.String()
		if by := s.c.functionRef(w.Value); by != nil {
			r.then = slices.IndexFunc(s.c.functions[r.function], func(x ast.Ref) bool { return x.Equal(by) })
			return r
		}
		r.then = -1
	}
	if r.function == "" && len(r.path) != len(target)-1 {
		fail("with a path that is not written out: %v", target)
	}
	r.v = s.term(w.Value)
	return r
}

// with compiles an expression whose input, data or functions are replaced. What
// follows it runs in the context before.
func (s *scope) with(e *ast.Expr) expr {
	list := make([]replacement, len(e.With))
	for i, w := range e.With {
		list[i] = s.replacement(w)
	}
	inner := s.expr(e.NoWith())
	return func(next step) step {
		run := inner(func(m *machine) bool {
			in := m.popWorld()
			stop := next(m)
			m.again(in)
			return stop
		})
		return func(m *machine) bool {
			input, patches, mocks, ok := m.replaced(list)
			if !ok || m.enter(input, patches, mocks) {
				return m.err != nil
			}
			stop := run(m)
			m.drop()
			return stop || m.err != nil
		}
	}
}

// replaced is what a `with` makes of the context; ok is false where one of its
// values is undefined.
func (m *machine) replaced(list []replacement) (input value.Value, patches []patch, mocks []mock, ok bool) {
	input = m.input
	patches, mocks = slices.Clip(m.patches), slices.Clip(m.mocks)
	for _, r := range list {
		var v value.Value
		if r.v != nil {
			if v = r.v(m); !v.Defined() {
				return input, nil, nil, false
			}
		}
		switch {
		case r.function != "":
			mocks = append(mocks, mock{r.function, r.then, v})
		case r.data:
			patches = append(patches, patch{r.path, v})
		default:
			if input = m.setPath(input, r.path, v); m.err != nil {
				return input, nil, nil, false
			}
		}
	}
	return input, patches, mocks, true
}

// setPath is v with another value at a path; what is no object on the way becomes one.
func (m *machine) setPath(v value.Value, path []string, to value.Value) value.Value {
	if len(path) == 0 {
		return to
	}
	if m.work(1+v.Len()) || !m.alloc(2*valueBytes*(1+v.Len())) {
		return value.Value{}
	}
	return m.made(v.With(path[0], m.setPath(v.Get(path[0]), path[1:], to)))
}

// doc is a document under data, read once a context.
func (m *machine) doc(i int) value.Value {
	if !m.read[i] {
		m.read[i] = true
		path := m.prog.data[i]
		var v value.Value
		if m.data != nil {
			v = m.data.Data(path)
		}
		for _, p := range m.patches {
			v = m.patch(v, path, p)
		}
		m.base[i] = v
	}
	return m.base[i]
}

// patch lays a replaced document over what stands at a path.
func (m *machine) patch(v value.Value, path []string, p patch) value.Value {
	n := len(p.path)
	switch {
	case n <= len(path) && slices.Equal(p.path, path[:n]):
		return getPath(p.v, path[n:])
	case n > len(path) && slices.Equal(path, p.path[:len(path)]):
		return m.setPath(v, p.path[len(path):], p.v)
	}
	return v
}

// patched is the value of a rule or, where a `with` replaced it, what that says.
func (c *builder) patched(path []string, own term) term {
	if !slices.ContainsFunc(c.documents, func(d []string) bool { return len(d) <= len(path) && slices.Equal(d, path[:len(d)]) }) {
		return own
	}
	return func(m *machine) value.Value {
		at := slices.IndexFunc(m.patches, func(p patch) bool { return len(p.path) <= len(path) && slices.Equal(p.path, path[:len(p.path)]) })
		if at < 0 {
			return own(m)
		}
		var v value.Value
		for _, p := range m.patches[at:] {
			v = m.patch(v, path, p)
		}
		return v
	}
}

// mocked compiles a call of a function that some `with` of the program replaces.
func (s *scope) mocked(name string, t []*ast.Term, arity int) expr {
	before := maps.Clone(s.bound)
	plain := s.call(t)
	after := s.bound
	args, out := t[1:arity+1], t[arity+1:]
	each := func(f term) expr {
		s.bound = maps.Clone(before)
		return s.result(f, out)
	}
	s.bound = maps.Clone(before)
	ts := s.terms(args)
	given := func(m *machine) bool {
		for _, t := range ts {
			if !t(m).Defined() {
				return false
			}
		}
		return true
	}
	slot := s.c.slot()
	byValue := each(func(m *machine) value.Value {
		if !given(m) {
			return value.Value{}
		}
		return m.slots[slot]
	})
	var instead []expr
	for _, ref := range s.c.functions[name] {
		s.bound = maps.Clone(before)
		instead = append(instead, each(apart(s.callTerm(ref, args))))
	}
	s.bound = after
	return func(next step) step {
		own, val := plain(next), byValue(next)
		others := make([]step, len(instead))
		for i, x := range instead {
			others[i] = x(next)
		}
		return func(m *machine) bool {
			for i := len(m.mocks) - 1; i >= 0; i-- {
				if mk := m.mocks[i]; mk.name == name {
					if mk.then >= 0 {
						return others[mk.then](m)
					}
					m.slots[slot] = mk.v
					return val(m)
				}
			}
			return own(m)
		}
	}
}

// apart makes a call without any mocks: the function that stands in for
// another may call that one. It may then be in the middle of its own
// evaluation, so the variables are kept.
func apart(call term) term {
	return func(m *machine) value.Value {
		n := len(m.slots)
		if m.work(n>>2) || !m.alloc(n*valueBytes>>2) || m.enter(m.input, m.patches, nil) {
			return value.Value{}
		}
		saved := slices.Clone(m.slots)
		v := call(m)
		copy(m.slots, saved)
		m.drop()
		return v
	}
}
