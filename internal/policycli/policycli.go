// Package policycli is `gatehouse policy`: an author's repository validated and
// tested, on this machine or by a server, deployed, compared and written.
//
//	paths ─► Load ─► local (package rego, in this process)   ─┐
//	              └► server (package client)                  ─┴► Report ─► text, JSON, SARIF, JUnit
//
// A command that looked and found something ends with ErrFindings.
package policycli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/client"
	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// Exit codes of the commands.
const (
	ExitFindings = 1
	ExitUsage    = 2
	ExitServer   = 3
	// ExitInterrupted is what shells give a program that Ctrl-C ended: 128 and the signal.
	ExitInterrupted = 130
)

// Failure is an error with the exit code that it ends the program with.
type Failure struct {
	Code int
	Err  error
}

// Error is the cause's text.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// ExitCode is what the program ends with.
func (f *Failure) ExitCode() int { return f.Code }

// ErrFindings says that there were findings, which have been written.
var ErrFindings = errors.New("there are findings")

func findings(ok bool) error {
	if ok {
		return nil
	}
	return &Failure{ExitFindings, ErrFindings}
}

func usage(format string, args ...any) error {
	return &Failure{ExitUsage, fmt.Errorf(format, args...)}
}

// Options are what the commands share.
type Options struct {
	// Server is asked where it is set; nil is this process alone.
	Server *client.Client
	// Format is text, json, sarif or junit; Colour is for text.
	Format string
	Colour bool
	Out    io.Writer
	// Version of the program; NewID makes idempotency keys.
	Version string
	NewID   func() string
}

// ask sends a request to the server; what it refuses for the files' sake is
// findings, everything else the server's failure.
func (o Options) ask(ctx context.Context, method, path, key string, in, out any) error {
	if o.Server == nil || o.Server.URL == "" || o.Server.Key == "" {
		return usage("this needs a server: run gatehouse login (a session lasts an hour), or set --url and --api-key, or GATEHOUSE_URL and GATEHOUSE_API_KEY")
	}
	if _, err := client.Base(o.Server.URL); err != nil {
		return usage("%w", err)
	}
	err := o.Server.Do(ctx, method, path, key, in, out)
	var refused *client.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && refused.Status == http.StatusUnprocessableEntity:
		return &Failure{ExitFindings, err}
	default:
		return &Failure{ExitServer, err}
	}
}

// Validate checks files; without a server links are not looked at.
func Validate(ctx context.Context, o Options, files []controlfile.File, lint bool) error {
	var v controlfile.Validation
	if o.Server != nil {
		if err := o.ask(ctx, http.MethodPost, "/policies-as-code/validate", "", policycode.Request{Files: files}, &v); err != nil {
			return o.refused(err)
		}
	} else {
		var err error
		if v, err = validateHere(ctx, files, lint); err != nil {
			return err
		}
	}
	rep := Report{Value: v, Issues: append(append([]rego.FileIssue{}, v.Errors...), v.Warnings...), Text: func(p *printer) { p.validation(v) }}
	bad := map[string]string{}
	for _, is := range v.Errors {
		bad[is.File] += fmt.Sprintf("%d:%d: %s\n", is.Line, is.Column, is.Message)
	}
	for _, f := range files {
		rep.Cases = append(rep.Cases, Case{Suite: "validate", Name: f.Path, File: f.Path, Failure: bad[f.Path]})
		delete(bad, f.Path)
	}
	for file, text := range bad {
		rep.Cases = append(rep.Cases, Case{Suite: "validate", Name: file, File: file, Failure: text})
	}
	if err := o.write("validate", rep); err != nil {
		return err
	}
	return findings(v.Valid)
}

