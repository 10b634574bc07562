// Package shape finds Rego modules that differ only in the values of their constants. Such modules
// can share compiled code.
package shape

import (
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Digest is the SHA-256 digest of a module without the values of its constants.
type Digest [sha256.Size]byte

// Fingerprint digests the compiled rules of the package pkg. The digest covers everything that the code of
// the rules depends on, and which constants are equal. ok is false for rules that cannot share code,
// such as those with `with`.
func Fingerprint(pkg ast.Ref, rules []*ast.Rule) (key Digest, ok bool) {
	d := &describer{pkg: pkg, seen: map[string]int{}, ok: true}
	for _, r := range rules {
		d.rule(r)
	}
	if !d.ok {
		return key, false
	}
	return sha256.Sum256(d.text), true
}

// literalOf returns a constant's value. Rules with a constant that has none cannot share code.
func (d *describer) literalOf(t *ast.Term) value.Value {
	v, err := value.FromAST(t.Value)
	if err != nil {
		d.ok = false
	}
	return v
}

// describer writes a description of everything in a module that its code depends on.
type describer struct {
	pkg  ast.Ref
	text []byte
	row  int
	// seen numbers the constants that are strings or numbers, because the code depends on which of
	// them are equal.
	seen map[string]int
	ok   bool
}

// mark writes the kind of the next element, and the number of its parts.
func (d *describer) mark(kind byte, n int) {
	d.text = append(strconv.AppendInt(append(d.text, kind), int64(n), 10), ' ')
}

// literal writes a text that is part of the shape as it is.
func (d *describer) literal(kind byte, text string) {
	d.mark(kind, len(text))
	d.text = append(d.text, text...)
}

// at writes the line, because errors of an evaluation name it.
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

// call writes a call. For a constant collection as operand, such as a list of names, it writes only
// the kind, unless the code depends on the operand.
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
			d.term(a) // an equation is compiled for the structure of its sides
		default:
			d.mark('K', int(d.literalOf(a).Kind()))
		}
	}
}

// compiledByOperand are the built-ins whose code depends on their constant operands.
var compiledByOperand = []string{"net.cidr_contains", "regex.match", ast.WalkBuiltin.Name}

func (d *describer) terms(ts []*ast.Term) {
	for _, t := range ts {
		d.term(t)
	}
}

func (d *describer) term(t *ast.Term) { d.write(t, false) }

// write writes a term. If fixed is true, its strings and numbers are part of the shape.
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

// scalar writes a string or a number: as it is if fixed is true, otherwise as the n-th constant.
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

// fixed writes the parts of a reference. It leaves out the name of the module's own package.
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
