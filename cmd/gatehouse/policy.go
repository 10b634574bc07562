package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/internal/client"
	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// policyCommand works on controls as files of a repository.
type policyCommand struct {
	Validate  policyValidateCommand  `cmd:"" help:"Check controls, tests and gatehouse.yaml; needs no server."`
	Test      policyTestCommand      `cmd:"" help:"Run Rego tests with coverage, and the cases of gatehouse.yaml; needs no server."`
	Deploy    policyDeployCommand    `cmd:"" help:"Deploy the files to sandbox, all or none."`
	Promote   policyPromoteCommand   `cmd:"" help:"Promote controls from sandbox to production."`
	Reinstate policyReinstateCommand `cmd:"" help:"Reinstate a control: undo the promotion that replaced it."`
	Diff      policyDiffCommand      `cmd:"" help:"Show where the files and the service differ."`
	Pull      policyPullCommand      `cmd:"" help:"Write the service's controls into files."`
}

// output is how a command writes.
type output struct {
	Output string `short:"o" enum:"text,json,sarif,junit" default:"text" help:"Format: ${enum}."`
}

// remote is the server and the credential.
type remote struct {
	URL    string `name:"url" env:"GATEHOUSE_URL" help:"Address of the server."`
	APIKey string `name:"api-key" env:"GATEHOUSE_API_KEY" help:"API key; best set in the environment."`
}

// paths are what a command works on.
type paths struct {
	Paths []string `arg:"" optional:"" help:"Directories and files; the working directory when absent."`
}

func (p paths) load() ([]controlfile.File, error) {
	if len(p.Paths) == 0 {
		p.Paths = []string{"."}
	}
	return cli.Load(p.Paths)
}

// options returns the options of a command that runs in this process.
func (o output) options() cli.Options {
	return cli.Options{Format: o.Output, Colour: colourful(), Out: os.Stdout, Version: version, NewID: uuid.NewString}
}

// remoteOptions returns the options of a command that calls a server.
func (o output) remoteOptions(r remote) cli.Options {
	opt := o.options()
	opt.Server = &client.Client{URL: r.URL, Key: r.APIKey, Agent: "gatehouse/" + version}
	return opt
}

// colourful reports whether to use colours: the output is a terminal, and the user has not turned
// colours off (no-color.org).
func colourful() bool {
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// here says where a command runs, and how long it may take.
type here struct {
	Remote  bool          `help:"Run it on the server, which knows the resources and bouncers that gatehouse.yaml names."`
	Timeout time.Duration `default:"2m" help:"How long this may take."`
}

func (h here) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, h.Timeout, fmt.Errorf("not done within %s", h.Timeout))
}

// prepare returns the options and files of a command that works with and without a server.
func (h here) prepare(o output, r remote, p paths) (cli.Options, []controlfile.File, error) {
	opt := o.options()
	if h.Remote {
		opt = o.remoteOptions(r)
	}
	files, err := p.load()
	return opt, files, err
}

type policyValidateCommand struct {
	paths
	output
	remote
	here
	Lint bool `default:"true" negatable:"" help:"Run the linter too."`
}

// Run validates.
func (c *policyValidateCommand) Run(ctx context.Context) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	opt, files, err := c.prepare(c.output, c.remote, c.paths)
	if err != nil {
		return err
	}
	return cli.Validate(ctx, opt, files, c.Lint)
}

type policyTestCommand struct {
	paths
	output
	remote
	here
	MinCoverage float64 `help:"Smallest share of lines that the tests must cover, in percent."`
}

// Run tests.
func (c *policyTestCommand) Run(ctx context.Context) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	opt, files, err := c.prepare(c.output, c.remote, c.paths)
	if err != nil {
		return err
	}
	return cli.Test(ctx, opt, files, c.MinCoverage)
}

// source is where the files come from.
type source struct {
	Repository string `env:"GATEHOUSE_REPOSITORY,GITHUB_REPOSITORY,CI_PROJECT_PATH" help:"Repository of the files; stored with the controls."`
}

type policyDeployCommand struct {
	paths
	output
	remote
	source
	Commit   string `env:"GATEHOUSE_COMMIT,GITHUB_SHA,CI_COMMIT_SHA" help:"Commit of the files; stored with the controls."`
	DryRun   bool   `help:"Only show what would be done, with diffs."`
	Resource int64  `help:"Id of the resource for controls of which gatehouse.yaml names none."`
	Bouncer  int64  `help:"Id of the bouncer for controls of which gatehouse.yaml names none."`
}

// Run deploys.
func (c *policyDeployCommand) Run(ctx context.Context) error {
	files, err := c.load()
	if err != nil {
		return err
	}
	req := policycode.Request{Files: files, DryRun: c.DryRun, Repository: c.Repository, Commit: c.Commit}
	if c.Resource != 0 {
		req.ResourceID = &c.Resource
	}
	if c.Bouncer != 0 {
		req.BouncerID = &c.Bouncer
	}
	return cli.Deploy(ctx, c.remoteOptions(c.remote), req)
}

type policyPromoteCommand struct {
	Controls []string `arg:"" help:"Names or ids of controls and libraries in sandbox, in the order to promote them: libraries first."`
	output
	remote
	Replace  bool   `help:"Make the controls that they replace in production inactive: the active control with the same name for the same resource."`
	Keep     bool   `name:"keep-in-sandbox" help:"Leave a copy in sandbox, with the same name and an id of its own."`
	Notes    string `help:"The reason; stored with the version and in the audit."`
	Approver string `help:"Who approved it, if the tenant requires a second person."`
}

// Run promotes.
func (c *policyPromoteCommand) Run(ctx context.Context) error {
	return cli.Promote(ctx, c.remoteOptions(c.remote), c.Controls, policy.Promotion{DeploymentNotes: c.Notes, Approver: c.Approver, Replace: c.Replace, KeepInSandbox: c.Keep})
}

type policyReinstateCommand struct {
	ID int64 `arg:"" help:"Id of the control to reinstate; the answer to the promotion names it."`
	output
	remote
	Notes string `help:"The reason; stored with the version and in the audit."`
}

// Run reinstates.
func (c *policyReinstateCommand) Run(ctx context.Context) error {
	return cli.Reinstate(ctx, c.remoteOptions(c.remote), c.ID, policy.Reinstatement{DeploymentNotes: c.Notes})
}

type policyDiffCommand struct {
	paths
	output
	remote
	source
	Environment string `enum:"sandbox,production" default:"sandbox" help:"Environment to compare with: ${enum}."`
	NameOnly    bool   `help:"Print only the path of each control that differs, one per line."`
}

// Run compares.
func (c *policyDiffCommand) Run(ctx context.Context) error {
	files, err := c.load()
	if err != nil {
		return err
	}
	return cli.Diff(ctx, c.remoteOptions(c.remote), policycode.Request{Files: files, Repository: c.Repository, Environment: scope.Env(c.Environment)}, c.NameOnly)
}

type policyPullCommand struct {
	Directory string `arg:"" optional:"" default:"." help:"Where to write."`
	output
	remote
	Environment string `enum:"sandbox,production" default:"sandbox" help:"Environment to read: ${enum}."`
	Name        string `help:"Only controls whose name contains this text."`
	Force       bool   `help:"Overwrite files that differ."`
}

// Run writes files.
func (c *policyPullCommand) Run(ctx context.Context) error {
	return cli.Pull(ctx, c.remoteOptions(c.remote), c.Directory, c.Environment, c.Name, c.Force)
}
