package lang

import (
	"cmp"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/why"
)

// RuleSet says which of the four rules a control defines.
type RuleSet struct{ Allow, Deny, Mask, Reason bool }

// Compiled is what an evaluation needs of a control. It keeps nothing of OPA's compiler or of the
// syntax tree, because an environment may have thousands of controls.
type Compiled struct {
	Program *native.Program
	Rules   RuleSet
	// FixedReason says that every reason is a constant of the source, so that no reason shows a
	// part of an input.
	FixedReason bool
	Refs        Refs
	// Libraries are those that the control imports, directly or indirectly, sorted by package.
	Libraries []Library
	// Package is in dotted form, without the "data." prefix.
	Package string
}

// Compile checks and compiles a control's source with those of libs that it imports, directly or
// indirectly. If there are issues, the result is empty.
func Compile(source string, libs []Library) (out Compiled, issues []Issue) {
	defer func() {
		// OPA's code may panic on hostile text.
		if p := recover(); p != nil {
			out, issues = Compiled{}, []Issue{CrashIssue("the source cannot be compiled", p, "compiler")}
		}
	}()
	c, issues := check(source, false, libs)
	if len(issues) > 0 {
		return Compiled{}, issues
	}
	rules := c.compiler.Modules[sourceName].Rules
	out = Compiled{
		Package: c.pkg[1:].String(), Program: c.program, Rules: rulesOf(rules),
		Refs: findRefs(c.compiler, c.pkg, c.libs), FixedReason: fixedReason(rules),
	}
	for _, l := range c.libs {
		out.Libraries = append(out.Libraries, l.Library)
	}
	return out, nil
}

// CompileWhy compiles a control's source into a program that explains its outcomes. It returns nil
// if that is not possible.
func CompileWhy(source string, libs []Library) *why.Module {
	c, issues := check(source, false, libs)
	if len(issues) > 0 {
		return nil
	}
	w, err := why.Compile(c.module, c.compiler, c.pkg)
	if err != nil {
		return nil
	}
	return w
}

// rulesOf returns which of the four rules are defined.
func rulesOf(rules []*ast.Rule) (set RuleSet) {
	for _, r := range rules {
		name, ok := r.Head.Ref()[0].Value.(ast.Var)
		if !ok || len(r.Head.Args) > 0 {
			continue
		}
		switch name {
		case "allow":
			set.Allow = true
		case "deny":
			set.Deny = true
		case "mask":
			set.Mask = true
		case "reason":
			set.Reason = true
		}
	}
	return set
}

// fixedReason reports whether all reasons that the rules give are constants.
func fixedReason(rules []*ast.Rule) bool {
	for _, r := range rules {
		name, ok := r.Head.Ref()[0].Value.(ast.Var)
		if !ok || len(r.Head.Args) > 0 || name != "reason" && name != "deny" {
			continue
		}
		for e := r; e != nil; e = e.Else {
			for _, t := range []*ast.Term{e.Head.Key, e.Head.Value} {
				if t != nil && !ast.IsConstant(t.Value) {
					return false
				}
			}
			if len(e.Head.Ref()) > 1 && e.Head.Key == nil {
				return false
			}
		}
	}
	return true
}

// LinkedModule is a library that a control imports, directly or indirectly, with its syntax tree
// as parsed.
type LinkedModule struct {
	Library
	Module *ast.Module
}

// ParseLinked parses a control's source, and those of libs that it imports, directly or
// indirectly. The libraries are sorted by package.
func ParseLinked(source string, libs []Library) (*ast.Module, []LinkedModule, []Issue) {
	mod, issues := parse(sourceName, source)
	if len(issues) > 0 {
		return nil, nil, issues
	}
	k := newLinker(libs)
	k.follow(mod, []string{mod.Package.Path[1:].String()}, nil)
	var linked []LinkedModule
	for _, l := range k.sorted() {
		linked = append(linked, LinkedModule{l.Library, l.module})
	}
	return mod, linked, nil
}

// RuleAt is a rule of a control, with the line in which it begins, from 1.
type RuleAt struct {
	Name string
	Line int
}

// DecidingRules returns the rules of source that can decide: each body of allow, deny and mask,
// sorted by line, without defaults. It returns nil if source does not parse.
func DecidingRules(source string) []RuleAt {
	mod, issues := parse(sourceName, source)
	if len(issues) > 0 {
		return nil
	}
	var out []RuleAt
	for _, r := range mod.Rules {
		name, ok := r.Head.Ref()[0].Value.(ast.Var)
		if !ok || r.Default || !slices.Contains([]ast.Var{"allow", "deny", "mask"}, name) {
			continue
		}
		for e := r; e != nil; e = e.Else {
			if e.Location != nil {
				out = append(out, RuleAt{string(name), e.Location.Row})
			}
		}
	}
	slices.SortFunc(out, func(a, b RuleAt) int { return cmp.Compare(a.Line, b.Line) })
	return out
}
