package cli

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
)

// runWithin runs fn, and returns its result or, if ctx ends first, the cause of that. The evaluation
// of an author's Rego cannot always be stopped in time, so fn may still be running then.
func runWithin[T any](ctx context.Context, fn func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := fn()
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		return a.v, a.err
	case <-ctx.Done():
		var none T
		return none, &Failure{ExitFindings, context.Cause(ctx)}
	}
}

// validateHere validates in this process.
func validateHere(ctx context.Context, files []controlfile.File, lint bool) (controlfile.Validation, error) {
	return runWithin(ctx, func() (controlfile.Validation, error) {
		repo, issues := controlfile.Read(files)
		v := controlfile.Validation{Controls: []controlfile.Named{}, Warnings: []lang.FileIssue{}}
		for _, c := range repo.Controls {
			v.Controls = append(v.Controls, controlfile.Named{Path: c.Path, Name: c.Name})
		}
		v.Errors = append(append([]lang.FileIssue{}, issues...), suite.CheckModules(repo.Modules)...)
		if v.Valid = len(v.Errors) == 0; !v.Valid {
			return v, nil
		}
		for _, c := range repo.Controls {
			v.Warnings = append(v.Warnings, c.TenantWide(nil)...)
		}
		if !lint {
			return v, nil
		}
		linter, err := lang.NewLinter(ctx)
		if err != nil {
			return v, err
		}
		for _, c := range repo.Controls {
			warnings, err := linter.Lint(ctx, c.Source)
			if err != nil {
				return v, err
			}
			for _, w := range warnings {
				v.Warnings = append(v.Warnings, lang.FileIssue{File: c.Path, Issue: w})
			}
		}
		return v, nil
	})
}

// testHere runs tests in this process.
func testHere(ctx context.Context, files []controlfile.File) (controlfile.TestReport, error) {
	return runWithin(ctx, func() (controlfile.TestReport, error) {
		repo, issues := controlfile.Read(files)
		mods, err := suite.TestModules(ctx, repo.Modules)
		if err != nil {
			return controlfile.TestReport{}, err
		}
		if len(issues)+len(mods.Issues) > 0 {
			return controlfile.NewTestReport(issues, mods, nil), nil
		}
		var libs []lang.Library
		for _, m := range repo.Modules {
			if l := (lang.Library{Name: m.Path, Source: m.Content}); !m.IsTest() && l.Package() != "" {
				libs = append(libs, l)
			}
		}
		var results []controlfile.CaseResult
		for _, c := range repo.Controls {
			cases, bad := c.RegoCases()
			issues = append(issues, bad...)
			if len(cases) == 0 || len(bad) > 0 {
				continue
			}
			control, wrong := rego.Compile(rego.Meta{Name: c.Name}, c.Source, libs...)
			for _, is := range wrong {
				issues = append(issues, lang.FileIssue{File: c.Path, Issue: is})
			}
			if control == nil {
				continue
			}
			rs := suite.RunTests(ctx, control, cases, nil, rego.Limits{Now: time.Now()}, time.Now)
			results = append(results, c.Results(rs)...)
		}
		return controlfile.NewTestReport(issues, mods, results), nil
	})
}
