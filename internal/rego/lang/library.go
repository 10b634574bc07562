package lang

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Library is a module that controls import: functions and rules in a package under lib. It decides
// nothing by itself.
type Library struct {
	ID      int64  `json:"id"`
	Name    string `json:"name"`
	Version int64  `json:"version"`
	Source  string `json:"source"`
}

// LibraryRoot is the first part of the packages of libraries.
const LibraryRoot = "lib"

// maxLibraries limits the libraries that one control may import, directly or indirectly.
const maxLibraries = 50

// The package of a library has plain names, so that it can be found without a parser.
var (
	packageHead = regexp.MustCompile(`^(?:\s+|#[^\n]*(?:\n|$))*package[ \t]+([^\s#]+)`)
	libraryName = regexp.MustCompile(`^lib(\.[A-Za-z_][A-Za-z0-9_]*)+$`)
)

// Package returns the library's package, such as lib.text. It returns "" if the source has no
// package that a library may have.
func (l Library) Package() string {
	m := packageHead.FindStringSubmatch(l.Source)
	if m == nil || !libraryName.MatchString(m[1]) {
		return ""
	}
	return m[1]
}

// CheckLibrary returns the issues that keep source from being a library beside others: at most
// 100, in source order. It ignores an earlier version of the library among the others.
func CheckLibrary(source string, others ...Library) []Issue {
	own := Library{Source: source}.Package()
	others = slices.DeleteFunc(slices.Clone(others), func(l Library) bool { return l.Package() == own })
	_, issues := check(source, true, others)
	return issues
}

// Misplaced returns an issue if the package of a source does not fit its kind: the package of a
// library must be under lib, that of a control must not.
func Misplaced(source string, library bool) []Issue {
	if ((Library{Source: source}).Package() != "") == library {
		return nil
	}
	line := 1
	if m := packageHead.FindStringIndex(source); m != nil {
		line += strings.Count(source[:m[1]], "\n")
	}
	message := libraryPackage
	if !library {
		message = controlPackage
	}
	return []Issue{{Line: line, Column: 1, Message: message, Severity: SeverityError, Rule: "library_package"}}
}

const (
	libraryPackage = "the package of a library begins with lib. and has plain names, such as lib.text"
	controlPackage = "packages under lib are for libraries (kind library)"
)

// CheckModule calls CheckLibrary if the package of a source is that of a library, and Check
// otherwise.
func CheckModule(source string, libs ...Library) []Issue {
	if (Library{Source: source}).Package() != "" {
		return CheckLibrary(source, libs...)
	}
	return Check(source, libs...)
}

// Reach returns those of libs that source refers to, directly or indirectly, sorted by package. It
// ignores unknown libraries and sources that do not parse: Check reports them.
func Reach(source string, libs []Library) []Library {
	mod, issues := parse(sourceName, source)
	if issues != nil {
		return nil
	}
	k := newLinker(libs)
	k.follow(mod, []string{mod.Package.Path[1:].String()}, nil)
	return k.libraries()
}

// linked is a library that a control imports.
type linked struct {
	Library
	pkg     ast.Ref
	file    string
	module  *ast.Module // as parsed; never changed
	exports map[string]bool
	site    *ast.Location // where the control's own text first leads to it
}

// linker finds the libraries that a module reaches.
type linker struct {
	available map[string]Library // by package
	reached   map[string]*linked // the libraries that were loaded, by package
	issues    []Issue
}

func newLinker(libs []Library) *linker {
	k := &linker{available: map[string]Library{}, reached: map[string]*linked{}}
	for _, l := range libs {
		if pkg := l.Package(); pkg != "" {
			k.available[pkg] = l
		}
	}
	return k
}

// libraries returns the libraries that were reached, sorted by package.
func (k *linker) libraries() []Library {
	var out []Library
	for _, l := range k.sorted() {
		out = append(out, l.Library)
	}
	return out
}

func (k *linker) sorted() []*linked {
	var out []*linked
	for _, pkg := range slices.Sorted(maps.Keys(k.reached)) {
		out = append(out, k.reached[pkg])
	}
	return out
}

// packageOf returns the package of a library, known or not, with which a reference begins; "" if
// the reference does not lead to a library.
func (k *linker) packageOf(ref ast.Ref) string {
	path := constPath(ref[1:])
	if !ref[0].Equal(ast.DefaultRootDocument) || len(path) < 2 || path[0] != LibraryRoot {
		return ""
	}
	for n := 2; n <= len(path); n++ {
		if pkg := strings.Join(path[:n], "."); k.hasLibrary(pkg) {
			return pkg
		}
	}
	return strings.Join(path[:2], ".")
}

func (k *linker) hasLibrary(pkg string) bool {
	_, ok := k.available[pkg]
	return ok
}

