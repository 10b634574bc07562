package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
)

// Test runs the tests of files. It is also a finding if they cover less than least percent of the
// lines of all controls.
func Test(ctx context.Context, o Options, files []controlfile.File, least float64) error {
	var r controlfile.TestReport
	if o.Server != nil {
		if err := o.ask(ctx, http.MethodPost, "/policies-as-code/test", "", policycode.Request{Files: files}, &r); err != nil {
			return o.writeRefused(err)
		}
	} else {
		var err error
		if r, err = testHere(ctx, files); err != nil {
			return err
		}
	}
	rep := testReport(r)
	enough := len(r.Errors) > 0 || r.Summary.Coverage >= least
	if !enough {
		rep.add(Case{Suite: "coverage", Name: "coverage", Failure: fmt.Sprintf("the tests reach %.2f %% of the lines, fewer than %.2f %%", r.Summary.Coverage, least)}, "coverage")
	}
	rep.Text = func(p *printer) { p.tests(r, least) }
	if err := o.write("test", rep); err != nil {
		return err
	}
	return findings(r.Passed && enough)
}

// testReport returns the report of a test run.
func testReport(r controlfile.TestReport) Report {
	rep := Report{Value: r, Issues: append([]lang.FileIssue{}, r.Errors...)}
	for _, t := range r.Tests {
		c := Case{Suite: t.Package, Name: t.Name, File: t.File, Line: t.Line, Seconds: t.DurationMS / 1000, Output: t.Output, Skipped: t.Status == suite.TestSkipped}
		switch t.Status {
		case suite.TestFailed:
			c.Failure = "the test fails"
			for _, x := range t.Failing() {
				c.Failure += fmt.Sprintf("\n%s:%d: did not hold: %s", x.File, x.Line, x.Source)
			}
			for _, name := range t.FailedCases {
				c.Failure += "\ncase " + name
			}
		case suite.TestError:
			c.Error = t.Error
		}
		rep.add(c, "rego-test")
	}
	for _, k := range r.Cases {
		c := Case{Suite: k.Control, Name: k.Result.Name, File: k.File, Line: k.Line, Seconds: k.Result.EvaluationTimeMS / 1000}
		switch {
		case !k.Result.Passed:
			c.Failure = fmt.Sprintf("%s: %s (%s)", k.Result.Missed(), k.Result.Effect, k.Result.Reason)
			if k.Result.Why != "" {
				c.Failure += "\n" + k.Result.Why
			}
		case k.Result.Error != "":
			c.Output = k.Result.Error
		}
		rep.add(c, "test-case")
	}
	for _, is := range r.Errors {
		rep.Cases = append(rep.Cases, Case{Suite: "files", Name: is.File, File: is.File, Line: is.Line, Error: is.Message})
	}
	return rep
}
