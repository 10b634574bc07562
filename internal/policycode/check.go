package policycode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// The time limits of the linter and of the manifests' test cases, for all files of a request. The
// whole request has 90 s.
const (
	lintTime  = 20 * time.Second
	casesTime = 25 * time.Second
)

// Validate validates files. Errors in the files are part of the result, and not a fault. It runs
// the linter only if there are none. Faults: those of the worker pool.
func (s *Service) Validate(ctx context.Context, sc scope.Scope, r Request) (controlfile.Validation, error) {
	v := controlfile.Validation{Controls: []controlfile.Named{}, Warnings: []lang.FileIssue{}}
	repo, issues := read(r.Files)
	for _, c := range repo.Controls {
		v.Controls = append(v.Controls, controlfile.Named{Path: c.Path, Name: c.Name})
	}
	stored, err := s.Policies.Libraries(ctx, sc, scope.Sandbox)
	if err != nil {
		return controlfile.Validation{}, err
	}
	found, err := s.Evaluator.CheckModules(ctx, sc.Tenant, append(repo.Modules, suite.StoredModules(stored)...))
	if err != nil {
		return controlfile.Validation{}, err
	}
	linked, unresolved, err := s.resolve(ctx, sc, repo, r)
	if err != nil {
		return controlfile.Validation{}, err
	}
	v.Errors = append(append(append([]lang.FileIssue{}, issues...), found...), unresolved...)
	if v.Valid = len(v.Errors) == 0; !v.Valid {
		return v, nil
	}
	if v.Warnings, err = s.shadowWarnings(ctx, sc, repo, linked, r); err != nil {
		return controlfile.Validation{}, err
	}
	started := s.Now()
	for _, c := range repo.Controls {
		if s.Now().Sub(started) > lintTime {
			v.Warnings = append(v.Warnings, lang.FileIssue{File: c.Path, Issue: lang.Issue{
				Message: "the linter had no time for this file and those after it", Severity: lang.SeverityWarning, Rule: "linter",
			}})
			break
		}
		v.Warnings = append(v.Warnings, c.TenantWide(r.ResourceID)...)
		warnings, err := s.Evaluator.Lint(ctx, sc.Tenant, c.Source)
		if err != nil {
			return controlfile.Validation{}, err
		}
		for _, w := range warnings {
			v.Warnings = append(v.Warnings, lang.FileIssue{File: c.Path, Issue: w})
		}
	}
	return v, nil
}

// Test runs the Rego tests of files, with coverage, and the test cases of their manifests. A case
// without data of its own uses the data of sandbox. Errors in the files are part of the result, and
// not a fault. Faults: those of the worker pool, Forbidden if the license does not allow tests, and
// Invalid "evaluation_limit" if a run exceeds its time or memory.
func (s *Service) Test(ctx context.Context, sc scope.Scope, r Request) (controlfile.TestReport, error) {
	if err := s.Policies.MayTest.Check(ctx, sc); err != nil {
		return controlfile.TestReport{}, err
	}
	repo, issues := read(r.Files)
	return s.test(ctx, sc, repo, issues)
}

func (s *Service) test(ctx context.Context, sc scope.Scope, repo controlfile.Repository, issues []lang.FileIssue) (controlfile.TestReport, error) {
	stored, err := s.Policies.Libraries(ctx, sc, scope.Sandbox)
	if err != nil {
		return controlfile.TestReport{}, err
	}
	mods, err := s.Evaluator.TestModules(ctx, sc.Tenant, append(repo.Modules, suite.StoredModules(stored)...))
	if err != nil {
		return controlfile.TestReport{}, err
	}
	if len(issues)+len(mods.Issues) > 0 {
		return controlfile.NewTestReport(issues, mods, nil), nil
	}
	results, libs, started := []controlfile.CaseResult{}, repo.Libraries(stored), s.Now()
	for _, c := range repo.Controls {
		cases, bad := c.RegoCases()
		issues = append(issues, bad...)
		if len(cases) == 0 || len(bad) > 0 {
			continue
		}
		if s.Now().Sub(started) > casesTime {
			return controlfile.TestReport{}, fault.Newf(fault.Invalid, "evaluation_limit", "the test cases did not finish within %s", casesTime)
		}
		rs, err := s.Policies.RunCases(ctx, sc, scope.Sandbox, worker.TestRequest{Name: c.Name, Source: c.Source, Libraries: libs, Cases: cases})
		if err != nil {
			return controlfile.TestReport{}, err
		}
		results = append(results, c.Results(rs)...)
	}
	return controlfile.NewTestReport(issues, mods, results), nil
}

// read reads files. It is an issue if none of them is a control.
func read(files []controlfile.File) (controlfile.Repository, []lang.FileIssue) {
	repo, issues := controlfile.Read(files)
	if len(repo.Controls) == 0 && len(issues) == 0 {
		issues = append(issues, lang.FileIssue{Issue: lang.Issue{Message: "the files contain no control: a .rego file that is not a _test.rego file", Severity: lang.SeverityError, Rule: "file"}})
	}
	return repo, issues
}

// links are the ids of the resource and bouncer that a control's manifest names. An id is nil if
// the manifest names none.
type links struct{ resource, bouncer *int64 }

// resolve finds the resources and bouncers in sandbox that the manifests name. A name that matches
// none, or several, is an issue.
func (s *Service) resolve(ctx context.Context, sc scope.Scope, repo controlfile.Repository, _ Request) ([]links, []lang.FileIssue, error) {
	if !sc.Sees(scope.Sandbox) { // a credential for production learns nothing about sandbox
		return make([]links, len(repo.Controls)), nil, nil
	}
	var out []links
	var issues []lang.FileIssue
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		out, issues = make([]links, len(repo.Controls)), nil
		for i, c := range repo.Controls {
			found, bad, err := s.link(ctx, tx, scope.Sandbox, c)
			if err != nil {
				return err
			}
			out[i], issues = found, append(issues, bad...)
		}
		return nil
	})
	return out, issues, err
}