// follow loads the libraries that a module refers to. trail are the packages that led to the
// module. site is the place in the control's own text that led to it; nil for the control itself.
func (k *linker) follow(mod *ast.Module, trail []string, site *ast.Location) {
	visit := func(ref ast.Ref, loc *ast.Location, imported bool) {
		pkg := k.packageOf(ref)
		if pkg == "" {
			return
		}
		if imported && !k.hasLibrary(pkg) {
			pkg = strings.Join(constPath(ref[1:]), ".")
		}
		if site != nil {
			loc = site
		}
		if i := slices.Index(trail, pkg); i >= 0 {
			if i < len(trail)-1 {
				k.report(loc, "library_cycle", "libraries refer to each other in a circle: %s", strings.Join(append(slices.Clone(trail[i:]), pkg), " -> "))
			}
			return
		}
		k.load(pkg, trail, loc)
	}
	for _, imp := range mod.Imports {
		if ref, ok := imp.Path.Value.(ast.Ref); ok {
			visit(ref, imp.Location, true)
		}
	}
	EachRef(mod, func(ref ast.Ref) { visit(ref, ref[0].Location, false) })
}

// load parses and checks one library and the libraries that it refers to, each once.
func (k *linker) load(pkg string, trail []string, site *ast.Location) {
	if k.reached[pkg] != nil {
		return
	}
	lib, ok := k.available[pkg]
	switch {
	case !ok && len(trail) > 1:
		k.report(site, "unknown_library", "library %s refers to %s, which is not an active library of this environment", trail[len(trail)-1], pkg)
		return
	case !ok:
		k.report(site, "unknown_library", "this environment has no active library %s", pkg)
		return
	case len(k.reached) >= maxLibraries:
		k.report(site, "source_limit", "the control uses more than %d libraries", maxLibraries)
		return
	}
	l := &linked{Library: lib, file: pkg + ".rego", site: site, exports: map[string]bool{}}
	k.reached[pkg] = l
	mod, issues := parse(l.file, lib.Source)
	if issues == nil {
		issues = append(checkPackage(mod, true), findForbidden(mod)...)
		issues = append(issues, checkSome(mod)...)
	}
	if len(issues) > 0 {
		k.report(site, issues[0].Rule, "library %s, line %d: %s", pkg, issues[0].Line, issues[0].Message)
		delete(k.reached, pkg)
		return
	}
	l.module, l.pkg, l.exports = mod, mod.Package.Path, TopNames(mod)
	k.follow(mod, append(slices.Clone(trail), pkg), site)
}

// modules returns copies of a module and its libraries, to compile them together.
func (k *linker) modules(mod *ast.Module) map[string]*ast.Module {
	out := map[string]*ast.Module{sourceName: mod.Copy()}
	for _, l := range k.reached {
		out[l.file] = l.module.Copy()
	}
	return out
}

// checkTotal applies the bounds on one module to a module together with its libraries.
func (k *linker) checkTotal(mod *ast.Module) []Issue {
	if len(k.reached) == 0 {
		return nil
	}
	m := measure{}
	rules := slices.Clone(mod.Rules)
	for _, l := range k.reached {
		rules = append(rules, l.module.Rules...)
	}
	for _, r := range rules {
		if what := m.rule(r); what != "" {
			return []Issue{sourceIssue(0, 0, "with its libraries: %s", what)}
		}
	}
	return nil
}

// checkCompiled checks the references of the compiled modules. In these, imports and local names
// are resolved, so that an alias hides nothing.
func (k *linker) checkCompiled(compiler *ast.Compiler, pkg ast.Ref) []Issue {
	issues := k.checkData(compiler.Modules[sourceName], pkg)
	for _, l := range k.sorted() {
		found := k.checkData(compiler.Modules[l.file], l.pkg)
		for i := range found {
			found[i].file = l.file
		}
		issues = append(issues, k.locateIssues(found)...)
	}
	return issues
}

// locateIssues moves issues in a library to the place where the control refers to the library.
func (k *linker) locateIssues(issues []Issue) []Issue {
	for i, is := range issues {
		pkg := strings.TrimSuffix(is.file, ".rego")
		if l := k.reached[pkg]; l != nil {
			issues[i] = IssueAt(l.site, is.Rule, "library %s, line %d: %s", pkg, is.Line, is.Message)
		}
	}
	return issues
}

func (k *linker) report(loc *ast.Location, rule, format string, args ...any) {
	k.issues = append(k.issues, IssueAt(loc, rule, format, args...))
}

// refusedLibrary returns the reason why a reference to a library is not allowed; "" if it is. Only
// an import may name a whole package. The member of a library must be a constant, and must exist.
func (k *linker) refusedLibrary(ref ast.Ref, imported bool) string {
	path := constPath(ref[1:])
	if len(path) < 2 {
		return "the library must be written out, such as data.lib.text"
	}
	l := k.reached[k.packageOf(ref)]
	if l == nil {
		return "" // follow has reported the reason
	}
	switch n := len(l.pkg) - 1; {
	case len(path) == n && imported:
		return ""
	case len(path) <= n:
		return fmt.Sprintf("name a rule or function of the library %s", l.Package())
	case !l.exports[path[n]]:
		return fmt.Sprintf("the library %s has no rule or function %q", l.Package(), path[n])
	}
	return ""
}

// checkNested refuses a library whose package is inside that of another library, or contains it:
// the meaning of a reference would depend on which libraries exist.
func (k *linker) checkNested(pkg string, loc *ast.Location) []Issue {
	for other := range k.available {
		if strings.HasPrefix(other+".", pkg+".") || strings.HasPrefix(pkg+".", other+".") {
			return []Issue{IssueAt(loc, "library_package", "there is already a library %s, and neither may contain the other", other)}
		}
	}
	return nil
}
