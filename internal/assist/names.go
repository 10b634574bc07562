package assist

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// indexer collects the occurrences of names in one file.
type indexer struct {
	*index
	packages map[string]bool // packages of all files
	rules    map[string]bool // names that rules of this file define
	imports  map[string]string
	seen     map[int]bool
}

// indexAll indexes files. A file that does not parse has no occurrences.
func indexAll(files []File) []*index {
	out := make([]*index, len(files))
	packages := map[string]bool{}
	for i, f := range files {
		out[i] = &index{file: f, module: parse(f.Text), aliases: map[string]string{}}
		if m := out[i].module; m != nil {
			packages[packageOf(m)] = true
		}
	}
	for _, x := range out {
		if x.module != nil {
			(&indexer{index: x, packages: packages, rules: map[string]bool{}, imports: x.aliases, seen: map[int]bool{}}).read()
		}
	}
	return out
}

func packageOf(m *ast.Module) string { return strings.TrimPrefix(m.Package.Path.String(), "data.") }

func (x *indexer) read() {
	m := x.module
	pkg := packageOf(m)
	x.scope = ruleScope(x.file.Name, pkg)
	for _, r := range m.Rules {
		x.rules[ruleName(r)] = true
	}
	if at, ok := locate(x.file.Text, m.Package.Location, pkg, len(x.file.Text)); ok {
		x.add(at, target{kind: targetPackage, scope: x.scope}, true)
	}
	for _, i := range m.Imports {
		x.imported(i)
	}
	for n, r := range m.Rules {
		x.rule(n, r)
	}
	slices.SortFunc(x.occurrences, func(a, b occurrence) int { return cmp.Compare(a.span.Start, b.span.Start) })
	met := map[target]bool{}
	for i := range x.occurrences { // the first occurrence of a variable declares it
		o := &x.occurrences[i]
		o.declares = o.declares || o.target.kind == targetVariable && !met[o.target]
		met[o.target] = true
	}
}

func ruleName(r *ast.Rule) string { return string(r.Head.Reference[0].Value.(ast.Var)) }

// ruleScope returns the scope of the rules of a package. A library's package is unique. Two
// controls may have the same package, so their scope includes the folder of the file.
func ruleScope(file, pkg string) string {
	if pkg == "lib" || strings.HasPrefix(pkg, "lib.") {
		return pkg
	}
	return file[:strings.LastIndexByte(file, '/')+1] + "\x00" + pkg
}

// add adds an occurrence, unless there is one at its position.
func (x *indexer) add(at Span, t target, declares bool) {
	if !x.seen[at.Start] {
		x.seen[at.Start] = true
		x.occurrences = append(x.occurrences, occurrence{at, t, declares})
	}
}

func (x *indexer) imported(i *ast.Import) {
	ref, ok := i.Path.Value.(ast.Ref)
	if !ok || len(ref) < 2 {
		return
	}
	end := len(x.file.Text)
	if n := strings.IndexByte(x.file.Text[i.Location.Offset:], '\n'); n >= 0 {
		end = i.Location.Offset + n
	}
	last, ok := ref[len(ref)-1].Value.(ast.String)
	if !ok {
		return
	}
	alias := string(i.Alias)
	var at Span
	var found bool
	if loc := ref[len(ref)-1].Location; alias != "" {
		// Only the word as and comments are between the path and the alias.
		behind := &ast.Location{Offset: loc.Offset + len(loc.Text)}
		at, found = locate(x.file.Text, behind, alias, len(x.file.Text))
	} else {
		alias = string(last)
		at, found = locate(x.file.Text, loc, alias, end)
	}
	x.imports[alias] = strings.TrimPrefix(ref.String(), "data.")
	if found {
		x.add(at, target{targetImport, x.file.Name, alias}, true)
	}
	x.path(ref, end)
}

