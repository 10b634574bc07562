package why

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// shown is a value that a condition reads, with what is needed to read and name it.
type shown struct {
	variable string // the author's name
	slot     int    // the slot of the variable, or -1
	base     int    // the slot of the variable that root names, or -1
	root     string // "input" or "data", or the name of a rule or variable; "" if the variable itself is shown
	group    *group
	docs     []string // the leading parts below data, which the data source is asked for
	parts    []part
}

// part is a step of a path: a constant key, or a key in a slot.
type part struct {
	key  value.Value
	slot int
}

const maxShown = 12

// noteOrigin records where a variable gets its value from: v = input.user.role.
func (w *Module) noteOrigin(s *native.Scope, origins map[ast.Var]ast.Ref, e *ast.Expr) {
	t, ok := e.Terms.([]*ast.Term)
	if !ok || !e.IsEquality() || len(t) != 3 || e.Negated {
		return
	}
	for _, p := range [][2]*ast.Term{{t[1], t[2]}, {t[2], t[1]}} {
		v, ok := p[0].Value.(ast.Var)
		if !ok || origins[v] != nil {
			continue
		}
		switch from := p[1].Value.(type) {
		case ast.Ref:
			if g, _ := w.groupOf(s, from); g == nil && len(e.With) == 0 {
				origins[v] = rooted(origins, from)
			}
		case ast.Var:
			origins[v] = origins[from]
		}
	}
}

// rooted replaces the variable at the head of a reference with the reference that it stands for. It
// returns nil if that is unknown.
func rooted(origins map[ast.Var]ast.Ref, ref ast.Ref) ast.Ref {
	if ref[0].Equal(ast.InputRootDocument) || ref[0].Equal(ast.DefaultRootDocument) {
		return ref
	}
	v, ok := ref[0].Value.(ast.Var)
	if !ok || origins[v] == nil {
		return nil
	}
	return append(append(ast.Ref{}, origins[v]...), ref[1:]...)
}

// noteShown records the values that an expression reads.
func (w *Module) noteShown(s *native.Scope, cond *condition, e *ast.Expr, before map[ast.Var]bool, origins map[ast.Var]ast.Ref) {
	add := func(x shown) {
		if len(cond.shows) < maxShown {
			cond.shows = append(cond.shows, x)
		}
	}
	operator := map[*ast.Term]bool{}
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Expr:
			if t, ok := x.Terms.([]*ast.Term); ok && len(t) > 0 {
				operator[t[0]] = true
			}
		case *ast.Term:
			if operator[x] {
				return true
			}
			switch v := x.Value.(type) {
			case ast.Ref:
				if sh, ok := w.shownRef(s, v, origins); ok {
					add(sh)
				}
				for _, p := range v[1:] {
					w.shownVar(s, p, before, origins, add)
				}
				return true
			case ast.Var:
				w.shownVar(s, x, before, origins, add)
			}
		}
		return false
	}).Walk(e)
}

// shownVar shows a variable that an earlier condition bound, under the author's name.
func (w *Module) shownVar(s *native.Scope, t *ast.Term, before map[ast.Var]bool, origins map[ast.Var]ast.Ref, add func(shown)) {
	v, ok := t.Value.(ast.Var)
	if !ok || !before[v] {
		return
	}
	name := w.authorName(v)
	if name == "" {
		if o := origins[v]; o != nil {
			if sh, ok := w.shownRef(s, o, origins); ok {
				add(sh)
			}
		}
		return
	}
	sh := shown{variable: name, slot: s.Slot(v), base: -1}
	if o := origins[v]; o != nil {
		if from, ok := w.shownRef(s, o, origins); ok {
			sh.root, sh.group, sh.docs, sh.parts = from.root, from.group, from.docs, from.parts
		}
	}
	add(sh)
}

// authorName returns the author's name of a variable, or "" for a variable that the compiler made.
func (w *Module) authorName(v ast.Var) string {
	if n, ok := w.names[v]; ok {
		v = n
	}
	if v.IsGenerated() || v.IsWildcard() || strings.HasPrefix(string(v), "__local") {
		return ""
	}
	return string(v)
}

// sources returns where the arguments of a function come from; nil for computed ones.
func (w *Module) sources(s *native.Scope, args []*ast.Term, origins map[ast.Var]ast.Ref) []*shown {
	out := make([]*shown, len(args))
	for i, a := range args {
		ref, ok := a.Value.(ast.Ref)
		if v, isVar := a.Value.(ast.Var); isVar {
			if ref, ok = origins[v], origins[v] != nil; !ok && w.authorName(v) != "" {
				out[i] = &shown{slot: -1, base: s.Slot(v), root: w.authorName(v)}
				continue
			}
		}
		if ok {
			if sh, ok := w.shownRef(s, ref, origins); ok {
				out[i] = &sh
			}
		}
	}
	return out
}

