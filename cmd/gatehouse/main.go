// Command gatehouse is the whole product in one program: the server, the
// bouncer, the worker that tries authors' Rego, and the operator's tools.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/gatehouse-dev/gatehouse/internal/cli"
)

// version is set by the linker.
var version = "dev"

// commands is the command line: one member a subcommand, each in its own file.
type commands struct {
	Config kong.ConfigFlag `help:"JSON file with settings; environment and flags override it." type:"existingfile"`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`

	Dev        devCommand        `cmd:"" help:"Start everything on this machine: server, two bouncers and a demo application."`
	Server     serverCommand     `cmd:"" help:"Start the control plane."`
	Bouncer    bouncerCommand    `cmd:"" help:"Start a policy enforcement point (PEP) in front of an application."`
	Worker     workerCommand     `cmd:"" hidden:"" help:"Evaluate the Rego of authors; started by the server."`
	Admin      adminCommand      `cmd:"" help:"Recover access on the server's host."`
	Audit      auditCommand      `cmd:"" help:"Check the audit logs."`
	Migrate    migrateCommand    `cmd:"" help:"Bring every tenant's schema to this version."`
	Backup     backupCommand     `cmd:"" help:"Copy the SQLite files of a data directory, while the server runs."`
	Policy     policyCommand     `cmd:"" help:"Controls as code: validate, test, deploy, diff, pull."`
	Replay     replayCommand     `cmd:"" help:"Replay recorded decisions with a changed control."`
	LSP        lspCommand        `cmd:"" name:"lsp" help:"Language server for controls, over stdio: an editor starts it."`
	Login      loginCommand      `cmd:"" help:"Sign in, for the commands that need a server."`
	Logout     logoutCommand     `cmd:"" help:"End the session of login."`
	Completion completionCommand `cmd:"" help:"Print a script that completes commands in your shell."`
	Version    versionCommand    `cmd:"" help:"Print the version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx)
	stop()
	os.Exit(code)
}

func run(ctx context.Context) int {
	var line commands
	parser, err := kong.New(&line,
		kong.Name("gatehouse"),
		kong.Description("Decide, and prove, who and what may reach your APIs, models and data."),
		kong.Configuration(kong.JSON),
		kong.UsageOnError(),
		kong.Vars{"version": "gatehouse " + version},
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gatehouse:", err)
		return 2
	}
	parsed, err := parser.Parse(os.Args[1:])
	if err != nil {
		warnOfEnvironment(os.Stderr, parser.Model, os.Environ()) // it may be what is missing
		parser.Errorf("%s", err)
		return 2
	}
	switch parsed.Selected().Name {
	case "server", "bouncer", "dev":
		warnOfEnvironment(os.Stderr, parser.Model, os.Environ())
	}
	err = parsed.Run()
	failure, failed := errors.AsType[*cli.Failure](err)
	switch {
	case failed:
		if !errors.Is(err, cli.ErrFindings) { // those have been written
			fmt.Fprintln(os.Stderr, "gatehouse:", err)
		}
		return failure.Code
	case err != nil && !errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "gatehouse:", err)
		return 1
	}
	return 0
}
