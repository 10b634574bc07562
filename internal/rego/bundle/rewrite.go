package bundle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// In a bundle two controls may have the same package, and a stock OPA takes an
// error of a built-in for "undefined", which would turn a failing deny rule
// into no deny at all. So each control is rewritten: into a package of its own,
// gatehouse.controls.c<id>, its libraries into gatehouse.libraries.l<id>v<version>, and with the built-ins that can fail replaced by
// functions of gatehouse.strict that end the evaluation with an error when the
// built-in yields nothing. A stock OPA then answers with an error, where Decide
// answers DENY with Err set; every enforcement point denies on both.

// strictSkip are the built-ins that are left as they are: they cannot fail, or
// are undefined for good input too (max of nothing).
var strictSkip = strings.Fields(`
eq equal neq lt lte gt gte assign internal.print internal.template_string
is_array is_boolean is_null is_number is_object is_set is_string type_name
max min product uuid.parse json.patch json.remove json.filter object.get
print trace walk time.now_ns rand.intn uuid.rfc4122 rego.metadata.chain rego.metadata.rule
json.is_valid yaml.is_valid regex.is_valid base64.is_valid net.cidr_is_valid semver.is_valid uri.is_valid`)

// controlKey is a control's name in a bundle.
func controlKey(id int64) string { return fmt.Sprintf("c%d", id) }

// libraryKey is a library's name in a bundle: two controls may have been
// compiled with two versions.
func libraryKey(l lang.Library) string { return fmt.Sprintf("l%dv%d", l.ID, l.Version) }

// move is a package here, and what it is in the bundle.
type move struct{ from, to ast.Ref }

// movesOf says where a control and its libraries go; the control's own is the first.
// Grants of access are read through a rule that leaves out those whose time it is not.
func movesOf(control int64, mod *ast.Module, libs []lang.LinkedModule) []move {
	out := []move{{mod.Package.Path, bundlePackage("controls", controlKey(control))}}
	for _, l := range libs {
		out = append(out, move{l.Module.Package.Path, bundlePackage("libraries", libraryKey(l.Library))})
	}
	return append(out, move{ast.MustParseRef("data.grants"), ast.MustParseRef("data.gatehouse.grants")})
}

func bundlePackage(kind, key string) ast.Ref {
	return ast.Ref{ast.DefaultRootDocument, ast.StringTerm("gatehouse"), ast.StringTerm(kind), ast.StringTerm(key)}
}

// rewritten is a module of a control for a bundle, its own or a library's, and
// the names of gatehouse.strict that it uses.
func rewritten(control int64, moves []move, module *ast.Module) (text string, strict []string, err error) {
	mod := module.Copy()
	w := &rewriter{moves: moves, own: lang.TopNames(mod), used: map[string]bool{}}
	for _, imp := range mod.Imports {
		if ref, ok := imp.Path.Value.(ast.Ref); ok && !w.moved(ref).Equal(ref) {
			if imp.Alias == "" {
				imp.Alias = imp.Name()
			}
			imp.Path.Value = w.moved(ref)
		}
	}
	mod.Package.Path = w.moved(mod.Package.Path)
	for _, rule := range mod.Rules {
		if err := w.rule(rule); err != nil {
			return "", nil, fmt.Errorf("rewrite control %d for a bundle: %w", control, err)
		}
	}
	out, err := format.AstWithOpts(mod, format.Opts{RegoVersion: ast.RegoV1})
	if err != nil {
		return "", nil, fmt.Errorf("write control %d for a bundle: %w", control, err)
	}
	return string(out), slices.Sorted(maps.Keys(w.used)), nil
}

// rewriter changes the rules of one module in place.
type rewriter struct {
	moves []move
	own   map[string]bool // names that hide built-ins
	used  map[string]bool // of gatehouse.strict
}

// rule rewrites a rule and its else branches. The value of a default rule may
// hold no reference, so what is empty in it is written as a comprehension.
func (w *rewriter) rule(r *ast.Rule) error {
	for e := r; e != nil; e = e.Else {
		w.patterns(e)
	}
	return w.rewrite(r, r.Default)
}

func (w *rewriter) rewrite(x any, constant bool) error {
	_, err := ast.Transform(ast.NewGenericTransformer(func(x any) (any, error) {
		switch x := x.(type) {
		case *ast.SomeDecl: // which Transform does not go into; its `in` binds and is no call
			for _, s := range x.Symbols {
				if call, ok := s.Value.(ast.Call); ok {
					if err := w.rewrite(ast.Args(call[1:]), constant); err != nil {
						return nil, err
					}
				}
			}
		case *ast.Expr:
			if terms, ok := x.Terms.([]*ast.Term); ok {
				w.operator(terms)
			}
		case ast.Call:
			w.operator(x)
		case ast.Ref:
			return w.moved(x), nil
		case ast.Value:
			if name := emptyName(x); name != "" && constant {
				return emptyComprehension(x), nil
			} else if name != "" {
				w.used[name] = true
				return strictRef(name), nil
			}
		}
		return x, nil
	}), x)
	return err
}

