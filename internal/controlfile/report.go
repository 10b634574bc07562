package controlfile

import (
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
)

// Validation is the result of validating a repository.
type Validation struct {
	Valid    bool             `json:"valid" doc:"Whether every file can be deployed"`
	Controls []Named          `json:"controls" doc:"The controls, by path"`
	Errors   []lang.FileIssue `json:"errors" doc:"Errors that stop a deployment, with file, line and column"`
	Warnings []lang.FileIssue `json:"warnings" doc:"The linter's warnings; they stop nothing"`
}

// Named is a control and its name.
type Named struct {
	Path string `json:"path" doc:"Path of the control"`
	Name string `json:"name" doc:"Name: from gatehouse.yaml, else its path without .rego"`
}

// TestReport has the results of the tests of a repository.
type TestReport struct {
	Passed   bool               `json:"passed" doc:"Whether the files are valid and no test failed"`
	Errors   []lang.FileIssue   `json:"errors" doc:"Errors that kept the tests from running, with file, line and column"`
	Tests    []suite.ModuleTest `json:"tests" doc:"The Rego tests (*_test.rego), by file and line"`
	Cases    []CaseResult       `json:"cases" doc:"The test cases of gatehouse.yaml"`
	Coverage []suite.Coverage   `json:"coverage" doc:"Coverage of each control by the Rego tests"`
	Summary  Summary            `json:"summary" doc:"Figures"`
}

// CaseResult is the result of a test case in a gatehouse.yaml.
type CaseResult struct {
	File    string           `json:"file" doc:"The gatehouse.yaml"`
	Line    int              `json:"line" doc:"Line of the case, from 1"`
	Control string           `json:"control" doc:"Path of the control"`
	Result  suite.TestResult `json:"result" doc:"The result"`
}

// Summary counts Rego tests and cases together.
type Summary struct {
	Total    int     `json:"total" doc:"Number in total"`
	Passed   int     `json:"passed" doc:"Number that passed"`
	Failed   int     `json:"failed" doc:"Number that failed or could not be evaluated"`
	Skipped  int     `json:"skipped" doc:"Number that were skipped (todo_test_…)"`
	Coverage float64 `json:"coverage" doc:"Share of all lines of controls that the Rego tests covered, 0 to 100"`
}

// NewTestReport returns a report with these parts and their summary.
func NewTestReport(issues []lang.FileIssue, mods suite.ModuleReport, cases []CaseResult) TestReport {
	r := TestReport{Errors: append([]lang.FileIssue{}, issues...), Tests: mods.Tests, Cases: cases, Coverage: mods.Coverage}
	r.Errors = append(r.Errors, mods.Issues...)
	if r.Tests == nil {
		r.Tests = []suite.ModuleTest{}
	}
	if r.Cases == nil {
		r.Cases = []CaseResult{}
	}
	if r.Coverage == nil {
		r.Coverage = []suite.Coverage{}
	}
	for _, t := range r.Tests {
		r.Summary.count(t.Status == suite.TestPassed, t.Status == suite.TestSkipped)
	}
	for _, c := range r.Cases {
		r.Summary.count(c.Result.Passed, false)
	}
	covered, all := 0, 0
	for _, c := range r.Coverage {
		covered, all = covered+c.Covered, all+c.Covered+len(c.Uncovered)
	}
	if all > 0 {
		r.Summary.Coverage = float64(covered*10000/all) / 100
	}
	r.Passed = len(r.Errors) == 0 && r.Summary.Failed == 0
	return r
}

func (s *Summary) count(passed, skipped bool) {
	s.Total++
	switch {
	case skipped:
		s.Skipped++
	case passed:
		s.Passed++
	default:
		s.Failed++
	}
}
