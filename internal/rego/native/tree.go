package native

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// rulePackage holds the rules of one package, by the constant part of their names.
type rulePackage struct {
	path ast.Ref
	own  bool // the package of the module, not of a library
	root *node
}

// node is a name in a package. Rules are at the leaves: if a rule has a variable in its name, all
// rules below its constant part form one group.
type node struct {
	name  string   // for messages and lookups: a.b, or data.lib.x.f in a library
	path  []string // below data
	depth int      // number of parts of the name, below the package
	rules []*ast.Rule
	kids  map[string]*node
	order []string
	key   value.Value
	group *Group
}

// addPackage adds the rules of a module. Several modules may have the same package.
func (c *Builder) addPackage(mod *ast.Module, own bool) {
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
	path, _ := ConstantPath(parts)
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
		if value.Equal(k.key, literal(part)) { // OPA's compiler treats p[1] and p[1.0] as different names
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

// groupDynamic moves all rules below a rule with a variable in its name into one group.
func (n *node) groupDynamic() {
	if slices.ContainsFunc(n.rules, func(r *ast.Rule) bool { return len(r.Head.Ref()) > n.depth }) {
		n.rules = n.rulesBelow()
		n.kids, n.order = nil, nil
	}
	for _, k := range n.order {
		n.kids[k].groupDynamic()
	}
}

func (n *node) rulesBelow() []*ast.Rule {
	out := n.rules
	for _, k := range n.order {
		out = append(out, n.kids[k].rulesBelow()...)
	}
	return out
}

// each calls fn for the nodes that hold rules.
func (n *node) each(fn func(n *node)) {
	if len(n.rules) > 0 {
		fn(n)
	}
	for _, k := range n.order {
		n.kids[k].each(fn)
	}
}

// find returns the node that a reference below data leads to, and the number of its parts that name
// the node. It returns nil if no rule has that name. If the node holds no rules, rules below it do,
// and the reference does not say which.
func (c *Builder) find(ref ast.Ref) (n *node, used int) {
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

// function returns the group of the function that a reference names, or nil.
func (c *Builder) function(op ast.Ref) *Group {
	n, used := c.find(op)
	if n == nil || used != len(op) || len(n.rules) == 0 {
		return nil
	}
	if g := c.declare(n); g.kind == Function {
		return g
	}
	return nil
}

// extent compiles the document of all rules at and below a node.
func (c *Builder) extent(n *node) Term {
	if len(n.rules) > 0 {
		g := c.declare(n)
		c.build(g)
		return c.patchable(n.path, g.Value)
	}
	var kids []Term
	var keys []value.Value
	for _, k := range n.order {
		if kid := n.kids[k]; len(kid.rules) == 0 || c.declare(kid).kind != Function {
			kids, keys = append(kids, c.extent(kid)), append(keys, kid.key)
		}
	}
	whole := func(m *Machine) value.Value {
		base := len(m.pairs)
		for i, kid := range kids {
			v := kid(m)
			if m.Err != nil || v.Defined() && m.pushPair(keys[i], v) {
				m.pairs = m.pairs[:base]
				return value.Value{}
			}
		}
		v, _ := m.popObject(base)
		for _, p := range m.patches { // members that only a `with` defines
			if d := len(n.path); len(p.path) > d && slices.Equal(p.path[:d], n.path) && n.kids[ast.StringTerm(p.path[d]).String()] == nil {
				v = m.patch(v, n.path, p)
			}
		}
		return v
	}
	return c.patchable(n.path, whole)
}

const keyConflict = "object keys must be unique"

// branchNode is a node of the object that rules with variables in their names build.
type branchNode struct {
	key   value.Value
	leaf  value.Value
	isSet bool
	elems []value.Value
	kids  map[string]*branchNode
	order []*branchNode
}

// addToTree returns the step that runs when a rule of such a group holds.
func (g *Group) addToTree(s *Scope, r *ast.Rule) Step {
	keys := s.Terms(r.Head.Ref()[g.depth:])
	many := r.Head.RuleKind() == ast.MultiValue
	leaf := r.Head.Value
	if many {
		leaf = r.Head.Key
	}
	val, loc := s.Term(leaf), s.c.place(r.Head.Location)
	return func(m *Machine) bool {
		v := val(m)
		if !v.Defined() {
			return m.Err != nil
		}
		if m.Tick() || !m.Alloc(limbBytes*(1+len(keys))) {
			return true
		}
		at := m.branches[len(m.branches)-1]
		for _, key := range keys {
			k := key(m)
			if !k.Defined() || m.Work(int(k.Size()>>4)) {
				return m.Err != nil
			}
			if at.leaf.Defined() || at.isSet {
				return m.Conflict(keyConflict, loc)
			}
			at = at.kid(k)
		}
		if !at.store(m, v, many) && m.Err == nil {
			return m.Conflict(keyConflict, loc)
		}
		return m.Err != nil
	}
}

func (l *branchNode) kid(key value.Value) *branchNode {
	var room [64]byte
	id := string(key.AppendKey(room[:0]))
	k := l.kids[id]
	if k == nil {
		k = &branchNode{key: key}
		if l.kids == nil {
			l.kids = map[string]*branchNode{}
		}
		l.kids[id] = k
		l.order = append(l.order, k)
	}
	return k
}

const limbBytes = 160

// store stores a value at a node. It returns false if the node has a different one.
func (l *branchNode) store(m *Machine, v value.Value, many bool) bool {
	switch {
	case many && !l.leaf.Defined() && len(l.order) == 0:
		l.isSet = true
		l.elems = append(l.elems, v)
		return true
	case many || l.isSet:
		return false
	case len(l.order) > 0:
		return m.Equal(l.value(m), v)
	case !l.leaf.Defined():
		l.leaf = v
		return true
	}
	return m.Equal(l.leaf, v)
}

func (l *branchNode) value(m *Machine) value.Value {
	switch {
	case m.Err != nil:
		return value.Value{}
	case l.leaf.Defined():
		return l.leaf
	case l.isSet:
		if !m.SortWork(l.elems) {
			return value.Value{}
		}
		return m.CheckSize(value.SetOf(slices.Clone(l.elems)))
	}
	base := len(m.pairs)
	for _, k := range l.order {
		v := k.value(m)
		if m.Err != nil || m.pushPair(k.key, v) {
			m.pairs = m.pairs[:base]
			return value.Value{}
		}
	}
	v, _ := m.popObject(base)
	return v
}

// tree evaluates a group whose rules have variables in their names.
func (g *Group) tree(m *Machine) value.Value {
	root := &branchNode{}
	m.branches = append(m.branches, root)
	for _, r := range g.rules {
		if r.run(m) && m.Err != nil {
			break
		}
	}
	m.branches = m.branches[:len(m.branches)-1]
	if m.Err != nil {
		return value.Value{}
	}
	return root.value(m)
}
