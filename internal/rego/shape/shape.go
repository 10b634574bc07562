// Package shape tells which Rego modules differ in the values of their constants
// only. Such modules can share what they compile to.
package shape

import (
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Digest is that of a module without the values of its constants.
type Digest [sha256.Size]byte

// Of digests the rules of the package pkg, as OPA's compiler left them. The digest holds
// all that a compiler may look at, and which constants are equal. ok is false for rules
// that use `with`, or whatever else has no shape.
func Of(pkg ast.Ref, rules []*ast.Rule) (key Digest, ok bool) {
	d := &describer{pkg: pkg, seen: map[string]int{}, ok: true}
	for _, r := range rules {
		d.rule(r)
	}
	if !d.ok {
		return key, false
	}
	return sha256.Sum256(d.text), true
}

// literalOf is a constant's value; a constant that has none has no shape either.
func (d *describer) literalOf(t *ast.Term) value.Value {
	v, err := value.FromAST(t.Value)
	if err != nil {
		d.ok = false
	}
	return v
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
			d.mark('K', int(d.literalOf(a).Kind()))
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
	v := d.literalOf(t)
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
