package lang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// Attribute is a part of input that a control reads.
type Attribute struct {
	// Key is the path without "input.".
	Key   string `json:"key" doc:"Path below input"`
	Label string `json:"label" doc:"The key in words"`
	// Type is string, number, boolean, array or object, guessed from how the control uses the
	// value; string if the use does not show it.
	Type         string `json:"type" enum:"string,number,boolean,array,object"`
	DefaultValue any    `json:"default_value" doc:"The value that the control uses when this one is absent; null when it names none"`
	Description  string `json:"description" doc:"Where the control reads it"`
	// Values are the literals that the control compares the value (or the elements of an array)
	// with, in source order.
	Values []any `json:"values" doc:"Values that the control compares it with"`
}

// maxValues limits the values of one attribute.
const maxValues = 50

// Attributes returns the parts of input that source refers to, sorted by key. If source does not
// parse, it returns the issues instead. Source that parses but does not compile still has its
// attributes.
func Attributes(source string) (list []Attribute, issues []Issue) {
	defer func() {
		// OPA's parser may panic on hostile text.
		if p := recover(); p != nil {
			list, issues = nil, []Issue{CrashIssue("the source cannot be read", p, parseRule)}
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

// The weights of the votes for the type of an attribute. The type with the greatest sum wins.
const (
	hint      = 1  // the use suits the type
	signature = 2  // the signature of an operator or built-in requires the type
	literal   = 6  // the value is compared with a literal of the type
	structure = 60 // a member or element is read, so it is an object or array
)

// finding is what is known about one path below input.
type finding struct {
	path     []string
	direct   bool // the source refers to the path itself, not only to members below it
	line     int
	votes    map[string]int
	values   []value.Value
	fallback value.Value
}

// finder walks a module as it was parsed. In a compiled module it would no longer be clear which
// values a literal is compared with.
type finder struct {
	found   map[string]*finding
	imports map[ast.Var]ast.Ref
	params  map[string][]ast.Ref // by function: the references that its parameters stand for
	locals  map[ast.Var]ast.Ref  // the variables of the current rule
	lines   []string
}

func (f *finder) module(mod *ast.Module) {
	f.imports, f.params = map[ast.Var]ast.Ref{}, map[string][]ast.Ref{}
	for _, imp := range mod.Imports {
		if ref, ok := imp.Path.Value.(ast.Ref); ok && len(ref) > 1 && ref[0].Equal(ast.InputRootDocument) {
			f.imports[imp.Name()] = ref
		}
	}
	// Two passes: the arguments of a function are known only after its calls were visited.
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

// body visits each expression, and then what is nested in it.
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

// walk visits the calls, comprehensions and references in a term or a head.
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
						f.record(p, x.Location)
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

// reference records a reference, and those within its brackets.
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
	f.record(path, loc)
	if len(rest) > 0 {
		f.countType(path, "array", structure)
	}
}

// resolve replaces an import or a local variable at the head of a reference with the reference that
// it stands for. It returns nil if the reference does not lead to input.
func (f *finder) resolve(ref ast.Ref) ast.Ref {
	if len(ref) == 0 {
		return nil
	}
	if ref[0].Equal(ast.InputRootDocument) {
		return slices.Clone(ref) // callers may append to it
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

// inputParts returns the leading constant parts of a reference below input, and the rest.
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

// path returns the path below input that a term refers to; nil for any other term.
func (f *finder) path(t *ast.Term) []string {
	var ref ast.Ref
	switch v := t.Value.(type) {
	case ast.Ref:
		ref = v
	case ast.Var:
		ref = ast.Ref{t}
	case ast.Call:
		return f.objectGet(v)
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

// keyOf returns a path as the key of an attribute.
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

// record records that the source refers to a path. loc is nil if a caller only adds to what is
// known about the path.
func (f *finder) record(path []string, loc *ast.Location) *finding {
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
		x.line = cmp.Or(x.line, loc.Row)
	}
	return x
}

func (f *finder) countType(path []string, kind string, weight int) {
	if x := f.record(path, nil); x != nil {
		x.votes[kind] += weight
	}
}

// suggest adds a literal that the value at a path is compared with.
func (f *finder) suggest(path []string, v value.Value) {
	x := f.record(path, nil)
	if x == nil || len(x.values) >= maxValues || slices.ContainsFunc(x.values, func(o value.Value) bool { return value.Equal(o, v) }) {
		return
	}
	x.values = append(x.values, v)
}

// attributes returns the findings as attributes, sorted by key.
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

// kind returns the type with the most votes.
func (x *finding) kind() string {
	best, most := "string", 0
	for _, k := range []string{"string", "number", "boolean", "array", "object"} {
		if n := x.votes[k]; n > most {
			best, most = k, n
		}
	}
	return best
}

// label returns a path in words: "User job title" for user.job_title.
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
	return fmt.Sprintf("Line %d: %s", x.line, truncate.Text(strings.Join(strings.Fields(f.lines[x.line-1]), " "), 160, "..."))
}
