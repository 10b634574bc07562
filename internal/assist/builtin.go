package assist

import (
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// builtin is a function that controls may call.
type builtin struct {
	name, signature, doc, category string
	args                           []string
}

// builtins returns the functions that controls may call by name, sorted by name.
var builtins = sync.OnceValue(func() []builtin {
	var out []builtin
	for _, name := range lang.Builtins() {
		b, ok := ast.BuiltinMap[name]
		if !ok || b.Infix != "" || strings.HasPrefix(name, "internal.") {
			continue
		}
		out = append(out, describe(b))
	}
	return out
})

func describe(b *ast.Builtin) builtin {
	out := builtin{name: b.Name, doc: b.Description}
	if len(b.Categories) > 0 {
		out.category = b.Categories[0]
	}
	var docs, params []string
	for i, arg := range b.Decl.NamedFuncArgs().Args {
		name, kind := "arg", types.Sprint(arg)
		if named, ok := arg.(*types.NamedType); ok {
			name, kind = named.Name, types.Sprint(named.Type)
			if named.Descr != "" {
				docs = append(docs, "- `"+named.Name+"`: "+named.Descr)
			}
		} else if i > 0 {
			name += string(rune('0' + i%10))
		}
		out.args = append(out.args, name)
		params = append(params, name+": "+kind)
	}
	result := "boolean"
	if r := b.Decl.NamedResult(); r != nil {
		result = types.Sprint(r)
		if named, ok := r.(*types.NamedType); ok {
			result = types.Sprint(named.Type)
			if named.Descr != "" {
				docs = append(docs, "- result: "+named.Descr)
			}
		}
	}
	out.signature = b.Name + "(" + strings.Join(params, ", ") + ") → " + result
	if len(docs) > 0 {
		out.doc += "\n\n" + strings.Join(docs, "\n")
	}
	return out
}

func builtinNamed(name string) (builtin, bool) {
	list := builtins()
	i, ok := slices.BinarySearchFunc(list, name, func(b builtin, name string) int { return strings.Compare(b.name, name) })
	if !ok {
		return builtin{}, false
	}
	return list[i], true
}

// keywords are the keywords of Rego and the names of rules that the service evaluates, with their
// documentation in Markdown.
var keywords = []struct{ word, doc string }{
	{"allow", "`allow` (boolean) grants access: false refuses it, undefined has no effect."},
	{"contains", "Makes a rule a set: `deny contains \"why\" if { … }`."},
	{"default", "The value of a rule when no body holds: `default allow := false`."},
	{"deny", "`deny` (boolean, or a set of reasons) refuses access, whatever other controls say."},
	{"else", "The next value of a rule when the body before did not hold."},
	{"every", "Holds when its body holds for each element: `every x in xs { … }`."},
	{"if", "Begins the body of a rule."},
	{"import", "Gives a path a short name."},
	{"in", "Is an element of: `\"hr\" in input.user.roles`."},
	{"mask", "`mask` (a set of paths, or an object path → redact, hash, last4 or remove) hides parts of the answer."},
	{"not", "Holds when the expression does not, or is undefined."},
	{"package", "Names the module; the first statement of a control."},
	{"reason", "`reason` (string) explains the decision to people."},
	{"some", "Declares variables: `some role in input.user.roles`."},
	{"with", "Replaces a value while one expression is evaluated."},
}
