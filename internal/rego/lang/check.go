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

// reservedPackages are the roots that no control may live under: OPA's own,
// the bundle's, and the two that hold data.
var reservedPackages = []string{"system", "gatehouse", "resources", "pip"}

// sourceName stands in locations of errors; a control has no file of its own.
const sourceName = "control.rego"

// checked is a control that passed every check.
type checked struct {
	module   *ast.Module   // as parsed; never changed
	compiler *ast.Compiler // compiled with that module and its libraries alone
	pkg      ast.Ref
	libs     []*linked // that it reaches, by package
	program  *native.Program
}

// Check says what keeps source from being a control that may use libs: at most
// 100 errors, in the order of the text. The error is nil unless the check itself
// failed.
func Check(source string, libs ...Library) ([]Issue, error) {
	_, issues := check(source, false, libs)
	return issues, nil
}

// check parses and compiles source, a control's or a library's, under all bounds.
func check(source string, library bool, libs []Library) (c *checked, issues []Issue) {
	defer func() {
		// The parser and compiler are other people's code on hostile text.
		if p := recover(); p != nil {
			c, issues = nil, []Issue{CrashIssue("the source cannot be compiled", p, "compiler")}
		}
		issues = cleanIssues(source, issues)
	}()
	mod, issues := parse(sourceName, source)
	if issues != nil {
		return nil, parseOn(source, issues, library, libs)
	}
	return checkModule(mod, library, libs)
}

// checkModule compiles what was parsed.
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
	// A forbidden built-in is reported with its reason; the compiler's own
	// word for it ("undefined function") would only repeat that.
	said := map[int]bool{}
	for _, is := range issues {
		said[is.Line] = true
	}
	compiler := newCompiler()
	compiler.Compile(k.modules(mod))
	var refused []Issue
	if compiler.Failed() {
		refused = k.locateIssues(k.compileOn(mod, compiler))
	}
	for _, is := range refused {
		// A reference to all of data takes in the rule itself: no recursion that
		// an author would see.
		if !said[is.Line] && !(takesAll && is.Rule == "rego_recursion_error") && !(len(k.issues)+len(wide) > 0 && strings.HasPrefix(is.Message, "undefined function data.lib.")) {
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

// unsupported is what the evaluator cannot compile.
func unsupported(err error) Issue {
	var u *native.ErrUnsupported
	if !errors.As(err, &u) {
		return IssueAt(nil, "unsupported", "%v", err)
	}
	is := IssueAt(u.Location, "unsupported", "this is not supported: %s", u.What)
	if u.Location != nil {
		is.file = u.Location.File
	}
	return is
}

// parse reads a source within the bounds on its text and shape.
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

// checkPackage refuses the reserved roots, and holds libraries, and only those,
// to the root lib.
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

// checkData refuses references to data beyond what a control may see: its own
// package, data.resources, data.pip, data.grants and the libraries. The root must be written
// out, so that what a control reads is known before it runs.
func (k *linker) checkData(mod *ast.Module, pkg ast.Ref) []Issue {
	var out []Issue
	judge := func(ref ast.Ref, loc *ast.Location, imported bool) {
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
			judge(ref, imp.Location, true)
		}
	}
	EachRef(mod, func(ref ast.Ref) { judge(ref, ref[0].Location, false) })
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
					out = append(out, IssueAt(decl.Location, "rego_compile_error", "var %s is declared by the expression that it is read from: choose another name", v))
				}
			}
		}
		return false
	}).Walk(mod)
	return out
}

// The messages about references that take in all of data begin so.
const (
	dataWhole = "data as a whole is not offered: a control can read "
	dataOpen  = "the member of data must be written out: a control sees "
)

// dataRefused says why a module of pkg may not refer to ref; "" where it may.
func (k *linker) dataRefused(ref, pkg ast.Ref, imported bool) string {
	const own = "data.resources, data.pip, data.grants, libraries (data.lib.<name>) and its own package"
	if len(ref) == 1 {
		return dataWhole + own
	}
	root, ok := ref[1].Value.(ast.String)
	if !ok {
		return dataOpen + own
	}
	// A package grants.x is older than data.grants, and not refused. It cannot read grants.
	grants := root == native.GrantsRoot && (len(pkg) < 2 || !pkg[1].Equal(ref[1]))
	if root == "resources" || root == "pip" || grants || ref.HasPrefix(pkg) {
		return ""
	}
	if root == LibraryRoot {
		return k.refused(ref, imported)
	}
	return fmt.Sprintf("data.%s is not offered: a control can read %s", string(root), own)
}

// IssueAt is an error at a place of the source.
func IssueAt(loc *ast.Location, rule, format string, args ...any) Issue {
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

// cleanIssues places issues within their source, orders them, drops repeats and cuts
// the list.
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
	// The same finding with and without a place is one finding.
	placed := map[string]bool{}
	for _, is := range issues {
		if is.Line > 0 {
			placed[is.Message] = true
		}
	}
	issues = slices.DeleteFunc(issues, func(is Issue) bool { return is.Line == 0 && placed[is.Message] })
	locate(source, issues)
	// Where the parser stops it says so twice, the second time in general words.
	issues = slices.CompactFunc(issues, func(a, b Issue) bool {
		return a.Line == b.Line && a.Column == b.Column && a.Rule == parseRule && b.Rule == parseRule
	})
	if len(issues) > maxIssues {
		issues = issues[:maxIssues]
	}
	return issues
}

// parseRule is the rule of what OPA's parser says.
const parseRule = "rego_parse_error"

// foundAt ends a message of OPA's compiler with the places of equal definitions.
var foundAt = regexp.MustCompile(` found at ` + regexp.QuoteMeta(sourceName) + `:(\d+)(?:, ` + regexp.QuoteMeta(sourceName) + `:(\d+))*`)

// Locate moves an issue to a character that its source has.
func Locate(source string, is *Issue) {
	one := []Issue{*is}
	locate(source, one)
	*is = one[0]
}

// locate puts every issue at a character of the source, or right behind the last
// one of a line: lines and columns count from 1, columns in characters. What is
// about the whole text stands at its beginning, and what OPA finds behind its end
// stands there.
func locate(source string, issues []Issue) {
	var lines []string
	for i := range issues {
		is := &issues[i]
		if m := foundAt.FindStringSubmatch(is.Message); m != nil {
			// OPA gives the place of the package; the last definition is the one too many.
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
