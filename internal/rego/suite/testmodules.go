// Package suite runs the tests that authors write for their controls: stored cases (an input, and
// whether access is expected), and modules of Rego tests. For modules it reports the coverage and
// the expressions that failed.
//
// Cases run on the engine. Modules run on OPA's own evaluator and test runner, with bounds on
// built-ins whose work can exceed the size of their arguments (bounded.go).
package suite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	oparego "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/print"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// The bounds on a run of Rego tests, in addition to those on each source.
const (
	testTimeout    = 5 * time.Second // one test
	maxTestOutput  = 8 << 10         // bytes that one test prints
	maxTestsOutput = 256 << 10       // bytes that all tests print
	maxFailedCases = 100             // names of failed cases that one test lists
)

// TestSuffix is the end of the names of files with Rego tests.
const TestSuffix = "_test.rego"

// Module is a Rego file: tests if its path ends in TestSuffix, otherwise a control or library.
type Module struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	// Stored marks a library that is not a file of the repository, but stored in the service. A
	// library with the same package among the files replaces it. It has no coverage.
	Stored bool `json:"stored,omitempty"`
}

// StoredModules converts libraries of the service to modules for TestModules.
func StoredModules(libs []lang.Library) []Module {
	out := make([]Module, 0, len(libs))
	for _, l := range libs {
		out = append(out, Module{Path: "(stored)/" + l.Package() + ".rego", Content: l.Source, Stored: true})
	}
	return out
}

// IsTest reports whether the file has tests.
func (m Module) IsTest() bool { return strings.HasSuffix(m.Path, TestSuffix) }

// ModuleTest is the result of one test rule. For a rule with several cases (`test_x[name] if …`) it
// has the names of those that failed.
type ModuleTest struct {
	File        string   `json:"file" doc:"File that holds the test"`
	Line        int      `json:"line" doc:"Line of the test rule, from 1"`
	Package     string   `json:"package" doc:"Its package"`
	Name        string   `json:"name" doc:"Name of the test rule"`
	Status      string   `json:"status" enum:"passed,failed,skipped,error" doc:"skipped: its name begins with todo_; error: it could not be evaluated"`
	DurationMS  float64  `json:"duration_ms" doc:"How long it took"`
	Error       string   `json:"error,omitempty" doc:"Why it could not be evaluated"`
	Output      string   `json:"output,omitempty" doc:"Its output, cut after 8 KiB"`
	FailedCases []string `json:"failed_cases,omitempty" doc:"The failed cases, for a test with several cases"`
	// FailedAt and Because say why a test failed, if that is known.
	FailedAt *Expression `json:"failed_at,omitempty" doc:"The expression of the test that did not hold"`
	Because  *Expression `json:"because,omitempty" doc:"The last expression of the control that did not hold before that"`
}

// The values of ModuleTest.Status.
const (
	TestPassed  = "passed"
	TestFailed  = "failed"
	TestSkipped = "skipped"
	TestError   = "error"
)

// Coverage says how much of a control the tests reached. A line is uncovered if anything on it was
// not reached.
type Coverage struct {
	File      string  `json:"file" doc:"File of the control"`
	Percent   float64 `json:"percent" doc:"Share of lines that the tests covered, 0 to 100"`
	Covered   int     `json:"covered_lines" doc:"Number of covered lines"`
	Uncovered []int   `json:"uncovered_lines" doc:"Lines that were not covered, from 1"`
}

// ModuleReport is the result of a run: issues that kept tests from running, or the tests, sorted by
// file and line, and the coverage of each control, sorted by file.
type ModuleReport struct {
	Issues   []lang.FileIssue `json:"issues,omitempty"`
	Tests    []ModuleTest     `json:"tests"`
	Coverage []Coverage       `json:"coverage"`
}

