package native

import (
	"encoding/json"
	"fmt"
	goast "go/ast"
	"go/parser"
	gotoken "go/token"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"
)

// offered is the list of built-ins for controls. It is in package lang, which these tests cannot
// import, so they read it from its source.
var offered = sync.OnceValue(func() []*ast.Builtin {
	file, err := parser.ParseFile(gotoken.NewFileSet(), "../lang/capabilities.go", nil, 0)
	if err != nil {
		panic(err)
	}
	var list string
	goast.Inspect(file, func(n goast.Node) bool {
		if v, ok := n.(*goast.ValueSpec); ok && v.Names[0].Name == "offered" {
			list, _ = strconv.Unquote(v.Values[0].(*goast.BasicLit).Value)
		}
		return true
	})
	var out []*ast.Builtin
	for name := range strings.FieldsSeq(list) {
		b := ast.BuiltinMap[name]
		if strings.HasPrefix(name, "internal.") || slices.Contains(notDrawn, name) || b == nil {
			continue
		}
		out = append(out, b)
	}
	return out
})

// notDrawn are built-ins that tests do not call by name (walk, print and metadata have their own
// syntax), or whose results are random. OPA caches the patterns of regex.template_match together
// with those of regex.match, regardless of the delimiters, so the next call of either may be wrong.
var notDrawn = []string{"regex.template_match", "eq", "assign", "print", "walk", "rego.metadata.rule", "rego.metadata.chain", "rand.intn", "uuid.rfc4122"}

// call returns a call of a built-in, with operands of the declared types and sometimes of others.
func (g *maker) call(depth int) string {
	if len(g.focus) == 0 {
		g.focus = offered()
	}
	b := g.focus[g.below(len(g.focus))]
	args := make([]string, 0, 4)
	for _, t := range b.Decl.FuncArgs().Args {
		switch g.below(12) {
		case 0:
			args = append(args, g.hidden(g.anything(b.Name, 2)))
		case 1, 2:
			args = append(args, g.untyped(g.term(depth-1)))
		case 3:
			args = append(args, g.hidden(g.literal(t, b.Name, 2)))
		default:
			args = append(args, g.literal(t, b.Name, 2))
		}
	}
	return b.Name + "(" + strings.Join(args, ", ") + ")"
}

// hidden keeps the type checker from knowing the type of a term. A function would do, but OPA
// remembers the results of functions, and treats 1 and 1.0 as the same operand.
func (g *maker) hidden(text string) string { return "object.get({}, 0, " + text + ")" }

// untyped hides all terms but references, because OPA's compiler rejects rules for the types of
// literals. Sometimes it leaves a literal as it is.
func (g *maker) untyped(text string) string {
	if strings.HasPrefix(text, "input") || strings.HasPrefix(text, "data") || strings.HasPrefix(text, "u") || g.below(32) == 0 {
		return text
	}
	return g.hidden(text)
}

// literal returns the text of a value of a type that is meaningful to the built-in.
func (g *maker) literal(t types.Type, name string, depth int) string {
	if named, ok := t.(*types.NamedType); ok {
		t = named.Type
	}
	switch t := t.(type) {
	case types.Boolean:
		return g.pick("true", "false")
	case types.Number:
		switch g.below(4) {
		case 0, 1:
			return g.pick("0", "1", "2", "3", "-1", "10")
		case 2:
			return g.pick(g.near...)
		}
		return g.pick(numbers...)
	case types.String:
		return g.quoted(name)
	case *types.Array:
		var out []string
		for i := range t.Len() {
			out = append(out, g.literal(t.Select(i), name, depth-1))
		}
		if t.Dynamic() != nil {
			for range g.below(4) {
				out = append(out, g.literal(t.Dynamic(), name, depth-1))
			}
		}
		return "[" + strings.Join(out, ", ") + "]"
	case *types.Set:
		return g.set(func() string { return g.literal(t.Of(), name, depth-1) })
	case *types.Object:
		return g.objectOf(t, name, depth)
	case types.Any:
		if len(t) > 0 {
			return g.literal(t[g.below(len(t))], name, depth)
		}
	}
	return g.anything(name, depth)
}

func (g *maker) set(element func() string) string {
	n := g.below(4)
	if n == 0 {
		return "set()"
	}
	out := make([]string, n)
	for i := range out {
		out[i] = element()
	}
	return "{" + strings.Join(out, ", ") + "}"
}

func (g *maker) objectOf(t *types.Object, name string, depth int) string {
	var out []string
	for _, p := range t.StaticProperties() {
		key, _ := json.Marshal(p.Key)
		out = append(out, string(key)+": "+g.literal(p.Value, name, depth-1))
	}
	if p := t.DynamicProperties(); p != nil {
		for range g.below(4) {
			out = append(out, g.literal(p.Key, name, 0)+": "+g.literal(p.Value, name, depth-1))
		}
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// quoted returns a string that, mostly, is meaningful to a built-in.
func (g *maker) quoted(name string) string {
	list := textsOf(name)
	if g.below(6) == 0 {
		list = words
	}
	text, _ := json.Marshal(g.pick(list...))
	return string(text)
}

// patches are operations of json.patch.
var patches = []string{
	`{"op": "add", "path": "/a", "value": 1}`, `{"op": "add", "path": "/a/-", "value": 1.0}`, `{"op": "remove", "path": ["a", 0]}`, `{"op": "replace", "path": "a/b", "value": null}`,
	`{"op": "move", "from": "/a", "path": "/b"}`, `{"op": "copy", "from": ["a"], "path": "/l/0"}`, `{"op": "test", "path": "", "value": {}}`, `{"op": "bad", "path": "/"}`, `{"op": "add", "path": "/1.0", "value": 2}`, `{"op": "add"}`,
}

// anything returns a text of any type.
func (g *maker) anything(name string, depth int) string {
	top := 11
	if depth <= 0 {
		top = 5
	}
	deeper := func() string { return g.anything(name, depth-1) }
	switch g.below(top) {
	case 0:
		return g.pick(numbers...)
	case 1:
		return g.pick(g.near...)
	case 2, 3:
		return g.quoted(name)
	case 4:
		return g.pick("true", "false", "null")
	case 5, 6:
		return "[" + strings.Join([]string{deeper(), deeper(), deeper()}[:g.below(4)], ", ") + "]"
	case 7:
		return g.set(deeper)
	case 8:
		return g.pick(`{1: "n", "1": "s", [1]: "a", {1}: "t"}`, `{"1": "s", 1.0: "n"}`, `{"a": {"b": [1, {"c": 2}]}, "l": [1, 2]}`, `{"a": ["b"], "b": ["a", "c"], "c": []}`, `[{1: 2}, {"1": 2}, [0, 2]]`)
	case 9:
		if name == "json.patch" {
			return "[" + strings.Join([]string{g.pick(patches...), g.pick(patches...)}[:1+g.below(2)], ", ") + "]"
		}
		return fmt.Sprintf("{%s: %s, %s: %s}", g.quoted(name), deeper(), deeper(), deeper())
	}
	return g.ref()
}
