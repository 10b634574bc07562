package native

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// rulePackage is the rules of one package, by the constant part of their names.
type rulePackage struct {
	path ast.Ref
	own  bool // the module's own package, not a library's
	root *node
}

// node is a place in a package. Rules stand at the leaves: where a rule has a
// variable in its name, all rules below its constant part make one group.
type node struct {
	name  string   // for messages and lookups: a.b, or data.lib.x.f of a library
	path  []string // below data
	depth int      // parts of a rule's name up to here
	rules []*ast.Rule
	kids  map[string]*node
	order []string
	key   value.Value
	group *group
}

// addPackage takes the rules of a module; several modules may have one package.
func (c *builder) addPackage(mod *ast.Module, own bool) {
	var p *rulePackage
	for _, known := range c.packages {
		if known.path.Equal(mod.Package.Path) {
			p = known
		}
	}
	if p == nil {
		root := &node{path: constantStrings(mod.Package.Path[1:])}
		if !own {
			root.name = mod.Package.Path.String()
		}
		p = &rulePackage{path: mod.Package.Path, own: own, root: root}
		c.packages = append(c.packages, p)
	}
	for _, r := range mod.Rules {
		c.at = r.Location
		p.root.add(r)
	}
	c.at = nil
}

func constantStrings(parts []*ast.Term) []string {
	path, _ := constantPath(parts)
	return path
}

func (n *node) add(r *ast.Rule) {
	for i, part := range r.Head.Ref() {
		if i == 0 {
			v, _ := part.Value.(ast.Var)
			part = ast.StringTerm(string(v))
		} else if !part.IsGround() {
			break
		}
		n = n.kid(part)
	}
	n.rules = append(n.rules, r)
}

func (n *node) kid(part *ast.Term) *node {
	key := part.String()
	if k := n.kids[key]; k != nil {
		return k
	}
	for _, k := range n.kids {
		if value.Equal(k.key, literal(part)) { // OPA's compiler takes p[1] and p[1.0] for two places
			fail("the number %v in two spellings in the names of rules", part)
		}
	}
	text := key
	if str, ok := part.Value.(ast.String); ok {
		text = string(str)
	}
	k := &node{name: text, path: append(slices.Clone(n.path), text), depth: n.depth + 1, key: literal(part)}
	if n.name != "" {
		k.name = n.name + "." + text
	}
	if n.kids == nil {
		n.kids = map[string]*node{}
	}
	n.kids[key] = k
	n.order = append(n.order, key)
	return k
}

// gather makes one group of a rule with a variable in its name and all below it.
func (n *node) gather() {
	if slices.ContainsFunc(n.rules, func(r *ast.Rule) bool { return len(r.Head.Ref()) > n.depth }) {
		n.rules = n.below()
		n.kids, n.order = nil, nil
	}
	for _, k := range n.order {
		n.kids[k].gather()
	}
}

func (n *node) below() []*ast.Rule {
	out := n.rules
	for _, k := range n.order {
		out = append(out, n.kids[k].below()...)
	}
	return out
}

// each calls fn for the places that hold rules.
func (n *node) each(fn func(n *node)) {
	if len(n.rules) > 0 {
		fn(n)
	}
	for _, k := range n.order {
		n.kids[k].each(fn)
	}
}

// find is the place that a reference below data leads to, and how much of the
// reference names it; nil where no rule is on the way. A place without rules is
// one that has some below it, and the reference does not say which.
func (c *builder) find(ref ast.Ref) (n *node, used int) {
	for _, p := range c.packages {
		if len(ref) > len(p.path) && len(p.path) > used && ref.HasPrefix(p.path) {
			n, used = p.root, len(p.path)
		}
	}
	if n == nil {
		return nil, 0
	}
	for ; used < len(ref); used++ {
		if len(n.rules) > 0 || !ast.IsConstant(ref[used].Value) {
			break
		}
		k := n.kids[ref[used].String()]
		if k == nil {
			return nil, 0
		}
		n = k
	}
	if n.depth == 0 {
		return nil, 0
	}
	return n, used
}

// function is the group of the function that a reference names, or nil.
func (c *builder) function(op ast.Ref) *group {
	n, used := c.find(op)
	if n == nil || used != len(op) || len(n.rules) == 0 {
		return nil
	}
	if g := c.declare(n); g.kind == function {
		return g
	}
	return nil
}

