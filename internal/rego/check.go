package rego

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// reservedPackages are the roots that no control may live under: OPA's own,
// the bundle's, and the two that hold data.
var reservedPackages = []string{"system", "gatehouse", "resources", "pip"}

// sourceName stands in locations of errors; a control has no file of its own.
const sourceName = "control.rego"

// checked is a control that passed every check.
type checked struct {
	module   *ast.Module   // as parsed; never changed
	compiler *ast.Compiler // compiled with that module alone
	pkg      ast.Ref
}

// Check says what keeps source from being a control: at most 100 errors, in
// the order of the text. The error is nil unless the check itself failed.
func Check(source string) ([]Issue, error) {
	_, issues := check(source)
	return issues, nil
}

// check parses and compiles source under all bounds.
func check(source string) (c *checked, issues []Issue) {
	defer func() {
		// The parser and compiler are other people's code on hostile text.
		if p := recover(); p != nil {
			c, issues = nil, []Issue{{Message: fmt.Sprintf("the source cannot be compiled: %v", p), Severity: SeverityError, Rule: "compiler"}}
		}
		issues = tidy(issues)
	}()
	mod, issues := parse(source)
	if issues != nil {
		return nil, issues
	}
	pkg := mod.Package.Path
	issues = append(checkPackage(mod), findForbidden(mod)...)
	issues = append(issues, checkSome(mod)...)
	wide := checkData(mod, pkg)
	issues = append(issues, wide...)
	// A forbidden built-in is reported with its reason; the compiler's own
	// word for it ("undefined function") would only repeat that.
	said := map[int]bool{}
	for _, is := range issues {
		said[is.Line] = true
	}
	compiler := ast.NewCompiler().WithCapabilities(capabilities()).WithDefaultRegoVersion(ast.RegoV1)
	compiler.Compile(map[string]*ast.Module{sourceName: mod.Copy()})
	for _, is := range compilerIssues(compiler.Errors) {
		// A reference to all of data takes in the rule itself: no recursion that
		// an author would see.
		if !said[is.Line] && !(len(wide) > 0 && is.Rule == "rego_recursion_error") {
			issues = append(issues, is)
		}
	}
	if len(issues) == 0 {
		issues = checkData(compiler.Modules[sourceName], pkg)
	}
	if len(issues) > 0 {
		return nil, issues
	}
	return &checked{module: mod, compiler: compiler, pkg: pkg}, nil
}

// parse reads source under the bounds on text and shape.
func parse(source string) (*ast.Module, []Issue) {
	if issues := checkText(source); issues != nil {
		return nil, issues
	}
	mod, err := ast.ParseModuleWithOpts(sourceName, source, ast.ParserOptions{
		RegoVersion:       ast.RegoV1,
		ProcessAnnotation: true,
		Capabilities:      capabilities(),
	})
	if err != nil {
		return nil, compilerIssues(err)
	}
	if mod == nil || mod.Package == nil {
		return nil, []Issue{{Message: "the source holds no package", Severity: SeverityError, Rule: "rego_parse_error"}}
	}
	if issues := checkShape(mod); issues != nil {
		return nil, issues
	}
	return mod, nil
}

// checkPackage refuses the reserved roots.
func checkPackage(mod *ast.Module) []Issue {
	if len(mod.Package.Path) < 2 {
		return []Issue{issueAt(mod.Package.Location, "reserved_package", "the package has no name")}
	}
	for _, p := range mod.Package.Path[1:] {
		if s, ok := p.Value.(ast.String); !ok || s == "" {
			return []Issue{issueAt(mod.Package.Location, "reserved_package", "the package's name is not plain")}
		}
	}
	root, _ := mod.Package.Path[1].Value.(ast.String)
	if slices.Contains(reservedPackages, string(root)) {
		return []Issue{issueAt(mod.Package.Location, "reserved_package", "packages under %q are reserved", string(root))}
	}
	return nil
}