// path adds the packages and the rule that a reference names.
func (x *indexer) path(ref ast.Ref, end int) {
	root, ok := ref[0].Value.(ast.Var)
	pkg, aliased := x.imports[string(root)]
	if !ok || !aliased && root != "data" {
		return
	}
	for _, t := range ref[1:] {
		name, ok := t.Value.(ast.String)
		if !ok {
			return
		}
		at, found := locate(x.file.Text, t.Location, string(name), end)
		full := strings.TrimPrefix(pkg+"."+string(name), ".")
		switch {
		case x.packages[full]:
			if found {
				x.add(at, target{kind: targetPackage, scope: ruleScope(x.file.Name, full)}, false)
			}
		case x.packages[pkg]:
			if found {
				x.add(at, target{targetRule, ruleScope(x.file.Name, pkg), string(name)}, false)
			}
			return
		}
		pkg = full
	}
}

// rule adds the occurrences in a rule. The scope of variables is the whole rule: two variables with
// the same name in separate comprehensions count as one.
func (x *indexer) rule(n int, r *ast.Rule) {
	end := max(r.Location.Offset+len(r.Location.Text), r.Head.Location.Offset+len(r.Head.Location.Text))
	if r.Default {
		end = len(x.file.Text)
	}
	name := ruleName(r)
	if at, ok := locate(x.file.Text, r.Head.Reference[0].Location, name, len(x.file.Text)); ok {
		x.add(at, target{targetRule, x.scope, name}, true)
	}
	local := declared(r)
	for _, t := range r.Head.Reference[1:] { // the visitor skips them
		if v, ok := t.Value.(ast.Var); ok {
			x.variable(n, string(v), local, t.Location, end)
		}
	}
	ast.NewGenericVisitor(func(v any) bool {
		switch v := v.(type) {
		case ast.Ref:
			x.path(v, end)
		case *ast.Term:
			if name, ok := v.Value.(ast.Var); ok {
				x.variable(n, string(name), local, v.Location, end)
			}
		}
		return false
	}).Walk(r)
}

func (x *indexer) variable(rule int, name string, local map[string]bool, loc *ast.Location, end int) {
	at, ok := locate(x.file.Text, loc, name, end)
	_, imported := x.imports[name]
	switch {
	case !ok || name == "_" || name == "input" || name == "data":
	case local[name]:
		x.add(at, target{targetVariable, x.variableScope(rule), name}, false)
	case x.rules[name]:
		x.add(at, target{targetRule, x.scope, name}, false)
	case imported:
		x.add(at, target{targetImport, x.file.Name, name}, false)
	case !builtinRoots()[name]:
		x.add(at, target{targetVariable, x.variableScope(rule), name}, false)
	}
}

// builtinRoots returns the first parts of the names of built-in functions, such as net for
// net.cidr_contains.
var builtinRoots = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{}
	for name := range ast.BuiltinMap {
		root, _, _ := strings.Cut(name, ".")
		out[root] = true
	}
	return out
})

func (x *indexer) variableScope(rule int) string {
	return x.file.Name + "\x00" + strconv.Itoa(rule)
}

// declared returns the names that a rule declares as arguments or by some, every and :=.
func declared(r *ast.Rule) map[string]bool {
	out := map[string]bool{}
	add := func(t *ast.Term) {
		ast.WalkVars(t, func(v ast.Var) bool {
			out[string(v)] = true
			return false
		})
	}
	for ; r != nil; r = r.Else {
		for _, a := range r.Head.Args {
			add(a)
		}
		ast.NewGenericVisitor(func(v any) bool {
			switch v := v.(type) {
			case *ast.SomeDecl:
				for _, s := range v.Symbols {
					if call, ok := s.Value.(ast.Call); ok { // some k, v in xs: the last operand is the collection
						for _, t := range call[1 : len(call)-1] {
							add(t)
						}
						continue
					}
					add(s)
				}
			case *ast.Every:
				add(v.Key)
				add(v.Value)
			case *ast.Expr:
				if v.IsAssignment() {
					add(v.Operand(0))
				}
			}
			return false
		}).Walk(r)
	}
	return out
}