func (w *rewriter) moved(ref ast.Ref) ast.Ref {
	for _, m := range w.moves {
		if ref.HasPrefix(m.from) {
			return append(slices.Clone(m.to), ref[len(m.from):]...)
		}
	}
	return ref
}

// operator points a call at the function of gatehouse.strict that stands for
// its built-in.
func (w *rewriter) operator(call []*ast.Term) {
	if len(call) == 0 {
		return
	}
	name := lang.BuiltinName(call[0])
	if name == "" || w.own[strings.SplitN(name, ".", 2)[0]] || slices.Contains(strictSkip, name) {
		return
	}
	b := ast.BuiltinMap[name]
	if b == nil || b.Relation || b.Decl.Result() == nil || isMember(name) && untyped(call[len(call)-1]) {
		return
	}
	w.used[name] = true
	call[0] = ast.NewTerm(strictRef(strictName(name)))
}

// patterns moves what is empty in the arguments of a function into its body:
// an argument may hold no reference.
func (w *rewriter) patterns(r *ast.Rule) {
	n := 0
	for i, arg := range r.Head.Args {
		v, err := ast.Transform(ast.NewGenericTransformer(func(x any) (any, error) {
			v, ok := x.(ast.Value)
			if !ok || emptyName(v) == "" {
				return x, nil
			}
			n++
			name := ast.VarTerm(fmt.Sprintf("%s%d", emptyVar, n))
			r.Body.Append(ast.Equality.Expr(name, ast.NewTerm(v)))
			return name.Value, nil
		}), arg)
		if changed, ok := v.(ast.Value); ok && err == nil {
			r.Head.Args[i].Value = changed
		}
	}
}

// Since OPA 1.21 the type checker knows that [], {} and set() hold nothing, and
// that what is looked for with `in` must be of the collection's type. Either
// makes a type error, for the whole bundle, of what here and in an older OPA is
// merely undefined or false. So both are hidden from it: what is empty is asked
// of a rule whose type is open, and `in` of a function.

// emptyVar begins the variables that the rewriting makes.
const emptyVar = "gatehouse_empty_"

// emptyName is the rule that stands for a literal without members, "" for
// anything else.
func emptyName(v ast.Value) string {
	switch v := v.(type) {
	case *ast.Array:
		if v.Len() == 0 {
			return "empty_array"
		}
	case ast.Object:
		if v.Len() == 0 {
			return "empty_object"
		}
	case ast.Set:
		if v.Len() == 0 {
			return "empty_set"
		}
	}
	return ""
}

// emptyComprehension is a literal without members as a comprehension that finds
// none, of a type that is open.
func emptyComprehension(v ast.Value) ast.Value {
	name := ast.VarTerm(emptyVar)
	none := ast.NewBody(ast.NewExpr(ast.BooleanTerm(false)), ast.Assign.Expr(name, ast.NewTerm(ast.InputRootRef)))
	switch v.(type) {
	case *ast.Array:
		return &ast.ArrayComprehension{Term: name, Body: none}
	case ast.Object:
		return &ast.ObjectComprehension{Key: name, Value: name, Body: none}
	default:
		return &ast.SetComprehension{Term: name, Body: none}
	}
}

func isMember(name string) bool { return name == ast.Member.Name || name == ast.MemberWithKey.Name }

// untyped reports whether no type checker knows what t is.
func untyped(t *ast.Term) bool {
	ref, ok := t.Value.(ast.Ref)
	if !ok || len(ref) == 0 {
		return false
	}
	return ref[0].Equal(ast.InputRootDocument) || ref.HasPrefix(ast.MustParseRef("data.pip")) || ref.HasPrefix(ast.MustParseRef("data.resources")) ||
		ref.HasPrefix(ast.MustParseRef("data.grants")) || ref.HasPrefix(ast.MustParseRef("data.gatehouse.grants"))
}

func strictRef(name string) ast.Ref {
	return ast.Ref{ast.DefaultRootDocument, ast.StringTerm("gatehouse"), ast.StringTerm("strict"), ast.StringTerm(name)}
}

// strictName is the name of the function for a built-in: never its own, which
// would then be called in place of the built-in.
func strictName(builtin string) string { return "try_" + strings.ReplaceAll(builtin, ".", "_") }

