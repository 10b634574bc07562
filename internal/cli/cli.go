// Package cli implements the subcommands `gatehouse policy` and `gatehouse replay`. Each command
// has its own file.
//
//	policy: paths ─► Load ─► local (package rego, in this process)   ─┐
//	                      └► server (package client)                  ─┴► Report ─► text, JSON, SARIF, JUnit
//	replay: file ─► POST /compliance/replays ─► GET …?wait= until it has ended ─► text or JSON
//	                                               └─ interrupted: DELETE
//
// A command that finds problems in the files returns ErrFindings.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/client"
	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
)

// Exit codes of the commands.
const (
	ExitFindings = 1
	ExitUsage    = 2
	ExitServer   = 3
	// ExitInterrupted is the exit code that shells use for a program that Ctrl-C ended: 128 plus the
	// number of the signal.
	ExitInterrupted = 130
)

// Failure is an error with the exit code of the program.
type Failure struct {
	Code int
	Err  error
}

// Error returns the text of the cause.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// ErrFindings means that there are findings. They have been written.
var ErrFindings = errors.New("there are findings")

// ErrNoServer means that a command needs a server, and none is configured.
var ErrNoServer = usage("this needs a server: run gatehouse login (a session lasts an hour), or set --url and --api-key, or GATEHOUSE_URL and GATEHOUSE_API_KEY")

func findings(ok bool) error {
	if ok {
		return nil
	}
	return &Failure{ExitFindings, ErrFindings}
}

func usage(format string, args ...any) error {
	return &Failure{ExitUsage, fmt.Errorf(format, args...)}
}

// Options are the options that all commands have.
type Options struct {
	// Server is the server to use. If it is nil, validate and test run in this process.
	Server *client.Client
	// Format is text, json, sarif or junit. Colour adds colours to text.
	Format string
	Colour bool
	Out    io.Writer
	// Version is the version of the program. NewID returns a new id for an idempotency key.
	Version string
	NewID   func() string
}

// ask sends a request to the server. If the server refuses the files (422), the error has the exit
// code ExitFindings; for any other error of the server it is ExitServer.
func (o Options) ask(ctx context.Context, method, path, key string, in, out any) error {
	if o.Server == nil || o.Server.URL == "" || o.Server.Key == "" {
		return ErrNoServer
	}
	if _, err := client.Base(o.Server.URL); err != nil {
		return usage("%w", err)
	}
	err := o.Server.Do(ctx, method, path, key, in, out)
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		return nil
	case ok && refused.Status == http.StatusUnprocessableEntity:
		return &Failure{ExitFindings, err}
	default:
		return &Failure{ExitServer, err}
	}
}

// writeRefused writes the server's findings about the files, if err has any. It returns the error
// for the command.
func (o Options) writeRefused(err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Status != http.StatusUnprocessableEntity {
		return err
	}
	var answer struct {
		Message  string            `json:"message"`
		Errors   []lang.FileIssue  `json:"errors"`
		Failures []json.RawMessage `json:"failures"`
		Details  []struct {
			Pointer string `json:"pointer"`
			Message string `json:"message"`
		} `json:"details"`
	}
	if json.Unmarshal(refused.Body, &answer) != nil {
		return err
	}
	r := controlfile.TestReport{Errors: answer.Errors}
	for _, f := range answer.Failures {
		var t suite.ModuleTest
		var c controlfile.CaseResult
		if json.Unmarshal(f, &t) == nil && t.Status != "" {
			r.Tests = append(r.Tests, t)
		} else if json.Unmarshal(f, &c) == nil {
			r.Cases = append(r.Cases, c)
		}
	}
	if len(r.Errors)+len(r.Tests)+len(r.Cases) == 0 {
		for _, d := range answer.Details {
			r.Errors = append(r.Errors, lang.FileIssue{Issue: lang.Issue{Message: d.Pointer + ": " + d.Message, Severity: lang.SeverityError, Rule: refused.Code}})
		}
	}
	if len(r.Errors)+len(r.Tests)+len(r.Cases) == 0 {
		return err
	}
	rep := testReport(r)
	rep.Value = json.RawMessage(refused.Body)
	rep.Text = func(p *printer) { p.failures(answer.Message, r) }
	if err := o.write("refused", rep); err != nil {
		return err
	}
	return findings(false)
}