// TestModules runs the tests among mods like `opa test`, but with our built-ins and bounds. The test
// files of a directory are compiled together with the controls in the directory, and with other
// controls whose packages they name. ctx can end the run between two steps of an evaluation.
func TestModules(ctx context.Context, mods []Module) (ModuleReport, error) {
	rep := ModuleReport{Tests: []ModuleTest{}, Coverage: []Coverage{}}
	suite, issues := parseModules(mods)
	if rep.Issues = issues; len(issues) > 0 {
		return rep, nil
	}
	tracer := cover.New()
	for _, dir := range suite.directories() {
		group, issues := suite.group(dir)
		if len(issues) == 0 {
			var results []ModuleTest
			results, issues = suite.run(ctx, group, tracer)
			rep.Tests = append(rep.Tests, results...)
		}
		rep.Issues = append(rep.Issues, issues...)
	}
	slices.SortStableFunc(rep.Tests, func(a, b ModuleTest) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name))
	})
	rep.Coverage = suite.coverage(tracer)
	locateIn(mods, rep.Issues)
	return rep, ctx.Err()
}

// locateIn moves each issue to a place that exists in its file.
func locateIn(mods []Module, issues []lang.FileIssue) {
	for i := range issues {
		for _, m := range mods {
			if m.Path == issues[i].File {
				lang.Locate(m.Content, &issues[i].Issue)
			}
		}
	}
}

// CheckModules returns the issues that keep controls from being stored or tests from running. It
// does not run the tests.
func CheckModules(mods []Module) []lang.FileIssue {
	suite, issues := parseModules(mods)
	if len(issues) > 0 {
		return issues
	}
	for _, dir := range suite.directories() {
		group, found := suite.group(dir)
		if len(found) == 0 {
			found = compiles(group)
		}
		issues = append(issues, found...)
	}
	locateIn(mods, issues)
	return issues
}

// parseModules parses all files; those that fail are not in the suite.
func parseModules(mods []Module) (*testSuite, []lang.FileIssue) {
	suite := &testSuite{modules: map[string]*ast.Module{}, stored: map[string]bool{}}
	var out []lang.FileIssue
	var libs []lang.Library
	files := map[string]bool{} // packages of libraries among the files
	for _, m := range mods {
		if isLibrary(m) && !m.Stored {
			files[lang.Library{Source: m.Content}.Package()] = true
		}
	}
	mods = slices.DeleteFunc(slices.Clone(mods), func(m Module) bool { return m.Stored && files[lang.Library{Source: m.Content}.Package()] })
	for i, m := range mods {
		suite.stored[m.Path] = m.Stored
		if isLibrary(m) {
			libs = append(libs, lang.Library{ID: int64(i + 1), Name: m.Path, Source: m.Content})
		}
	}
	for _, m := range mods {
		mod, issues := parseTestModule(m, libs)
		for _, is := range issues {
			out = append(out, lang.FileIssue{File: m.Path, Issue: is})
		}
		if len(issues) == 0 {
			suite.modules[m.Path] = mod
		}
	}
	return suite, out
}

// compiles returns the issues that the compiler finds in a group.
func compiles(group map[string]*ast.Module) (issues []lang.FileIssue) {
	defer func() {
		if p := recover(); p != nil {
			issues = []lang.FileIssue{panicIssue(p)}
		}
	}()
	compiler, copies := testCompiler(group)
	if compiler.Compile(copies); compiler.Failed() {
		return lang.FileIssues(compiler.Errors)
	}
	return nil
}

func panicIssue(p any) lang.FileIssue {
	return lang.FileIssue{Issue: lang.CrashIssue("the tests cannot be compiled", p, "compiler")}
}

// testCompiler returns a compiler for a group, and copies of the group's files to compile.
func testCompiler(group map[string]*ast.Module) (*ast.Compiler, map[string]*ast.Module) {
	copies := map[string]*ast.Module{}
	for p, mod := range group {
		copies[p] = mod.Copy()
	}
	return ast.NewCompiler().WithCapabilities(testCapabilities()).WithDefaultRegoVersion(ast.RegoV1).WithEnablePrintStatements(true), copies
}