// Test runs the tests of files. Less coverage than least percent, of the lines
// of all controls, is a finding too.
func Test(ctx context.Context, o Options, files []controlfile.File, least float64) error {
	var r controlfile.TestReport
	if o.Server != nil {
		if err := o.ask(ctx, http.MethodPost, "/policies-as-code/test", "", policycode.Request{Files: files}, &r); err != nil {
			return o.refused(err)
		}
	} else {
		var err error
		if r, err = testHere(ctx, files); err != nil {
			return err
		}
	}
	rep := tested(r)
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

// tested is the report of a run of tests.
func tested(r controlfile.TestReport) Report {
	rep := Report{Value: r, Issues: append([]rego.FileIssue{}, r.Errors...)}
	for _, t := range r.Tests {
		c := Case{Suite: t.Package, Name: t.Name, File: t.File, Line: t.Line, Seconds: t.DurationMS / 1000, Output: t.Output, Skipped: t.Status == rego.TestSkipped}
		switch t.Status {
		case rego.TestFailed:
			c.Failure = "the test fails"
			for _, x := range t.Failing() {
				c.Failure += fmt.Sprintf("\n%s:%d: did not hold: %s", x.File, x.Line, x.Source)
			}
			for _, name := range t.FailedCases {
				c.Failure += "\ncase " + name
			}
		case rego.TestError:
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

// Deploy brings files to sandbox.
func Deploy(ctx context.Context, o Options, req policycode.Request) error {
	var d policycode.Deployment
	key := ""
	if !req.DryRun {
		key = "policy-deploy-" + o.NewID()
	}
	if err := o.ask(ctx, http.MethodPost, "/policies-as-code/deploy", key, req, &d); err != nil {
		return o.refused(err)
	}
	rep := Report{Value: d, Text: func(p *printer) { p.deployment(d) }}
	for _, f := range d.Files {
		rep.Cases = append(rep.Cases, Case{Suite: "deploy", Name: f.Name, File: f.Path, Output: f.Result})
	}
	return o.write("deploy", rep)
}

// Diff compares files with an environment. With namesOnly the text is the path
// of each control that differs, or its name where the files hold none.
func Diff(ctx context.Context, o Options, req policycode.Request, namesOnly bool) error {
	var d policycode.Drift
	if err := o.ask(ctx, http.MethodPost, "/policies-as-code/drift", "", req, &d); err != nil {
		return o.refused(err)
	}
	rep := Report{Value: d, Text: func(p *printer) { p.drift(d) }}
	if namesOnly {
		rep.Text = func(p *printer) { p.driftNames(d) }
	}
	for _, c := range d.Controls {
		rep.add(Case{Suite: "diff", Name: c.Name, File: c.Path, Line: 1, Failure: drifted[c.State]}, "drift-"+c.State)
	}
	if err := o.write("diff", rep); err != nil {
		return err
	}
	return findings(d.InSync)
}

// drifted says what the states mean.
var drifted = map[string]string{
	policycode.Added:          "is not in the service yet",
	policycode.Changed:        "differs from the service",
	policycode.ChangedOutside: "was changed in the service other than by a deployment",
	policycode.Missing:        "was deployed from code and is not in the repository any more",
}

// refused writes the server's findings about the files, if err is such, and
// gives the error to end with.
func (o Options) refused(err error) error {
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity {
		return err
	}
	var said struct {
		Message  string            `json:"message"`
		Errors   []rego.FileIssue  `json:"errors"`
		Failures []json.RawMessage `json:"failures"`
		Details  []struct {
			Pointer string `json:"pointer"`
			Message string `json:"message"`
		} `json:"details"`
	}
	if json.Unmarshal(refused.Body, &said) != nil {
		return err
	}
	r := controlfile.TestReport{Errors: said.Errors}
	for _, f := range said.Failures {
		var t rego.ModuleTest
		var c controlfile.CaseResult
		if json.Unmarshal(f, &t) == nil && t.Status != "" {
			r.Tests = append(r.Tests, t)
		} else if json.Unmarshal(f, &c) == nil {
			r.Cases = append(r.Cases, c)
		}
	}
	if len(r.Errors)+len(r.Tests)+len(r.Cases) == 0 {
		for _, d := range said.Details {
			r.Errors = append(r.Errors, rego.FileIssue{Issue: rego.Issue{Message: d.Pointer + ": " + d.Message, Severity: rego.SeverityError, Rule: refused.Code}})
		}
	}
	if len(r.Errors)+len(r.Tests)+len(r.Cases) == 0 {
		return err
	}
	rep := tested(r)
	rep.Value = json.RawMessage(refused.Body)
	rep.Text = func(p *printer) { p.failures(said.Message, r) }
	if err := o.write("refused", rep); err != nil {
		return err
	}
	return findings(false)
}
