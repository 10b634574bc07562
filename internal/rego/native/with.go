package native

import (
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// world is what an evaluation reads, and what it has computed from that. `with` replaces it.
type world struct {
	input   value.Value
	patches []patch // of data; later ones win
	mocks   []mock  // of functions; later ones win
	caches
}

// caches holds the results of one world.
type caches struct {
	values    []value.Value // the values of the rules, by group
	evaluated []bool        // whether values holds the group's value
	base      []value.Value // documents under data, by index in Program.data
	read      []bool        // whether base holds the document
	calls     []callMemo    // the last results of functions, by group
}

// patch is a document under data that a `with` replaced.
type patch struct {
	path []string
	v    value.Value
}

// mock replaces a function: by another function, whose index is in then, or by a value if then is -1.
// The index counts the functions that some `with` names as replacements of this one.
type mock struct {
	name string
	then int
	v    value.Value
}

func (m *Machine) newCaches() caches {
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
	c.values, c.evaluated, c.calls = sized(c.values, n), sized(c.evaluated, n), sized(c.calls, n)
	c.base, c.read = sized(c.base, len(p.data)), sized(c.read, len(p.data))
}

func (c *caches) clear() {
	clear(c.values)
	clear(c.evaluated)
	clear(c.base)
	clear(c.read)
	for i := range c.calls {
		c.calls[i].reset()
	}
}

// enter continues in another world, which has its own caches; true means stop.
func (m *Machine) enter(input value.Value, patches []patch, mocks []mock) bool {
	n := len(m.prog.groups) + len(m.prog.data)
	if m.Work(16+n) || !m.Alloc(64+n) || len(m.outer) > maxContexts {
		return m.Fail(eval.ErrLimit)
	}
	m.outer = append(m.outer, m.world)
	m.world = world{input: input, patches: patches, mocks: mocks, caches: m.newCaches()}
	return false
}

// maxContexts limits how deep worlds are nested during evaluation.
const maxContexts = 200

// exit goes back to the previous world, and returns the one that it left.
func (m *Machine) exit() world {
	inner := m.world
	m.world = m.outer[len(m.outer)-1]
	m.outer = m.outer[:len(m.outer)-1]
	return inner
}

// reenter goes back into a world that exit left.
func (m *Machine) reenter(inner world) {
	m.outer = append(m.outer, m.world)
	m.world = inner
}

// leave leaves a world for good.
func (m *Machine) leave() {
	inner := m.exit()
	inner.caches.clear()
	m.spare = append(m.spare, inner.caches)
}

// collectReplaced records what the `with`s of a module replace.
func (c *Builder) collectReplaced(mod *ast.Module) {
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
				c.addReplacement(target.String(), w.Value)
			}
		}
		return false
	}).Walk(mod)
}

func (c *Builder) addReplacement(name string, by *ast.Term) {
	if c.functions == nil {
		c.functions = map[string][]ast.Ref{}
	}
	list := c.functions[name]
	if ref := c.functionRef(by); ref != nil && !slices.ContainsFunc(list, func(r ast.Ref) bool { return r.Equal(ref) }) {
		list = append(list, ref)
	}
	c.functions[name] = list
}

// functionRef returns the function or built-in that a term names, or nil.
func (c *Builder) functionRef(t *ast.Term) ast.Ref {
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

type replacement struct {
	function string
	then     int
	path     []string // below input or data
	data     bool
	v        Term // nil if a function replaces a function
}

func newReplacement(s *Scope, w *ast.With) replacement {
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
	r.v = s.Term(w.Value)
	return r
}

// with compiles an expression whose input, data or functions are replaced. The steps after it run
// in the previous world.
func (s *Scope) with(e *ast.Expr) Expr {
	list := make([]replacement, len(e.With))
	for i, w := range e.With {
		list[i] = newReplacement(s, w)
	}
	inner := s.Expr(e.NoWith())
	return func(next Step) Step {
		run := inner(func(m *Machine) bool {
			in := m.exit()
			stop := next(m)
			m.reenter(in)
			return stop
		})
		return func(m *Machine) bool {
			input, patches, mocks, ok := m.replacedWorld(list)
			if !ok || m.enter(input, patches, mocks) {
				return m.Err != nil
			}
			stop := run(m)
			m.leave()
			return stop || m.Err != nil
		}
	}
}

// replacedWorld returns the input, patches and mocks of the world inside a `with`. ok is false if one of
// its values is undefined.
func (m *Machine) replacedWorld(list []replacement) (input value.Value, patches []patch, mocks []mock, ok bool) {
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
			if input = m.setPath(input, r.path, v); m.Err != nil {
				return input, nil, nil, false
			}
		}
	}
	return input, patches, mocks, true
}

