package lang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Attribute is a part of input that a control reads.
type Attribute struct {
	// Key is the path without "input.".
	Key   string `json:"key" doc:"Path below input"`
	Label string `json:"label" doc:"The key in words"`
	// Type is string, number, boolean, array or object, by how the control uses
	// the value; string where nothing tells.
	Type         string `json:"type" enum:"string,number,boolean,array,object"`
	DefaultValue any    `json:"default_value" doc:"The value that the control uses when this one is absent; null when it names none"`
	Description  string `json:"description" doc:"Where the control reads it"`
	// Values are literals that the control compares it with (of an array: its
	// elements), in the order of the text.
	Values []any `json:"values" doc:"Values that the control compares it with"`
}

// maxValues is how many values are suggested for one attribute.
const maxValues = 50

// Attributes are the parts of input that source refers to, by key. Source that
// does not parse has none, and the issues say why; source that parses and does
// not compile still has its attributes.
func Attributes(source string) (list []Attribute, issues []Issue) {
	defer func() {
		// OPA's parser on hostile text.
		if p := recover(); p != nil {
			list, issues = nil, []Issue{CrashIssue("the source cannot be read", p, "rego_parse_error")}
		}
		issues = cleanIssues(source, issues)
	}()
	mod, issues := parse(sourceName, source)
	if issues != nil {
		return nil, issues
	}
	f := &finder{found: map[string]*finding{}, lines: strings.Split(source, "\n")}
	f.module(mod)
	return f.attributes(), nil
}

// The weights of what is known about a type: the greatest sum wins.
const (
	hint      = 1 // the use suits it
	signature = 2 // an operator or built-in wants it
	literal   = 6 // it is compared with such a literal
	structure = 60
)

// finding is what is known about one path below input.
type finding struct {
	path     []string
	direct   bool // referred to itself, not only what is below it
	line     int
	votes    map[string]int
	values   []value.Value
	fallback value.Value
}

// finder walks a parsed module: the compiler's rewriting would hide which
// literal is compared with what.
type finder struct {
	found   map[string]*finding
	imports map[ast.Var]ast.Ref
	params  map[string][]ast.Ref // by function: what its parameters stand for
	locals  map[ast.Var]ast.Ref  // of the rule at hand
	lines   []string
}

func (f *finder) module(mod *ast.Module) {
	f.imports, f.params = map[ast.Var]ast.Ref{}, map[string][]ast.Ref{}
	for _, imp := range mod.Imports {
		if ref, ok := imp.Path.Value.(ast.Ref); ok && len(ref) > 1 && ref[0].Equal(ast.InputRootDocument) {
			f.imports[imp.Name()] = ref
		}
	}
	// Twice: what is passed to a function is known only once its calls were seen.
	for pass := range 2 {
		if pass == 1 {
			f.found = map[string]*finding{}
		}
		for _, r := range mod.Rules {
			for e := r; e != nil; e = e.Else {
				f.rule(e)
			}
		}
	}
}

func (f *finder) rule(r *ast.Rule) {
	f.locals = map[ast.Var]ast.Ref{}
	if refs := f.params[r.Head.Name.String()]; refs != nil {
		for i, a := range r.Head.Args {
			if v, ok := a.Value.(ast.Var); ok && i < len(refs) && refs[i] != nil {
				f.locals[v] = refs[i]
			}
		}
	}
	f.body(r.Body)
	f.walk(r.Head)
}

// body looks at each expression, then at what is nested in it.
func (f *finder) body(body ast.Body) {
	for _, e := range body {
		f.expr(e)
	}
}

func (f *finder) expr(e *ast.Expr) {
	switch t := e.Terms.(type) {
	case *ast.Term:
		if p := f.path(t); p != nil {
			f.countType(p, "boolean", hint)
		}
		f.walk(t)
	case []*ast.Term:
		f.call(t)
		for _, a := range t[1:] {
			f.walk(a)
		}
	case *ast.SomeDecl:
		for _, s := range t.Symbols {
			if c, ok := s.Value.(ast.Call); ok { // some x in xs
				f.members(c)
				f.walk(c[len(c)-1])
			}
		}
	case *ast.Every:
		if p := f.path(t.Domain); p != nil {
			f.countType(p, "array", literal)
		}
		f.element(t.Value, t.Domain)
		f.walk(t.Domain)
		f.body(t.Body)
	default:
		f.walk(t)
	}
	for _, w := range e.With {
		f.walk(w.Value)
	}
}

// walk visits what is nested in a term or a head: calls, comprehensions and
// references.
func (f *finder) walk(x any) {
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case ast.Body:
			f.body(x)
			return true
		case *ast.Expr:
			f.expr(x)
			return true
		case ast.Call:
			f.call(x)
			for _, a := range x[1:] {
				f.walk(a)
			}
			return true
		case *ast.Term:
			ref, ok := x.Value.(ast.Ref)
			if !ok {
				if v, isVar := x.Value.(ast.Var); isVar {
					if p := f.path(ast.NewTerm(ast.Ref{ast.NewTerm(v)})); p != nil {
						f.note(p, x.Location)
					}
				}
				return false
			}
			f.reference(ref, x.Location)
			return true
		}
		return false
	}).Walk(x)
}