// shownRef describes the value of a reference.
func (w *Module) shownRef(s *native.Scope, ref ast.Ref, origins map[ast.Var]ast.Ref) (shown, bool) {
	if g, used := w.groupOf(s, ref); g != nil {
		if g.Kind() == native.Function {
			return shown{}, false
		}
		return shown{slot: -1, base: -1, root: g.Name(), group: g, parts: partsOf(s, ref[used:])}, true
	}
	if name, used, ok := s.Find(ref); ok { // a rule of a library
		if lib := w.rules(name); lib != nil {
			return shown{slot: -1, base: -1, root: name, group: lib, parts: partsOf(s, ref[used:])}, true
		}
		return shown{}, false
	}
	if v, ok := ref[0].Value.(ast.Var); ok && s.IsBound(v) && origins[v] == nil {
		if name := w.authorName(v); name != "" {
			return shown{slot: -1, base: s.Slot(v), root: name, parts: partsOf(s, ref[1:])}, true
		}
	}
	ref = rooted(origins, ref)
	if len(ref) < 2 {
		return shown{}, false // input as a whole explains nothing
	}
	sh := shown{slot: -1, base: -1, root: "input"}
	rest := ref[1:]
	if ref[0].Equal(ast.DefaultRootDocument) {
		sh.root = "data"
		sh.docs, rest = native.ConstantPath(rest)
	}
	sh.parts = partsOf(s, rest)
	return sh, true
}

// partsOf returns the steps of a path, up to the first whose key is unknown.
func partsOf(s *native.Scope, terms []*ast.Term) []part {
	var out []part
	for _, t := range terms {
		if ast.IsConstant(t.Value) {
			v, err := value.FromAST(t.Value)
			if err != nil {
				return out
			}
			out = append(out, part{key: v, slot: -1})
			continue
		}
		v, ok := t.Value.(ast.Var)
		if !ok || !s.IsBound(v) {
			return out // a variable that only a comprehension binds
		}
		out = append(out, part{slot: s.Slot(v)})
	}
	return out
}

// seen returns the values that a condition reads, in the present state of the machine.
func (q *Inquiry) seen(c *condition) []Seen {
	var out []Seen
next:
	for i := range c.shows {
		x := q.read(&c.shows[i])
		for _, had := range out {
			if had.Path == x.Path && had.Variable == x.Variable {
				continue next
			}
		}
		out = append(out, x)
	}
	return out
}

// read returns a value in the present state of the machine, with its path.
func (q *Inquiry) read(sh *shown) Seen {
	m := q.m
	out := Seen{Variable: sh.variable}
	if sh.root == "" {
		out.Path, out.Value = sh.variable, m.Slots[sh.slot]
		if from := q.origin[sh.slot]; from != "" {
			out.Path = from
		}
		return out
	}
	path := append(make([]byte, 0, 64), sh.root...)
	if sh.base >= 0 && q.origin[sh.base] != "" {
		path = append(path[:0], q.origin[sh.base]...)
	}
	var v value.Value
	get := value.Value.Lookup
	switch {
	case sh.group != nil:
		v = sh.group.Value(m)
	case sh.base >= 0:
		v = m.Slots[sh.base]
	case sh.root == "data":
		for _, p := range sh.docs {
			path = appendKey(path, value.String(p))
		}
		v = m.Document(sh.docs)
		get = native.BaseLookup
	default:
		v = m.Input()
	}
	for _, p := range sh.parts {
		key := p.key
		if p.slot >= 0 {
			key = m.Slots[p.slot]
		}
		if !key.Defined() {
			break
		}
		path = appendKey(path, key)
		v = get(v, key)
	}
	if sh.slot >= 0 {
		v = m.Slots[sh.slot]
	}
	out.Path, out.Value = string(path), v
	return out
}

// appendKey writes a step of a path as Rego does: .role, [0], ["a b"].
func appendKey(dst []byte, key value.Value) []byte {
	if s, ok := key.Str(); ok && ast.IsVarCompatibleString(s) {
		return append(append(dst, '.'), s...)
	}
	if key.Kind() >= value.ArrayKind {
		return append(dst, "[...]"...)
	}
	return append(key.AppendJSON(append(dst, '[')), ']')
}