// setPath returns v with another value at a path. Values on the way that are not objects become
// objects.
func (m *Machine) setPath(v value.Value, path []string, to value.Value) value.Value {
	if len(path) == 0 {
		return to
	}
	if m.Work(1+v.Len()) || !m.Alloc(2*eval.ValueBytes*(1+v.Len())) {
		return value.Value{}
	}
	return m.CheckSize(v.With(path[0], m.setPath(v.Get(path[0]), path[1:], to)))
}

// doc returns a document under data, read once for each world.
func (m *Machine) doc(i int) value.Value {
	if !m.read[i] {
		m.read[i] = true
		path := m.prog.data[i]
		var v value.Value
		if m.data != nil {
			v = m.document(path)
		}
		for _, p := range m.patches {
			v = m.patch(v, path, p)
		}
		m.base[i] = v
	}
	return m.base[i]
}

// patch applies a patch to the value at a path.
func (m *Machine) patch(v value.Value, path []string, p patch) value.Value {
	n := len(p.path)
	switch {
	case n <= len(path) && slices.Equal(p.path, path[:n]):
		return getPath(p.v, path[n:])
	case n > len(path) && slices.Equal(path, p.path[:len(path)]):
		return m.setPath(v, p.path[len(path):], p.v)
	}
	return v
}

// patchable compiles the value of a rule, or of the `with` that replaced it.
func (c *Builder) patchable(path []string, own Term) Term {
	if !slices.ContainsFunc(c.documents, func(d []string) bool { return len(d) <= len(path) && slices.Equal(d, path[:len(d)]) }) {
		return own
	}
	return func(m *Machine) value.Value {
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
func (s *Scope) mocked(name string, t []*ast.Term, arity int) Expr {
	before := maps.Clone(s.bound)
	plain := s.call(t)
	after := s.bound
	args, out := t[1:arity+1], t[arity+1:]
	each := func(f Term) Expr {
		s.bound = maps.Clone(before)
		return s.result(f, out)
	}
	s.bound = maps.Clone(before)
	ts := s.Terms(args)
	given := func(m *Machine) bool {
		for _, t := range ts {
			if !t(m).Defined() {
				return false
			}
		}
		return true
	}
	slot := s.c.slot()
	byValue := each(func(m *Machine) value.Value {
		if !given(m) {
			return value.Value{}
		}
		return m.Slots[slot]
	})
	var instead []Expr
	for _, ref := range s.c.functions[name] {
		s.bound = maps.Clone(before)
		instead = append(instead, each(withoutMocks(s.callTerm(ref, args))))
	}
	s.bound = after
	return func(next Step) Step {
		own, val := plain(next), byValue(next)
		others := make([]Step, len(instead))
		for i, x := range instead {
			others[i] = x(next)
		}
		return func(m *Machine) bool {
			for _, mk := range slices.Backward(m.mocks) {
				if mk.name == name {
					if mk.then >= 0 {
						return others[mk.then](m)
					}
					m.Slots[slot] = mk.v
					return val(m)
				}
			}
			return own(m)
		}
	}
}

// withoutMocks compiles a call that runs without mocks, because a replacement may call the function that
// it replaces. That function may be in the middle of its own evaluation, so it saves and
// restores the variables.
func withoutMocks(call Term) Term {
	return func(m *Machine) value.Value {
		n := len(m.Slots)
		if m.Work(n>>2) || !m.Alloc(n*eval.ValueBytes>>2) || m.enter(m.input, m.patches, nil) {
			return value.Value{}
		}
		saved := slices.Clone(m.Slots)
		v := call(m)
		copy(m.Slots, saved)
		m.leave()
		return v
	}
}
