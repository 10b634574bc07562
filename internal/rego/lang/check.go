package lang

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
)

// reservedPackages are the roots that a control's package must not be under: OPA's own, that of
// bundles, and two that hold data.
var reservedPackages = []string{"system", "gatehouse", "resources", "pip"}

// sourceName is the file name of a control in the locations of errors.
const sourceName = "control.rego"

// checked is a control that passed every check.
type checked struct {
	module   *ast.Module   // as parsed; never changed
	compiler *ast.Compiler // has compiled the module and its libraries, nothing else
	pkg      ast.Ref
	libs     []*linked // the libraries that it imports, directly or indirectly, sorted by package
	program  *native.Program
}

// Check returns the issues that keep source from being a control that may use libs: at most 100,
// in source order.
func Check(source string, libs ...Library) []Issue {
	_, issues := check(source, false, libs)
	return issues
}

// check parses and compiles the source of a control or a library within all bounds.
func check(source string, library bool, libs []Library) (c *checked, issues []Issue) {
	defer func() {
		// OPA's parser and compiler may panic on hostile text.
		if p := recover(); p != nil {
			c, issues = nil, []Issue{CrashIssue("the source cannot be compiled", p, "compiler")}
		}
		issues = cleanIssues(source, issues)
	}()
	mod, issues := parse(sourceName, source)
	if issues != nil {
		return nil, continueParsing(source, issues, library, libs)
	}
	return checkModule(mod, library, libs)
}

// checkModule checks and compiles a module that was parsed.
func checkModule(mod *ast.Module, library bool, libs []Library) (c *checked, issues []Issue) {
	pkg := mod.Package.Path
	issues = append(checkPackage(mod, library), findForbidden(mod)...)
	issues = append(issues, checkSome(mod)...)
	k := newLinker(libs)
	trail := []string{pkg[1:].String()}
	if library && len(issues) == 0 {
		issues = k.checkNested(trail[0], mod.Package.Location)
	}
	k.follow(mod, trail, nil)
	issues = append(issues, k.issues...)
	wide := k.checkData(mod, pkg)
	takesAll := slices.ContainsFunc(wide, func(is Issue) bool {
		return strings.HasPrefix(is.Message, dataWhole) || strings.HasPrefix(is.Message, dataOpen)
	})
	issues = append(issues, wide...)
	if total := k.checkTotal(mod); total != nil {
		return nil, append(issues, total...)
	}
	// A forbidden built-in is already reported with its reason; the compiler's error ("undefined
	// function") would only repeat that.
	reported := map[int]bool{} // lines
	for _, is := range issues {
		reported[is.Line] = true
	}
	compiler := newCompiler()
	compiler.Compile(k.modules(mod))
	var refused []Issue
	if compiler.Failed() {
		refused = k.locateIssues(k.continueCompiling(mod, compiler))
	}
	for _, is := range refused {
		// A reference to all of data includes the rule itself. The author would not understand
		// the compiler's error about recursion.
		if !reported[is.Line] && !(takesAll && is.Rule == "rego_recursion_error") && !(len(k.issues)+len(wide) > 0 && strings.HasPrefix(is.Message, "undefined function data.lib.")) {
			issues = append(issues, is)
		}
	}
	if len(issues) == 0 {
		issues = k.checkCompiled(compiler, pkg)
	}
	if len(issues) > 0 {
		return nil, issues
	}
	program, err := native.Compile(compiler, pkg)
	if err != nil {
		return nil, k.locateIssues([]Issue{unsupported(err)})
	}
	return &checked{module: mod, compiler: compiler, pkg: pkg, libs: k.sorted(), program: program}, nil
}

// unsupported returns the issue for a source that the evaluator cannot compile.
func unsupported(err error) Issue {
	u, ok := errors.AsType[*native.ErrUnsupported](err)
	if !ok {
		return IssueAt(nil, "unsupported", "%v", err)
	}
	is := IssueAt(u.Location, "unsupported", "this is not supported: %s", u.What)
	if u.Location != nil {
		is.file = u.Location.File
	}
	return is
}