// strictModule holds the functions that stand for the built-ins in names.
func strictModule(names []string) string {
	var b strings.Builder
	b.WriteString(`# Built-ins that end the evaluation with an error where OPA alone would take
# their failure for "undefined".
package gatehouse.strict

# Two values for one rule: the one error that Rego itself can raise.
failed := x if {
	some x in [1, 2]
}
`)
	for _, name := range names {
		if text, ok := emptyRules[name]; ok {
			b.WriteString("\n" + text + "\n")
			continue
		}
		n := len(ast.BuiltinMap[name].Decl.FuncArgs().Args)
		args := make([]string, n)
		for i := range args {
			args[i] = fmt.Sprintf("a%d", i)
		}
		list := strings.Join(args, ", ")
		fmt.Fprintf(&b, "\n%s(%s) := r if {\n\tr := %s(%s)\n} else := failed\n", strictName(name), list, name, list)
	}
	return b.String()
}

// emptyRules are the rules that stand for literals without members.
var emptyRules = map[string]string{
	"empty_array":  "empty_array := [x | false; x := input]",
	"empty_object": "empty_object := {x: x | false; x := input}",
	"empty_set":    "empty_set := {x | false; x := input}",
}

// outcomeModule says what a control's rules come to, word for word
// what the engine does (rego/outcome.go).
func outcomeModule(c *rego.Control) string {
	var b strings.Builder
	key, has := controlKey(c.Meta().ID), c.Rules()
	fmt.Fprintf(&b, "package gatehouse.outcomes.%s\n\nimport data.gatehouse.controls.%s as control\nimport data.gatehouse.rules\n", key, key)
	if len(c.Broken()) > 0 {
		problem := regoString(c.Eval(context.Background(), value.Value{}, nil, rego.Limits{}).Reason) // whatever the input
		return fmt.Sprintf("package gatehouse.outcomes.%s\n\nverdict := {\"effect\": \"DENY\", \"mask\": {}, \"problem\": %s}\n\nreason := %s\n", key, problem, problem)
	}
	broken := func(msg string) string {
		return regoString(fmt.Sprintf("Control %q could not be evaluated: ", c.Meta().Name) + msg)
	}
	b.WriteString("\nverdict := {\"effect\": \"DENY\", \"mask\": {}} if {\n")
	if has.Deny {
		b.WriteString("\trules.denies(rules.value(control.deny))\n")
	} else {
		b.WriteString("\tfalse\n")
	}
	if has.Allow {
		b.WriteString("} else := {\"effect\": \"DENY\", \"mask\": {}} if {\n\trules.value(control.allow) == false\n")
		fmt.Fprintf(&b, "} else := {\"effect\": \"DENY\", \"mask\": {}, \"problem\": concat(\"\", [%s, type_name(control.allow)])} if {\n\trules.value(control.allow) != true\n", broken("allow must be true or false, not "))
	}
	if has.Mask {
		fmt.Fprintf(&b, "} else := {\"effect\": \"DENY\", \"mask\": {}, \"problem\": %s} if {\n\trules.too_many(rules.value(control.mask))\n", regoString(rego.ReasonLimit))
		fmt.Fprintf(&b, "} else := {\"effect\": \"DENY\", \"mask\": {}, \"problem\": concat(\"\", [%s, rules.mask_problem(rules.value(control.mask))])} if {\n\ttrue\n", broken(""))
		b.WriteString("} else := {\"effect\": \"MASK\", \"mask\": m} if {\n\tm := rules.mask(rules.value(control.mask))\n\tcount(m) > 0\n")
	}
	if has.Allow {
		b.WriteString("} else := {\"effect\": \"ALLOW\", \"mask\": {}} if {\n\trules.value(control.allow) == true\n")
	}
	b.WriteString("} else := {\"effect\": \"NO_MATCH\", \"mask\": {}}\n")
	b.WriteString("\nreason := problem if {\n\tproblem := object.get(verdict, \"problem\", \"\")\n\tproblem != \"\"\n")
	if has.Reason {
		b.WriteString("} else := rules.cut(r) if {\n\tr := rules.value(control.reason)\n\tis_string(r)\n\tr != \"\"\n")
	}
	if has.Deny {
		b.WriteString("} else := rules.cut(r) if {\n\trules.denies(rules.value(control.deny))\n\tr := rules.joined(rules.value(control.deny))\n\tr != \"\"\n")
	}
	fmt.Fprintf(&b, "} else := rules.cut(object.get({\"DENY\": %s, \"MASK\": %s, \"ALLOW\": %s}, verdict.effect, \"\"))\n",
		regoString(c.DefaultReason(rego.Deny)), regoString(c.DefaultReason(rego.Mask)), regoString(c.DefaultReason(rego.Allow)))
	return b.String()
}

// regoString quotes s as a Rego string: data stays data, whatever is in a name.
func regoString(s string) string { return ast.String(s).String() }
