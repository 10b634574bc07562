// Package cli is what the subcommands `gatehouse policy` and `gatehouse replay`
// do. Each has a file of its own.
//
//	policy: paths ─► Load ─► local (package rego, in this process)   ─┐
//	                      └► server (package client)                  ─┴► Report ─► text, JSON, SARIF, JUnit
//	replay: file ─► POST /compliance/replays ─► GET …?wait= until it ended ─► text or JSON
//	                                               └─ interrupted: DELETE
//
// A command that found problems in the files ends with ErrFindings.
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

// ErrNoServer says that a command needs a server and knows none.
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

// ask sends a request to the server. A refusal because of the files (422) is a
// finding; every other error is the server's failure.
func (o Options) ask(ctx context.Context, method, path, key string, in, out any) error {
	if o.Server == nil || o.Server.URL == "" || o.Server.Key == "" {
		return ErrNoServer
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

// writeRefused writes the server's findings about the files if err carries any.
// It returns the error to end with.
func (o Options) writeRefused(err error) error {
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity {
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