// parse parses a source within the bounds on its text and shape.
func parse(file, source string) (*ast.Module, []Issue) {
	if issues := checkText(source); issues != nil {
		return nil, issues
	}
	mod, err := ast.ParseModuleWithOpts(file, source, ast.ParserOptions{
		RegoVersion:       ast.RegoV1,
		ProcessAnnotation: true,
		Capabilities:      Capabilities(),
	})
	if err != nil {
		return nil, compilerIssues(err)
	}
	if mod == nil || mod.Package == nil {
		return nil, []Issue{{Message: "the source has no package", Severity: SeverityError, Rule: parseRule}}
	}
	if issues := checkShape(mod); issues != nil {
		return nil, issues
	}
	return mod, nil
}

// checkPackage refuses reserved roots. The package of a library must be under lib, that of a
// control must not.
func checkPackage(mod *ast.Module, library bool) []Issue {
	loc := mod.Package.Location
	if len(mod.Package.Path) < 2 {
		return []Issue{IssueAt(loc, "reserved_package", "the package has no name")}
	}
	for _, p := range mod.Package.Path[1:] {
		if s, ok := p.Value.(ast.String); !ok || s == "" {
			return []Issue{IssueAt(loc, "reserved_package", "the package's name is not plain")}
		}
	}
	root, _ := mod.Package.Path[1].Value.(ast.String)
	switch {
	case library && !libraryName.MatchString(mod.Package.Path[1:].String()):
		return []Issue{IssueAt(loc, "library_package", libraryPackage)}
	case !library && root == LibraryRoot:
		return []Issue{IssueAt(loc, "reserved_package", controlPackage)}
	case slices.Contains(reservedPackages, string(root)):
		return []Issue{IssueAt(loc, "reserved_package", "packages under %q are reserved", string(root))}
	}
	return nil
}

// checkData refuses references to data other than the module's own package, data.resources,
// data.pip, data.grants and the libraries. The root must be a constant, so that it is known before
// the evaluation what a control reads.
func (k *linker) checkData(mod *ast.Module, pkg ast.Ref) []Issue {
	var out []Issue
	visit := func(ref ast.Ref, loc *ast.Location, imported bool) {
		if len(ref) == 0 || !ref[0].Equal(ast.DefaultRootDocument) {
			return
		}
		if loc == nil {
			loc = ref[0].Location
		}
		if why := k.dataRefused(ref, pkg, imported); why != "" {
			out = append(out, IssueAt(loc, "data_reference", "%s", why))
		}
	}
	for _, imp := range mod.Imports {
		if ref, ok := imp.Path.Value.(ast.Ref); ok {
			visit(ref, imp.Location, true)
		}
	}
	EachRef(mod, func(ref ast.Ref) { visit(ref, ref[0].Location, false) })
	return out
}

// checkSome refuses `some x in x`: a variable that is declared by the expression that it is read
// from. OPA refuses it since 1.22.
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
					out = append(out, IssueAt(decl.Location, "rego_compile_error", "var %s is declared by the expression that it is read from: choose another name", v))
				}
			}
		}
		return false
	}).Walk(mod)
	return out
}

// The beginnings of the messages about references to all of data.
const (
	dataWhole = "data as a whole is not offered: a control can read "
	dataOpen  = "the member of data must be written out: a control sees "
)

// dataRefused returns the reason why a module of pkg must not refer to ref; "" if it may.
func (k *linker) dataRefused(ref, pkg ast.Ref, imported bool) string {
	const own = "data.resources, data.pip, data.grants, libraries (data.lib.<name>) and its own package"
	if len(ref) == 1 {
		return dataWhole + own
	}
	root, ok := ref[1].Value.(ast.String)
	if !ok {
		return dataOpen + own
	}
	// Packages under grants existed before data.grants did, so they are allowed. They cannot read
	// grants.
	grants := root == native.GrantsRoot && (len(pkg) < 2 || !pkg[1].Equal(ref[1]))
	if root == "resources" || root == "pip" || grants || ref.HasPrefix(pkg) {
		return ""
	}
	if root == LibraryRoot {
		return k.refusedLibrary(ref, imported)
	}
	return fmt.Sprintf("data.%s is not offered: a control can read %s", string(root), own)
}