// shadowWarnings returns warnings about controls whose resource is shadowed: some of its requests match
// another resource.
func (s *Service) shadowWarnings(ctx context.Context, sc scope.Scope, repo controlfile.Repository, linked []links, r Request) ([]lang.FileIssue, error) {
	out := []lang.FileIssue{}
	if !sc.Sees(scope.Sandbox) {
		return out, nil
	}
	bound := make([]int64, len(repo.Controls)) // the resource of each control; 0: none
	for i, c := range repo.Controls {
		id := linked[i].resource
		if id == nil && c.Resource == nil {
			id = r.ResourceID
		}
		if id != nil && !c.IsLibrary() {
			bound[i] = *id
		}
	}
	found, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (map[int64]resource.Shadow, error) {
		return resource.Shadows(ctx, tx, scope.Sandbox, slices.Compact(slices.Sorted(slices.Values(bound))))
	})
	for i, c := range repo.Controls {
		if by, shadowed := found[bound[i]]; shadowed {
			out = append(out, lang.FileIssue{File: c.Path, Issue: lang.Issue{Message: by.Why, Severity: lang.SeverityWarning, Rule: "shadowed"}})
		}
	}
	return out, err
}

// link finds the resource and bouncer that one control names, in an environment.
func (s *Service) link(ctx context.Context, tx *db.Tx, env scope.Env, c controlfile.Control) (out links, issues []lang.FileIssue, err error) {
	if l := c.Resource; l != nil && !l.None {
		ids := []int64{l.ID}
		if l.ID == 0 {
			if ids, err = resource.FindByName(ctx, tx, env, l.Name, l.Type, l.Path); err != nil {
				return out, nil, err
			}
		} else if there, err := resource.EnvironmentOf(ctx, tx, l.ID); err != nil || there != env {
			if err != nil && !fault.Is(err, fault.NotFound) {
				return out, nil, err
			}
			ids = nil
		}
		switch len(ids) {
		case 0:
			issues = append(issues, l.Issue("there is no such resource in %s", env))
		case 1:
			out.resource = &ids[0]
		default:
			issues = append(issues, l.Issue("this matches %d or more resources in %s: add its type and path, or use its id", len(ids), env))
		}
	}
	if l := c.Bouncer; l != nil && !l.None {
		id := l.ID
		if id == 0 {
			id, err = bouncer.FindByName(ctx, tx, env, l.Name)
		} else {
			var there scope.Env
			if there, err = bouncer.EnvironmentOf(ctx, tx, id); err == nil && there != env {
				err = fault.NotFoundf("no bouncer %d", id)
			}
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return out, nil, err
		}
		if err != nil {
			return out, append(issues, l.Issue("there is no such bouncer in %s", env)), nil
		}
		out.bouncer = &id
	}
	return out, issues, nil
}

// refusedFault returns the fault for files with errors: Invalid "invalid_policy", with all issues.
func refusedFault(files []controlfile.File, issues []lang.FileIssue) error {
	f := fault.Newf(fault.Invalid, "invalid_policy", "the files have %d errors", len(issues)).With("errors", issues)
	at := map[string]int{}
	for i, file := range files {
		at[file.Path] = i
	}
	for _, is := range issues {
		pointer := "/files"
		if i, ok := at[is.File]; ok {
			pointer = fmt.Sprintf("/files/%d/content", i)
		}
		f.Details = append(f.Details, fault.Detail{Pointer: pointer, Message: is.Message, Line: is.Line, Column: is.Column})
	}
	return f
}

// failedTestsFault returns the fault for tests that failed: Invalid "tests_failed".
func failedTestsFault(r controlfile.TestReport) error {
	f := fault.Newf(fault.Invalid, "tests_failed", "%d of %d tests fail", r.Summary.Failed, r.Summary.Total)
	failures := []any{}
	for _, t := range r.Tests {
		if t.Status == suite.TestFailed || t.Status == suite.TestError {
			failures = append(failures, t)
			f.Details = append(f.Details, fault.Detail{Message: strings.TrimSuffix(fmt.Sprintf("%s: %s %s: %s", t.File, t.Name, t.Status, t.Error), ": "), Line: t.Line})
		}
	}
	for _, c := range r.Cases {
		if !c.Result.Passed {
			failures = append(failures, c)
			came := c.Result.Missed()
			if c.Result.Error != "" {
				came = c.Result.Error // the cause, which the author must fix
			}
			f.Details = append(f.Details, fault.Detail{Message: fmt.Sprintf("%s: %s: %s", c.File, c.Result.Name, came), Line: c.Line})
		}
	}
	return f.With("failures", failures).With("summary", r.Summary)
}

// storedCases converts cases to those that are stored with a control. Their values get the types of
// JSON.
func storedCases(cases []controlfile.Case) ([]policy.TestCase, error) {
	out := []policy.TestCase{}
	for _, c := range cases {
		t := policy.TestCase{Name: c.Name, Expected: c.Expected}
		if err := convertJSON(c.Input, &t.Input); err != nil {
			return nil, err
		}
		if len(c.Data) > 0 {
			if err := convertJSON(c.Data, &t.Data); err != nil {
				return nil, err
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// convertJSON copies a value by encoding it as JSON and decoding that.
func convertJSON(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}
