package rego

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
)

// In a bundle two controls may have the same package, and a stock OPA takes an
// error of a built-in for "undefined", which would turn a failing deny rule
// into no deny at all. So each control is rewritten: into a package of its own,
// gatehouse.controls.c<id>, and with the built-ins that can fail replaced by
// functions of gatehouse.strict that end the evaluation with an error when the
// built-in yields nothing. A stock OPA then answers with an error, where Decide
// answers DENY with Err set; every enforcement point denies on both.

// strictSkip are the built-ins that are left as they are: they cannot fail, or
// are undefined for good input too (max of nothing).
var strictSkip = strings.Fields(`
eq equal neq lt lte gt gte assign internal.member_2 internal.member_3 internal.print internal.template_string
is_array is_boolean is_null is_number is_object is_set is_string type_name
max min product uuid.parse json.patch json.remove json.filter object.get
print trace walk time.now_ns rand.intn uuid.rfc4122 rego.metadata.chain rego.metadata.rule
json.is_valid yaml.is_valid regex.is_valid base64.is_valid net.cidr_is_valid semver.is_valid uri.is_valid`)

// controlKey is a control's name in a bundle.
func controlKey(id int64) string { return fmt.Sprintf("c%d", id) }

// rewritten is a control's module for a bundle, and the built-ins that it calls
// through gatehouse.strict.
func (c *Control) rewritten() (text string, strict []string, err error) {
	mod := c.module.Copy()
	to := ast.Ref{ast.DefaultRootDocument, ast.StringTerm("gatehouse"), ast.StringTerm("controls"), ast.StringTerm(controlKey(c.meta.ID))}
	own := rootNames(mod)
	used := map[string]bool{}
	moved := func(ref ast.Ref) ast.Ref {
		if len(ref) < len(c.pkg) || !ref[:len(c.pkg)].Equal(c.pkg) {
			return ref
		}
		return append(slices.Clone(to), ref[len(c.pkg):]...)
	}
	operator := func(t *ast.Term) {
		name := refName(t)
		if name == "" || own[strings.SplitN(name, ".", 2)[0]] || slices.Contains(strictSkip, name) {
			return
		}
		b := ast.BuiltinMap[name]
		if b == nil || b.Relation || b.Decl.Result() == nil {
			return
		}
		used[name] = true
		t.Value = ast.Ref{ast.DefaultRootDocument, ast.StringTerm("gatehouse"), ast.StringTerm("strict"), ast.StringTerm(strictName(name))}
	}
	for _, imp := range mod.Imports {
		if ref, ok := imp.Path.Value.(ast.Ref); ok && ref.HasPrefix(c.pkg) {
			if imp.Alias == "" {
				imp.Alias = imp.Name()
			}
			imp.Path.Value = moved(ref)
		}
	}
	mod.Package.Path = to
	for _, rule := range mod.Rules {
		ast.NewGenericVisitor(func(x any) bool {
			switch x := x.(type) {
			case *ast.Expr:
				if terms, ok := x.Terms.([]*ast.Term); ok && len(terms) > 0 {
					operator(terms[0])
				}
			case ast.Call:
				operator(x[0])
			case *ast.Term:
				if ref, ok := x.Value.(ast.Ref); ok {
					x.Value = moved(ref)
				}
			}
			return false
		}).Walk(rule)
	}
	for name := range used {
		strict = append(strict, name)
	}
	slices.Sort(strict)
	out, err := format.AstWithOpts(mod, format.Opts{RegoVersion: ast.RegoV1})
	if err != nil {
		return "", nil, fmt.Errorf("write control %d for a bundle: %w", c.meta.ID, err)
	}
	return string(out), strict, nil
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

// outcomeModule says what a control's rules come to: contract 4, word for word
// what Control.effect and Control.explain do.
func (c *Control) outcomeModule() string {
	var b strings.Builder
	key := controlKey(c.meta.ID)
	fmt.Fprintf(&b, "package gatehouse.outcomes.%s\n\nimport data.gatehouse.controls.%s as control\nimport data.gatehouse.rules\n", key, key)
	broken := func(msg string) string {
		return regoString(fmt.Sprintf("Control %q could not be evaluated: ", c.meta.Name) + msg)
	}
	b.WriteString("\nverdict := {\"effect\": \"DENY\", \"mask\": {}} if {\n")
	if c.has.deny {
		b.WriteString("\trules.denies(rules.value(control.deny))\n")
	} else {
		b.WriteString("\tfalse\n")
	}
	if c.has.allow {
		b.WriteString("} else := {\"effect\": \"DENY\", \"mask\": {}} if {\n\tcontrol.allow == false\n")
		fmt.Fprintf(&b, "} else := {\"effect\": \"DENY\", \"mask\": {}, \"problem\": concat(\"\", [%s, type_name(control.allow)])} if {\n\tcontrol.allow != true\n", broken("allow must be true or false, not "))
	}
	if c.has.mask {
		fmt.Fprintf(&b, "} else := {\"effect\": \"DENY\", \"mask\": {}, \"problem\": %s} if {\n\trules.too_many(rules.value(control.mask))\n", regoString(ReasonLimit))
		fmt.Fprintf(&b, "} else := {\"effect\": \"DENY\", \"mask\": {}, \"problem\": concat(\"\", [%s, rules.mask_problem(rules.value(control.mask))])} if {\n\ttrue\n", broken(""))
		b.WriteString("} else := {\"effect\": \"MASK\", \"mask\": m} if {\n\tm := rules.mask(rules.value(control.mask))\n\tcount(m) > 0\n")
	}
	if c.has.allow {
		b.WriteString("} else := {\"effect\": \"ALLOW\", \"mask\": {}} if {\n\tcontrol.allow == true\n")
	}
	b.WriteString("} else := {\"effect\": \"NO_MATCH\", \"mask\": {}}\n")
	b.WriteString("\nreason := problem if {\n\tproblem := object.get(verdict, \"problem\", \"\")\n\tproblem != \"\"\n")
	if c.has.reason {
		b.WriteString("} else := rules.cut(r) if {\n\tr := rules.value(control.reason)\n\tis_string(r)\n\tr != \"\"\n")
	}
	if c.has.deny {
		b.WriteString("} else := rules.cut(r) if {\n\trules.denies(rules.value(control.deny))\n\tr := rules.joined(rules.value(control.deny))\n\tr != \"\"\n")
	}
	fmt.Fprintf(&b, "} else := rules.cut(object.get({\"DENY\": %s, \"MASK\": %s, \"ALLOW\": %s}, verdict.effect, \"\"))\n",
		regoString(c.defaultReason(Deny)), regoString(c.defaultReason(Mask)), regoString(c.defaultReason(Allow)))
	return b.String()
}

// regoString quotes s as a Rego string: data stays data, whatever is in a name.
func regoString(s string) string { return ast.String(s).String() }
