package lang

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

// advise warns of code that compiles but never works: references to parts of the input that no
// request has, and rules whose value the service does not understand.
func advise(mod *ast.Module) []Issue {
	out := adviseInput(mod)
	if (Library{Source: mod.Package.String()}).Package() != "" {
		return out // a library decides nothing
	}
	for _, r := range mod.Rules {
		for ; r != nil; r = r.Else {
			out = append(out, adviseRule(r)...)
		}
	}
	return out
}

func warnAt(loc *ast.Location, rule, format string, args ...any) Issue {
	is := IssueAt(loc, rule, format, args...)
	is.Severity = SeverityWarning
	return is
}

// adviseInput warns of references to unknown members of the input. A request has only the known
// parts. Within a part an application may send any member, so the linter warns only of names that
// are similar to a documented one.
func adviseInput(mod *ast.Module) []Issue {
	var out []Issue
	reported := map[string]bool{}
	EachRef(mod, func(ref ast.Ref) {
		if len(ref) < 2 || !ref[0].Equal(ast.InputRootDocument) {
			return
		}
		part, ok := ref[1].Value.(ast.String)
		if !ok {
			return
		}
		path, known := "input."+string(part), documentedBelow("input")
		if slices.Contains(known, string(part)) {
			if len(ref) < 3 {
				return
			}
			member, ok := ref[2].Value.(ast.String)
			if known = documentedBelow(path); !ok || slices.Contains(known, string(member)) {
				return
			}
			near := fault.Nearest(string(member), known)
			if near == "" || near[0] != member[0] {
				return
			}
			path += "." + string(member)
			if !reported[path] {
				out = append(out, warnAt(ref[0].Location, "gatehouse/unknown-input", "%s is not documented: input.%s.%s is. It is undefined unless the caller sends it", path, string(part), near))
			}
		} else if !reported[path] {
			out = append(out, warnAt(ref[0].Location, "gatehouse/unknown-input", "%s is always undefined: a request has no such part%s", path, fault.DidYouMean(string(part), known)))
		}
		reported[path] = true
	})
	return out
}

// documentedBelow returns the members that are documented directly below a path.
func documentedBelow(path string) []string {
	var out []string
	for _, m := range DocumentedInput {
		if rest, ok := strings.CutPrefix(m.Path, path+"."); ok && !strings.Contains(rest, ".") {
			out = append(out, rest)
		}
	}
	return out
}

// adviseRule warns of a rule whose value is certainly of a wrong type.
func adviseRule(r *ast.Rule) []Issue {
	if len(r.Head.Args) > 0 || len(r.Head.Reference) == 0 {
		return nil
	}
	name, ok := r.Head.Reference[0].Value.(ast.Var)
	if !ok {
		return nil
	}
	set := r.Head.RuleKind() == ast.MultiValue
	switch v := r.Head.Value; name {
	case "allow":
		if set || len(r.Head.Reference) > 1 || wrongKind(v, "boolean") {
			return []Issue{warnAt(r.Head.Location, "gatehouse/rule-type", "allow must be true or false: with another value the control fails, and a control that fails denies")}
		}
	case "reason":
		if set || len(r.Head.Reference) > 1 || wrongKind(v, "string") {
			return []Issue{warnAt(r.Head.Location, "gatehouse/rule-type", "reason must be a string: another value is not shown")}
		}
	case "deny":
		if !set && (len(r.Head.Reference) > 1 || wrongKind(v, "boolean", "set", "array", "string", "object")) {
			return []Issue{warnAt(r.Head.Location, "gatehouse/rule-type", "deny should be true, false or a set of reasons: any other value denies")}
		}
	case "mask":
		return adviseMask(r, set)
	}
	return nil
}

// strategies lists the mask strategies, for messages.
const strategies = "redact, hash, last4 or remove"

func adviseMask(r *ast.Rule, set bool) []Issue {
	if set {
		return nil
	}
	v := r.Head.Value
	if len(r.Head.Reference) > 1 { // mask[path] := strategy
		return adviseStrategy(v, r.Head.Location)
	}
	if wrongKind(v, "set", "array", "object") && !v.Equal(ast.BooleanTerm(false)) {
		return []Issue{warnAt(r.Head.Location, "gatehouse/rule-type", "mask must be a set of paths, or an object from path to %s", strategies)}
	}
	var out []Issue
	if object, ok := v.Value.(ast.Object); ok {
		object.Foreach(func(_, strategy *ast.Term) {
			out = append(out, adviseStrategy(strategy, strategy.Location)...)
		})
	}
	return out
}

func adviseStrategy(v *ast.Term, loc *ast.Location) []Issue {
	if v == nil {
		return nil
	}
	if s, ok := v.Value.(ast.String); ok && masking.Strictness(string(s)) > 0 {
		return nil
	}
	if !wrongKind(v, "string") {
		if _, constant := v.Value.(ast.String); !constant {
			return nil // the value is known only at evaluation
		}
	}
	return []Issue{warnAt(loc, "gatehouse/mask-strategy", "%s is not a mask strategy: use %s. The control fails, and a control that fails denies", v, strategies)}
}

// wrongKind reports whether a term is certainly of none of the kinds. The kind of a reference or a
// call is known only at evaluation.
func wrongKind(t *ast.Term, kinds ...string) bool {
	if t == nil {
		return false
	}
	kind := ""
	switch t.Value.(type) {
	case ast.Null:
		kind = "null"
	case ast.Boolean:
		kind = "boolean"
	case ast.Number:
		kind = "number"
	case ast.String, *ast.TemplateString:
		kind = "string"
	case *ast.Array, *ast.ArrayComprehension:
		kind = "array"
	case ast.Object, *ast.ObjectComprehension:
		kind = "object"
	case ast.Set, *ast.SetComprehension:
		kind = "set"
	default:
		return false
	}
	return !slices.Contains(kinds, kind)
}