// IssueAt returns an error at a place in the source; without a place if loc is nil.
func IssueAt(loc *ast.Location, rule, format string, args ...any) Issue {
	is := Issue{Message: fmt.Sprintf(format, args...), Severity: SeverityError, Rule: rule}
	if loc != nil {
		is.Line, is.Column = loc.Row, loc.Col
	}
	return is
}

// compilerIssues converts errors of OPA's parser or compiler to issues.
func compilerIssues(err error) []Issue {
	list, ok := errors.AsType[ast.Errors](err)
	if !ok {
		one, ok := errors.AsType[*ast.Error](err)
		if !ok {
			return []Issue{{Message: err.Error(), Severity: SeverityError, Rule: parseRule}}
		}
		list = ast.Errors{one}
	}
	var out []Issue
	for _, e := range list {
		is := IssueAt(e.Location, e.Code, "%s", e.Message)
		if e.Location != nil {
			is.file = e.Location.File
		}
		if name, ok := strings.CutPrefix(e.Message, "undefined function "); ok {
			if why, bad := forbidden()[name]; bad {
				is.Message, is.Rule = "built-in "+name+" is not offered: "+why, "forbidden_builtin"
			}
		}
		out = append(out, is)
	}
	return out
}

// cleanIssues places issues within their source, sorts them, removes duplicates, and cuts the
// list to maxIssues.
func cleanIssues(source string, issues []Issue) []Issue {
	for i := range issues {
		issues[i].file = ""
	}
	slices.SortStableFunc(issues, func(a, b Issue) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	issues = slices.CompactFunc(issues, func(a, b Issue) bool {
		return a.Line == b.Line && a.Message == b.Message
	})
	// An issue without a place repeats the issue with the same message that has one.
	placed := map[string]bool{}
	for _, is := range issues {
		if is.Line > 0 {
			placed[is.Message] = true
		}
	}
	issues = slices.DeleteFunc(issues, func(is Issue) bool { return is.Line == 0 && placed[is.Message] })
	locate(source, issues)
	// The parser reports the place where it stops twice; the second message is more general.
	issues = slices.CompactFunc(issues, func(a, b Issue) bool {
		return a.Line == b.Line && a.Column == b.Column && a.Rule == parseRule && b.Rule == parseRule
	})
	if len(issues) > maxIssues {
		issues = issues[:maxIssues]
	}
	return issues
}

// parseRule is the Rule of errors of OPA's parser.
const parseRule = "rego_parse_error"

// foundAt matches the places of conflicting definitions in a message of OPA's compiler.
var foundAt = regexp.MustCompile(` found at ` + regexp.QuoteMeta(sourceName) + `:(\d+)(?:, ` + regexp.QuoteMeta(sourceName) + `:(\d+))*`)

// Locate moves an issue to a place that exists in its source.
func Locate(source string, is *Issue) {
	one := []Issue{*is}
	locate(source, one)
	*is = one[0]
}

// locate moves every issue to a character of the source, or to the end of a line. Lines and columns
// count from 1, and columns count characters. Issues about the whole source move to its beginning,
// issues after its end move to its end.
func locate(source string, issues []Issue) {
	var lines []string
	for i := range issues {
		is := &issues[i]
		if m := foundAt.FindStringSubmatch(is.Message); m != nil {
			// OPA reports the place of the package; show the last definition instead.
			if n, err := strconv.Atoi(cmp.Or(m[2], m[1])); err == nil {
				is.Line, is.Column = n, 1
			}
			is.Message = strings.ReplaceAll(is.Message, sourceName+":", "line ")
		}
		if is.Line <= 0 {
			is.Line, is.Column = 1, 1
			continue
		}
		if lines == nil {
			lines = strings.Split(strings.TrimSuffix(source, "\n"), "\n")
		}
		last := is.Line > len(lines)
		is.Line = min(is.Line, len(lines))
		end := utf8.RuneCountInString(strings.TrimSuffix(lines[is.Line-1], "\r")) + 1
		if is.Column = min(max(is.Column, 1), end); last {
			is.Column = end
		}
	}
}