// checkData refuses references to data beyond what a control may see: its own
// package, data.resources and data.pip. The root must be written out, so that
// what a control reads is known before it runs.
func checkData(mod *ast.Module, pkg ast.Ref) []Issue {
	var out []Issue
	judge := func(ref ast.Ref, loc *ast.Location) {
		if len(ref) == 0 || !ref[0].Equal(ast.DefaultRootDocument) {
			return
		}
		if loc == nil {
			loc = ref[0].Location
		}
		if why := dataRefused(ref, pkg); why != "" {
			out = append(out, issueAt(loc, "data_reference", "%s", why))
		}
	}
	for _, imp := range mod.Imports {
		if ref, ok := imp.Path.Value.(ast.Ref); ok {
			judge(ref, imp.Location)
		}
	}
	eachRef(mod, func(ref ast.Ref) { judge(ref, ref[0].Location) })
	return out
}

// checkSome refuses `some x in x`: a variable that is declared by what it is
// read from. OPA takes it for an error since 1.22.
func checkSome(mod *ast.Module) []Issue {
	var out []Issue
	ast.NewGenericVisitor(func(x any) bool {
		decl, ok := x.(*ast.SomeDecl)
		if !ok {
			return false
		}
		for _, s := range decl.Symbols {
			call, ok := s.Value.(ast.Call)
			if !ok {
				continue
			}
			bound, from := ast.NewVarSet(), ast.NewVarVisitor().WithParams(ast.VarVisitorParams{SkipClosures: true})
			for _, t := range call[1 : len(call)-1] {
				vis := ast.NewVarVisitor().WithParams(ast.VarVisitorParams{SkipRefHead: true, SkipObjectKeys: true, SkipClosures: true})
				vis.Walk(t)
				bound.Update(vis.Vars())
			}
			from.Walk(call[len(call)-1])
			for _, v := range bound.Intersect(from.Vars()).Sorted() {
				if !v.IsWildcard() {
					out = append(out, issueAt(decl.Location, "rego_compile_error", "var %s is declared by what it is read from: choose another name", v))
				}
			}
		}
		return false
	}).Walk(mod)
	return out
}

// dataRefused says why a control may not refer to ref; "" where it may.
func dataRefused(ref, pkg ast.Ref) string {
	if len(ref) == 1 {
		return "data as a whole is not offered: name data.resources, data.pip or the control's own package"
	}
	root, ok := ref[1].Value.(ast.String)
	if !ok {
		return "the member of data must be written out: data.resources, data.pip or the control's own package"
	}
	if root == "resources" || root == "pip" {
		return ""
	}
	if len(ref) >= len(pkg) && ref[:len(pkg)].Equal(pkg) {
		return ""
	}
	return fmt.Sprintf("data.%s is not offered: a control sees data.resources, data.pip and its own package", string(root))
}

func issueAt(loc *ast.Location, rule, format string, args ...any) Issue {
	is := Issue{Message: fmt.Sprintf(format, args...), Severity: SeverityError, Rule: rule}
	if loc != nil {
		is.Line, is.Column = loc.Row, loc.Col
	}
	return is
}

// compilerIssues turns the errors of OPA's parser and compiler into ours.
func compilerIssues(err error) []Issue {
	var list ast.Errors
	if !errors.As(err, &list) {
		var one *ast.Error
		if !errors.As(err, &one) {
			return []Issue{{Message: err.Error(), Severity: SeverityError, Rule: "rego_parse_error"}}
		}
		list = ast.Errors{one}
	}
	var out []Issue
	for _, e := range list {
		is := issueAt(e.Location, e.Code, "%s", e.Message)
		if name, ok := strings.CutPrefix(e.Message, "undefined function "); ok {
			if why, bad := forbidden()[name]; bad {
				is.Message, is.Rule = "built-in "+name+" is not offered: "+why, "forbidden_builtin"
			}
		}
		out = append(out, is)
	}
	return out
}

// tidy orders issues by place, drops repeats and cuts the list.
func tidy(issues []Issue) []Issue {
	slices.SortStableFunc(issues, func(a, b Issue) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	issues = slices.CompactFunc(issues, func(a, b Issue) bool {
		return a.Line == b.Line && a.Message == b.Message
	})
	// The same finding with and without a place is one finding.
	placed := map[string]bool{}
	for _, is := range issues {
		if is.Line > 0 {
			placed[is.Message] = true
		}
	}
	issues = slices.DeleteFunc(issues, func(is Issue) bool { return is.Line == 0 && placed[is.Message] })
	if len(issues) > maxIssues {
		issues = issues[:maxIssues]
	}
	return issues
}
