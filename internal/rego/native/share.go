package native

import (
	"crypto/sha256"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"weak"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A large environment has thousands of controls of few shapes: each is the one
// before with another name, number or list. They share the tree of closures, so
// that it stays in the processor's caches, and each keeps its constants.

// shape is the digest of a module without the values of its constants.
type shape [sha256.Size]byte

// codes are those of the programs that are in use, by shape.
type codes struct {
	mu   sync.Mutex
	list map[shape]weak.Pointer[code]
}

// shared is one for the process, as the machines are: a code holds nothing of
// the control that it was compiled from.
var shared = codes{list: map[shape]weak.Pointer[code]{}}

// of is the code that programs of this shape share: fresh, if it is the first.
func (s *codes) of(key shape, fresh *code) *code {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.list[key].Value(); known != nil {
		return known
	}
	s.list[key] = weak.Make(fresh)
	runtime.AddCleanup(fresh, s.forget, key)
	return fresh
}

// forget drops a shape whose code nobody uses any more.
func (s *codes) forget(key shape) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list[key].Value() == nil { // it may have been compiled again
		delete(s.list, key)
	}
}

// shape describes the module that was compiled. Two modules of one shape compile
// to the same code, and to the same number of constants in the same order. ok is
// false for modules that use libraries or `with`: they share nothing.
func (c *builder) shape() (key shape, ok bool) {
	if len(c.packages) != 1 {
		return key, false
	}
	d := &describer{pkg: c.pkg, seen: map[string]int{}, ok: true}
	c.packages[0].root.each(func(n *node) {
		for _, r := range n.rules {
			d.rule(r)
		}
	})
	if !d.ok {
		return key, false
	}
	return sha256.Sum256(d.text), true
}

// describer writes all of a module that its code depends on.
type describer struct {
	pkg  ast.Ref
	text []byte
	row  int
	// seen numbers the constants that are strings or numbers: whether two are equal
	// decides how rules compile.
	seen map[string]int
	ok   bool
}

// mark writes what kind of thing follows, and how many parts it has.
func (d *describer) mark(kind byte, n int) {
	d.text = append(strconv.AppendInt(append(d.text, kind), int64(n), 10), ' ')
}

// literal writes what is part of the shape word by word.
func (d *describer) literal(kind byte, text string) {
	d.mark(kind, len(text))
	d.text = append(d.text, text...)
}

// at writes the line: errors of the evaluation name it.
func (d *describer) at(loc *ast.Location) {
	if loc != nil && loc.Row != d.row {
		d.row = loc.Row
		d.mark('@', d.row)
		d.literal('f', loc.File)
	}
}

func (d *describer) rule(r *ast.Rule) {
	d.at(r.Location)
	d.at(r.Head.Location)
	d.mark('R', int(r.Head.RuleKind()))
	if r.Default {
		d.mark('d', 0)
	}
	d.fixed(r.Head.Ref())
	d.mark('(', len(r.Head.Args))
	d.terms(r.Head.Args)
	d.optional(r.Head.Key)
	d.optional(r.Head.Value)
	d.body(r.Body)
	if r.Else != nil {
		d.mark('e', 0)
		d.rule(r.Else)
	}
	d.mark('.', 0)
}

func (d *describer) optional(t *ast.Term) {
	if t == nil {
		d.mark('-', 0)
		return
	}
	d.term(t)
}

func (d *describer) body(b ast.Body) {
	d.mark('B', len(b))
	for _, e := range b {
		d.expr(e)
	}
}

func (d *describer) expr(e *ast.Expr) {
	d.at(e.Location)
	if len(e.With) > 0 {
		d.ok = false
	}
	if e.Negated {
		d.mark('!', 0)
	}
	switch t := e.Terms.(type) {
	case []*ast.Term:
		d.call(t)
	case *ast.Term:
		d.mark('T', 0)
		d.term(t)
	case *ast.Every:
		d.mark('E', 0)
		d.optional(t.Key)
		d.term(t.Value)
		d.term(t.Domain)
		d.body(t.Body)
	case *ast.Not:
		d.mark('N', 0)
		d.body(t.Body)
	case *ast.LogicalAnd:
		d.mark('&', 0)
		d.body(t.Lhs)
		d.body(t.Rhs)
	case *ast.LogicalOr:
		d.mark('|', 0)
		d.body(t.Lhs)
		d.body(t.Rhs)
	default:
		d.ok = false
	}
}

// call writes a call. A constant operand may be of any size, such as a list of
// names, unless the call is compiled for what its operands are.
func (d *describer) call(t []*ast.Term) {
	d.mark('C', len(t))
	op, ok := t[0].Value.(ast.Ref)
	if !ok {
		d.ok = false
		return
	}
	d.fixed(op)
	name := op.String()
	for _, a := range t[1:] {
		d.at(a.Location)
		switch {
		case slices.Contains(compiledByOperand, name):
			d.write(a, true)
		case !ast.IsConstant(a.Value) || name == ast.Equality.Name || name == ast.Assign.Name || ast.IsScalar(a.Value):
			d.term(a) // an equation takes its sides apart
		default:
			d.mark('K', int(literal(a).Kind()))
		}
	}
}

// compiledByOperand are the built-ins whose code depends on constants (special).
var compiledByOperand = []string{"net.cidr_contains", "regex.match", ast.WalkBuiltin.Name}

func (d *describer) terms(ts []*ast.Term) {
	for _, t := range ts {
		d.term(t)
	}
}

func (d *describer) term(t *ast.Term) { d.write(t, false) }

// write writes a term. The strings and numbers of a fixed one are part of the code.
func (d *describer) write(t *ast.Term, fixed bool) {
	d.at(t.Location)
	switch x := t.Value.(type) {
	case ast.String, ast.Number:
		d.scalar(t, fixed)
	case ast.Boolean, ast.Null:
		d.literal('=', x.String())
	case ast.Var:
		d.literal('v', string(x))
	case ast.Ref:
		d.fixed(x)
	case *ast.Array:
		d.mark('[', x.Len())
		x.Foreach(func(e *ast.Term) { d.write(e, fixed) })
	case ast.Set:
		d.mark('{', x.Len())
		x.Foreach(func(e *ast.Term) { d.write(e, fixed) })
	case ast.Object:
		d.mark('O', x.Len())
		for _, k := range x.Keys() {
			d.write(k, true)
			d.write(x.Get(k), fixed)
		}
	case *ast.ArrayComprehension:
		d.mark('a', 0)
		d.body(x.Body)
		d.term(x.Term)
	case *ast.SetComprehension:
		d.mark('s', 0)
		d.body(x.Body)
		d.term(x.Term)
	case *ast.ObjectComprehension:
		d.mark('o', 0)
		d.body(x.Body)
		d.term(x.Key)
		d.term(x.Value)
	default:
		d.ok = false
	}
}

// scalar writes a string or a number: word by word, or as the n-th constant.
func (d *describer) scalar(t *ast.Term, fixed bool) {
	if fixed {
		d.literal('=', t.String())
		return
	}
	v := literal(t)
	key := string(v.AppendKey(nil))
	at, ok := d.seen[key]
	if !ok {
		at = len(d.seen)
		d.seen[key] = at
	}
	d.mark('k', int(v.Kind()))
	d.mark('#', at)
}

// fixed writes the parts of a reference. The module's own package has no name in it.
func (d *describer) fixed(ref ast.Ref) {
	if ref.HasPrefix(d.pkg) {
		d.mark('P', 0)
		ref = ref[len(d.pkg):]
	}
	d.mark('r', len(ref))
	for _, p := range ref {
		d.write(p, true)
	}
}
