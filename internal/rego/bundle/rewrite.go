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

// Two controls in a bundle may have the same package. A stock OPA treats an error of a built-in as
// "undefined", so that a failing deny rule would not deny. So each control is rewritten into its own
// package, gatehouse.controls.c<id>, and its libraries into gatehouse.libraries.l<id>v<version>.
// Built-ins that can fail are replaced by functions of gatehouse.strict, which end the evaluation
// with an error if the built-in has no result. A stock OPA then answers with an error where Decide
// answers DENY with Err set. Every enforcement point denies in both cases.

// strictSkip are the built-ins that are not replaced: they cannot fail, or they are undefined for
// valid input too (such as max of an empty collection).
var strictSkip = strings.Fields(`
eq equal neq lt lte gt gte assign internal.print internal.template_string
is_array is_boolean is_null is_number is_object is_set is_string type_name
max min product uuid.parse json.patch json.remove json.filter object.get
print trace walk time.now_ns rand.intn uuid.rfc4122 rego.metadata.chain rego.metadata.rule
json.is_valid yaml.is_valid regex.is_valid base64.is_valid net.cidr_is_valid semver.is_valid uri.is_valid`)

// controlKey returns a control's name in a bundle.
func controlKey(id int64) string { return fmt.Sprintf("c%d", id) }

// libraryKey returns a library's name in a bundle. It includes the version, because two controls
// may have been compiled with different versions.
func libraryKey(l lang.Library) string { return fmt.Sprintf("l%dv%d", l.ID, l.Version) }

// move renames a package: from is its name in the source, to its name in the bundle.
type move struct{ from, to ast.Ref }

// movesOf returns the moves of a control and its libraries; that of the control itself is the first.
// Grants of access are read through a rule that leaves out those that are not valid now.
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

// rewritten returns the text of a control's or a library's module in a bundle, and the names of
// gatehouse.strict that it uses.
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

// rule rewrites a rule and its else branches. The value of a default rule must not contain
// references, so an empty literal in it becomes a comprehension.
func (w *rewriter) rule(r *ast.Rule) error {
	for e := r; e != nil; e = e.Else {
		w.patterns(e)
	}
	return w.rewrite(r, r.Default)
}

func (w *rewriter) rewrite(x any, constant bool) error {
	_, err := ast.Transform(ast.NewGenericTransformer(func(x any) (any, error) {
		switch x := x.(type) {
		case *ast.SomeDecl: // Transform does not visit it; its `in` binds variables and is not a call
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

// moved returns a reference with its package renamed.
func (w *rewriter) moved(ref ast.Ref) ast.Ref {
	for _, m := range w.moves {
		if ref.HasPrefix(m.from) {
			return append(slices.Clone(m.to), ref[len(m.from):]...)
		}
	}
	return ref
}

// operator replaces the built-in of a call with its function of gatehouse.strict.
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

// patterns moves empty literals from the arguments of a function into its body, because an argument
// must not contain references.
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

// Since version 1.21, OPA's type checker knows that [], {} and set() have no elements, and that the
// operand of `in` must be of the type of the elements. In both cases it refuses the whole bundle,
// while here and in older versions an expression is only undefined or false. So the rewriting hides
// both from the type checker: an empty literal becomes a rule whose type is open, and `in` becomes a
// function.

// emptyVar is the prefix of the variables that the rewriting adds.
const emptyVar = "gatehouse_empty_"

// emptyName returns the name of the rule that replaces an empty literal; "" for any other value.
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

// emptyComprehension returns a comprehension that replaces an empty literal: it has no elements, and
// its type is open.
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

// untyped reports whether the type of t is unknown to a type checker.
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

// strictName returns the name of the function that replaces a built-in. It differs from the
// built-in's name, because the function would call itself otherwise.
func strictName(builtin string) string { return "try_" + strings.ReplaceAll(builtin, ".", "_") }

// strictModule returns the module gatehouse.strict with the functions and rules in names.
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

// emptyRules are the rules that replace empty literals.
var emptyRules = map[string]string{
	"empty_array":  "empty_array := [x | false; x := input]",
	"empty_object": "empty_object := {x: x | false; x := input}",
	"empty_set":    "empty_set := {x | false; x := input}",
}

// outcomeModule returns the module that combines the values of a control's rules into its outcome.
// It does exactly what the engine does (rego/outcome.go).
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

// regoString quotes s as a Rego string, so that no name can inject Rego.
func regoString(s string) string { return ast.String(s).String() }