// reference notes a reference, and those within its brackets.
func (f *finder) reference(ref ast.Ref, loc *ast.Location) {
	for _, p := range ref[1:] {
		if at := f.path(p); at != nil {
			f.countType(at, "string", hint)
		}
		f.walk(p)
	}
	full := f.resolve(ref)
	if full == nil {
		return
	}
	path, rest := inputParts(full)
	if len(path) == 0 {
		return
	}
	f.note(path, loc)
	if len(rest) > 0 {
		f.countType(path, "array", structure)
	}
}

// resolve is a reference with imports and local names put for what they stand
// for; nil if it does not lead to input.
func (f *finder) resolve(ref ast.Ref) ast.Ref {
	if len(ref) == 0 {
		return nil
	}
	if ref[0].Equal(ast.InputRootDocument) {
		return slices.Clone(ref) // it may be appended to
	}
	v, ok := ref[0].Value.(ast.Var)
	if !ok {
		return nil
	}
	from, ok := f.locals[v]
	if !ok {
		from = f.imports[v]
	}
	if from == nil {
		return nil
	}
	return append(slices.Clone(from), ref[1:]...)
}

// inputParts are the leading parts below input that are written out, and the rest.
func inputParts(ref ast.Ref) (path []string, rest ast.Ref) {
	for i, p := range ref[1:] {
		s, ok := p.Value.(ast.String)
		if !ok {
			return path, ref[i+1:]
		}
		path = append(path, string(s))
	}
	return path, nil
}

// path is the path below input that a term is, as a whole; nil for all else.
func (f *finder) path(t *ast.Term) []string {
	var ref ast.Ref
	switch v := t.Value.(type) {
	case ast.Ref:
		ref = v
	case ast.Var:
		ref = ast.Ref{t}
	case ast.Call:
		return f.lookedUp(v)
	default:
		return nil
	}
	full := f.resolve(ref)
	if full == nil {
		return nil
	}
	path, rest := inputParts(full)
	if len(rest) > 0 {
		return nil
	}
	return path
}

// keyOf writes a path as a key.
func keyOf(path []string) string {
	var b strings.Builder
	for i, p := range path {
		switch {
		case !ast.IsVarCompatibleString(p) && !plainKey(p):
			fmt.Fprintf(&b, "[%s]", ast.String(p).String())
		case i > 0:
			b.WriteString("." + p)
		default:
			b.WriteString(p)
		}
	}
	return b.String()
}

// plainKey reports whether a member's name can stand in a dotted path.
func plainKey(s string) bool {
	return s != "" && !strings.ContainsAny(s, ".[]\"\n") && len(s) < 200
}

// note says that a path is referred to.
func (f *finder) note(path []string, loc *ast.Location) *finding {
	if len(path) == 0 {
		return nil
	}
	key := strings.Join(path, "\x00")
	x := f.found[key]
	if x == nil {
		x = &finding{path: slices.Clone(path), votes: map[string]int{}}
		f.found[key] = x
	}
	if loc != nil {
		x.direct = true
		if x.line == 0 {
			x.line = loc.Row
		}
	}
	return x
}

func (f *finder) countType(path []string, kind string, weight int) {
	if x := f.note(path, nil); x != nil {
		x.votes[kind] += weight
	}
}

// suggest adds a literal that the path is compared with.
func (f *finder) suggest(path []string, v value.Value) {
	x := f.note(path, nil)
	if x == nil || len(x.values) >= maxValues || slices.ContainsFunc(x.values, func(o value.Value) bool { return value.Equal(o, v) }) {
		return
	}
	x.values = append(x.values, v)
}

// attributes are the findings as they are told.
func (f *finder) attributes() []Attribute {
	for _, x := range f.found {
		if len(x.path) > 1 {
			for i := range len(x.path) - 1 {
				if up := f.found[strings.Join(x.path[:i+1], "\x00")]; up != nil {
					up.votes["object"] += structure
				}
			}
		}
	}
	out := []Attribute{}
	for _, x := range f.found {
		if !x.direct {
			continue
		}
		a := Attribute{Key: keyOf(x.path), Label: label(x.path), Type: x.kind(), Values: []any{}, Description: f.description(x)}
		if x.fallback.Defined() {
			a.DefaultValue = x.fallback.Any()
		}
		for _, v := range x.values {
			a.Values = append(a.Values, v.Any())
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b Attribute) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// kind is the type with the most votes.
func (x *finding) kind() string {
	best, most := "string", 0
	for _, k := range []string{"string", "number", "boolean", "array", "object"} {
		if n := x.votes[k]; n > most {
			best, most = k, n
		}
	}
	return best
}

// label is a path in words: user.job_title is "User job title".
func label(path []string) string {
	words := strings.Fields(strings.NewReplacer("_", " ", "-", " ", ".", " ").Replace(strings.Join(path, " ")))
	text := strings.Join(words, " ")
	if text == "" {
		return strings.Join(path, ".")
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func (f *finder) description(x *finding) string {
	if x.line == 0 || x.line > len(f.lines) {
		return ""
	}
	text := strings.Join(strings.Fields(f.lines[x.line-1]), " ")
	if len(text) > 160 {
		text = strings.ToValidUTF8(text[:160], "") + "..."
	}
	return fmt.Sprintf("Line %d: %s", x.line, text)
}