// parseTestModule parses a control or a file of tests under all bounds.
func parseTestModule(m Module, libs []lang.Library) (*ast.Module, []lang.Issue) {
	if m.IsTest() {
		return lang.ParseTests(m.Path, m.Content)
	}
	others := slices.DeleteFunc(slices.Clone(libs), func(l lang.Library) bool { return l.Name == m.Path })
	return lang.ParseChecked(m.Path, m.Content, others...)
}

// isLibrary reports whether a file is a library, which its package shows.
func isLibrary(m Module) bool { return !m.IsTest() && lang.Library{Source: m.Content}.Package() != "" }

// testSuite has the parsed files of a run, by path.
type testSuite struct {
	modules map[string]*ast.Module
	stored  map[string]bool
	printed int
}

// paths returns the paths of the tests or of the controls, sorted.
func (s *testSuite) paths(tests bool) []string {
	var out []string
	for p := range s.modules {
		if (Module{Path: p}).IsTest() == tests {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// directories returns the directories with tests.
func (s *testSuite) directories() []string {
	var out []string
	for _, p := range s.paths(true) {
		out = append(out, path.Dir(p))
	}
	return slices.Compact(out) // neighbours: the paths are sorted, all of a directory but for its subdirectories
}

// group returns the files that the tests of a directory are compiled with, and their issues.
func (s *testSuite) group(dir string) (map[string]*ast.Module, []lang.FileIssue) {
	in := map[string]*ast.Module{}
	var queue []*ast.Module
	for p, mod := range s.modules {
		if path.Dir(p) == dir {
			in[p] = mod
			queue = append(queue, mod)
		}
	}
	for len(queue) > 0 {
		mod := queue[0]
		queue = queue[1:]
		for _, want := range namedPackages(mod) {
			if s.provides(in, want) {
				continue
			}
			for _, p := range s.paths(false) {
				if _, there := in[p]; !there && related(want, s.modules[p].Package.Path) {
					in[p] = s.modules[p]
					queue = append(queue, s.modules[p])
				}
			}
		}
	}
	return in, s.checkDistinct(in)
}

// provides reports whether a control in a group has a package that want names.
func (s *testSuite) provides(in map[string]*ast.Module, want ast.Ref) bool {
	for p, mod := range in {
		if !(Module{Path: p}).IsTest() && related(want, mod.Package.Path) {
			return true
		}
	}
	return false
}

// checkDistinct refuses two controls of one package. Each control decides by itself, so a test of
// both as one package would prove nothing.
func (s *testSuite) checkDistinct(in map[string]*ast.Module) []lang.FileIssue {
	seen := map[string]string{}
	var out []lang.FileIssue
	for _, p := range s.paths(false) {
		mod, there := in[p]
		if !there {
			continue
		}
		name := mod.Package.Path.String()
		if first, twice := seen[name]; twice {
			out = append(out, lang.FileIssue{File: p, Issue: lang.IssueAt(mod.Package.Location, "ambiguous_package",
				"the tests cannot tell this control from %s: both are %s; give one another package or directory", first, mod.Package.String())})
			continue
		}
		seen[name] = p
	}
	return out
}

// namedPackages returns the references of a file to data, and its own package.
func namedPackages(mod *ast.Module) []ast.Ref {
	out := []ast.Ref{mod.Package.Path}
	note := func(ref ast.Ref) {
		if len(ref) > 1 && ref[0].Equal(ast.DefaultRootDocument) {
			out = append(out, ref)
		}
	}
	for _, imp := range mod.Imports {
		if ref, ok := imp.Path.Value.(ast.Ref); ok {
			note(ref)
		}
	}
	lang.EachRef(mod, note)
	return out
}

// related reports whether one of two references is a prefix of the other.
func related(ref, pkg ast.Ref) bool { return ref.HasPrefix(pkg) || pkg.HasPrefix(ref) }

// testCapabilities adds the built-in that OPA's test runner inserts into tests to those that
// controls may call. Authors must not call it (ParseTests).
var testCapabilities = sync.OnceValue(func() *ast.Capabilities {
	c := *lang.Capabilities()
	c.Builtins = append(slices.Clone(c.Builtins), ast.BuiltinMap["internal.test_case"])
	return &c
})

// run compiles a group and runs its tests, one after another.
func (s *testSuite) run(ctx context.Context, group map[string]*ast.Module, tracer *cover.Cover) (out []ModuleTest, issues []lang.FileIssue) {
	defer func() {
		if p := recover(); p != nil { // OPA's code may panic on hostile text
			out, issues = nil, []lang.FileIssue{panicIssue(p)}
		}
	}()
	compiler, copies := testCompiler(group)
	compiler.WithStageAfterID(ast.StageBuildRequiredCapabilities, ast.CompilerStageDefinition{
		Name: "PointAtBounded", MetricName: "point_at_bounded",
		Stage: func(c *ast.Compiler) *ast.Error { pointAtBounded(c.Modules); return nil },
	})
	prints, watch := &testPrints{room: maxTestsOutput - s.printed}, watchFailures(tracer)
	results, err := tester.NewRunner().SetCompiler(compiler).SetModules(copies).SetParallel(1).SetTimeout(testTimeout).
		SetCoverageRuns(nil).SetCoverageQueryTracer(watch).AddCustomBuiltins(boundedForTests(prints)).RunTests(ctx, nil)
	if err != nil {
		return nil, lang.FileIssues(err)
	}
	var ended []*tester.Result
	for r := range results {
		var printed []byte
		if !r.Skip {
			printed = prints.next()
		}
		s.printed += len(printed)
		out = append(out, testOutcome(r, printed))
		ended = append(ended, r)
	}
	// The runner sends a result while the next test runs, so failures are read at the end.
	for i, r := range ended {
		out[i].FailedAt, out[i].Because = watch.of(r, nextRule(group, r.Location))
	}
	return out, nil
}

// nextRule returns the line on which the next rule of a file begins.
func nextRule(group map[string]*ast.Module, at *ast.Location) int {
	next := math.MaxInt
	if at == nil || group[at.File] == nil {
		return next
	}
	for _, r := range group[at.File].Rules {
		if r.Location.Row > at.Row {
			next = min(next, r.Location.Row)
		}
	}
	return next
}

func testOutcome(r *tester.Result, printed []byte) ModuleTest {
	t := ModuleTest{
		Package: strings.TrimPrefix(r.Package, "data."), Name: r.Name, Status: TestPassed,
		DurationMS: float64(r.Duration.Microseconds()) / 1000, Output: strings.ToValidUTF8(string(printed), "\uFFFD"),
	}
	if r.Location != nil {
		t.File, t.Line = r.Location.File, r.Location.Row
	}
	switch {
	case r.Skip:
		t.Status = TestSkipped
	case r.Error != nil:
		t.Status, t.Error = TestError, testFailure(r.Error)
	case r.Fail:
		t.Status = TestFailed
	}
	for name, sub := range r.SubResults.Iter {
		if sub.Fail && len(sub.SubResults) == 0 && len(t.FailedCases) < maxFailedCases {
			t.FailedCases = append(t.FailedCases, strings.Join(name, "/"))
		}
	}
	return t
}

// testFailure returns why a test could not be evaluated, with texts of our own for bounds.
func testFailure(err error) string {
	switch {
	case errors.Is(err, errAllowance):
		return rego.ReasonLimit + ": a built-in reached its limit"
	case topdown.IsCancel(err):
		return fmt.Sprintf("%s: the test did not finish within %s", rego.ReasonLimit, testTimeout)
	default:
		return lang.FirstLine(err.Error())
	}
}

// boundedForTests returns the bounded built-ins for OPA's test runner. The runner applies each of
// them at the start of each test, so the first one also starts the test's output.
func boundedForTests(prints *testPrints) []*tester.Builtin {
	out := []*tester.Builtin{{Func: func(r *oparego.Rego) { oparego.PrintHook(prints.begin())(r) }}}
	for _, b := range boundedBuiltins() {
		fn := oparego.FunctionDyn(
			&oparego.Function{Name: b.Decl.Name, Decl: b.Decl.Decl, Nondeterministic: b.Decl.Nondeterministic},
			func(bctx oparego.BuiltinContext, terms []*ast.Term) (*ast.Term, error) {
				budget := newAllowance(testTimeout)
				defer budget.release()
				outer := bctx.Cancel
				bctx.Cancel = budget
				var answer *ast.Term
				err := b.Func(bctx, terms, func(t *ast.Term) error { answer = t; return nil })
				bctx.Cancel = outer
				if budget.Cancelled() {
					return nil, oparego.NewHaltError(errAllowance)
				}
				return answer, err
			})
		out = append(out, &tester.Builtin{Decl: b.Decl, Func: fn})
	}
	return out
}

// testPrints keeps the output of tests, in the order of the tests, within bounds.
type testPrints struct {
	mu    sync.Mutex
	room  int
	tests []*testPrint
}

// begin starts the output of the next test.
func (p *testPrints) begin() print.Hook {
	p.mu.Lock()
	defer p.mu.Unlock()
	room := max(0, min(maxTestOutput, p.room))
	for _, t := range p.tests {
		room = max(0, min(room, p.room-t.buf.Len()))
	}
	t := &testPrint{room: room}
	p.tests = append(p.tests, t)
	return t
}

// next removes and returns the output of the oldest test.
func (p *testPrints) next() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tests) == 0 {
		return nil
	}
	t := p.tests[0]
	p.tests = p.tests[1:]
	p.room -= t.buf.Len()
	return t.buf.Bytes()
}

// testPrint is the output of one test, cut after room bytes.
type testPrint struct {
	buf  bytes.Buffer
	room int
	cut  bool
}

// Print implements print.Hook.
func (t *testPrint) Print(_ print.Context, msg string) error {
	switch left := t.room - t.buf.Len(); {
	case t.cut:
	case len(msg) < left:
		t.buf.WriteString(msg)
		t.buf.WriteByte('\n')
	default:
		t.buf.WriteString(msg[:max(0, left)])
		t.buf.WriteString("\n… cut\n")
		t.cut = true
	}
	return nil
}

// coverage returns the coverage of each control.
func (s *testSuite) coverage(tracer *cover.Cover) []Coverage {
	controls := map[string]*ast.Module{}
	mine := slices.DeleteFunc(s.paths(false), func(p string) bool { return s.stored[p] })
	for _, p := range mine {
		controls[p] = s.modules[p]
	}
	report := tracer.Report(controls)
	out := []Coverage{}
	for _, p := range mine {
		c := Coverage{File: p, Uncovered: []int{}}
		reached, missed := map[int]bool{}, map[int]bool{}
		if f := report.Files[p]; f != nil {
			rows(f.Covered, reached)
			rows(f.NotCovered, missed)
		}
		for row := range reached {
			if !missed[row] {
				c.Covered++
			}
		}
		for row := range missed {
			c.Uncovered = append(c.Uncovered, row)
		}
		slices.Sort(c.Uncovered)
		c.Percent = 100
		if all := c.Covered + len(c.Uncovered); all > 0 {
			c.Percent = float64(c.Covered*10000/all) / 100
		}
		out = append(out, c)
	}
	return out
}

func rows(ranges []cover.Range, into map[int]bool) {
	for _, r := range ranges {
		for row := r.Start.Row; row <= r.End.Row; row++ {
			into[row] = true
		}
	}
}