// extent is the object of all rules below a place.
func (c *builder) extent(n *node) term {
	if len(n.rules) > 0 {
		g := c.declare(n)
		c.build(g)
		return c.patched(n.path, g.value)
	}
	var kids []term
	var keys []value.Value
	for _, k := range n.order {
		if kid := n.kids[k]; len(kid.rules) == 0 || c.declare(kid).kind != function {
			kids, keys = append(kids, c.extent(kid)), append(keys, kid.key)
		}
	}
	whole := func(m *machine) value.Value {
		base := len(m.pairs)
		for i, kid := range kids {
			v := kid(m)
			if m.err != nil || v.Defined() && m.pushPair(keys[i], v) {
				m.pairs = m.pairs[:base]
				return value.Value{}
			}
		}
		v, _ := m.popObject(base)
		for _, p := range m.patches { // members that only a `with` has
			if d := len(n.path); len(p.path) > d && slices.Equal(p.path[:d], n.path) && n.kids[ast.StringTerm(p.path[d]).String()] == nil {
				v = m.patch(v, n.path, p)
			}
		}
		return v
	}
	return c.patched(n.path, whole)
}

const keyConflict = "object keys must be unique"

// limb is a place in the object that rules with variables in their names make.
type limb struct {
	key   value.Value
	leaf  value.Value
	isSet bool
	elems []value.Value
	kids  map[string]*limb
	order []*limb
}

// grow is what happens when a rule of such a group holds.
func (s *scope) grow(g *group, r *ast.Rule) step {
	keys := s.terms(r.Head.Ref()[g.depth:])
	many := r.Head.RuleKind() == ast.MultiValue
	leaf := r.Head.Value
	if many {
		leaf = r.Head.Key
	}
	val, loc := s.term(leaf), s.c.place(r.Head.Location)
	return func(m *machine) bool {
		v := val(m)
		if !v.Defined() {
			return m.err != nil
		}
		if m.tick() || !m.alloc(limbBytes*(1+len(keys))) {
			return true
		}
		at := m.limbs[len(m.limbs)-1]
		for _, key := range keys {
			k := key(m)
			if !k.Defined() || m.work(int(k.Size()>>4)) {
				return m.err != nil
			}
			if at.leaf.Defined() || at.isSet {
				return m.conflict(keyConflict, loc)
			}
			at = at.kid(k)
		}
		if !at.take(m, v, many) && m.err == nil {
			return m.conflict(keyConflict, loc)
		}
		return m.err != nil
	}
}

func (l *limb) kid(key value.Value) *limb {
	var room [64]byte
	id := string(key.AppendKey(room[:0]))
	k := l.kids[id]
	if k == nil {
		k = &limb{key: key}
		if l.kids == nil {
			l.kids = map[string]*limb{}
		}
		l.kids[id] = k
		l.order = append(l.order, k)
	}
	return k
}

const limbBytes = 160

// take puts a value at a place; false where another one is there.
func (l *limb) take(m *machine, v value.Value, many bool) bool {
	switch {
	case many && !l.leaf.Defined() && len(l.order) == 0:
		l.isSet = true
		l.elems = append(l.elems, v)
		return true
	case many || l.isSet:
		return false
	case len(l.order) > 0:
		return m.equal(l.value(m), v)
	case !l.leaf.Defined():
		l.leaf = v
		return true
	}
	return m.equal(l.leaf, v)
}

func (l *limb) value(m *machine) value.Value {
	switch {
	case m.err != nil:
		return value.Value{}
	case l.leaf.Defined():
		return l.leaf
	case l.isSet:
		if !m.sortWork(l.elems) {
			return value.Value{}
		}
		return m.made(value.SetOf(slices.Clone(l.elems)))
	}
	base := len(m.pairs)
	for _, k := range l.order {
		v := k.value(m)
		if m.err != nil || m.pushPair(k.key, v) {
			m.pairs = m.pairs[:base]
			return value.Value{}
		}
	}
	v, _ := m.popObject(base)
	return v
}

// tree runs the rules of a group with variables in their names.
func (g *group) tree(m *machine) value.Value {
	root := &limb{}
	m.limbs = append(m.limbs, root)
	for _, r := range g.rules {
		if r.run(m) && m.err != nil {
			break
		}
	}
	m.limbs = m.limbs[:len(m.limbs)-1]
	if m.err != nil {
		return value.Value{}
	}
	return root.value(m)
}
