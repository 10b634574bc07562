package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/internal/client"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// replayCommand decides the recorded requests of a server again, with a changed control.
type replayCommand struct {
	remote
	Control           string        `type:"existingfile" placeholder:"FILE" help:"Rego file: the control as you edit it."`
	PolicyID          int64         `help:"The stored control that the file would replace; alone: the stored one."`
	ResourceID        int64         `help:"For a file that is a new control: the resource that it would be linked to."`
	Without           []int64       `help:"Active controls to leave out."`
	Environment       string        `enum:"sandbox,production" default:"production" help:"Where the control is: ${enum}."`
	SourceEnvironment string        `enum:",sandbox,production" default:"" help:"Environment whose recorded decisions are used; absent: the same as --environment."`
	Window            time.Duration `default:"24h" help:"How far back decisions are replayed."`
	Baseline          string        `enum:"now,then" default:"now" help:"Compare with the controls that are active now, or that were active then."`
	MaxDecisions      int64         `help:"Replay only this many decisions, the newest."`
	Samples           int           `default:"20" help:"How many single flips to print."`
	MaxBlockedPercent float64       `default:"-1" help:"Exit with 1 if more than this share would be newly blocked, in percent; negative: never."`
	Output            string        `short:"o" enum:"text,json" default:"text" help:"Format: ${enum}."`
	Quiet             bool          `short:"q" help:"Print no progress."`
}

// Run replays.
func (c *replayCommand) Run(ctx context.Context) error {
	if c.URL == "" || c.APIKey == "" {
		return cli.ErrNoServer
	}
	if c.Control == "" && c.PolicyID == 0 && len(c.Without) == 0 {
		return &cli.Failure{Code: cli.ExitUsage, Err: errors.New("nothing to replay: name a --control, a --policy-id, or what to leave out with --without")}
	}
	request, err := c.request()
	if err != nil {
		return &cli.Failure{Code: cli.ExitUsage, Err: err}
	}
	opt := cli.ReplayOptions{
		Server:  &client.Client{URL: c.URL, Key: c.APIKey, Agent: "gatehouse/" + version},
		Request: request, MaxBlocked: c.MaxBlockedPercent, JSON: c.Output == "json", Out: os.Stdout, NewID: uuid.NewString,
	}
	if !c.Quiet {
		info, err := os.Stderr.Stat()
		opt.Progress, opt.Live = os.Stderr, err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	err = cli.Replay(ctx, opt)
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case err == nil, errors.Is(err, cli.ErrOver):
		return err
	case errors.Is(err, cli.ErrInterrupted):
		return &cli.Failure{Code: cli.ExitInterrupted, Err: err}
	case ok && refused.Status == 422:
		return &cli.Failure{Code: cli.ExitFindings, Err: err}
	}
	return &cli.Failure{Code: cli.ExitServer, Err: err}
}

func (c *replayCommand) request() (replay.Request, error) {
	hours := math.Ceil(c.Window.Hours())
	if hours < 1 || hours > replay.MaxWindow {
		return replay.Request{}, fmt.Errorf("the window is from 1h to %dh", replay.MaxWindow)
	}
	r := replay.Request{
		Environment: scope.Env(c.Environment), SourceEnvironment: scope.Env(c.SourceEnvironment), WindowHours: int(hours),
		Baseline: c.Baseline, MaxDecisions: c.MaxDecisions, Samples: &c.Samples, WithoutIDs: c.Without,
	}
	switch {
	case c.Control != "":
		source, err := os.ReadFile(c.Control)
		if err != nil {
			return r, err
		}
		r.Candidates = []replay.Candidate{{PolicyID: c.PolicyID, ResourceID: c.ResourceID, RegoCode: string(source)}}
		if c.PolicyID == 0 {
			r.Candidates[0].Name = c.Control
		}
	case c.PolicyID != 0:
		r.ControlIDs = []int64{c.PolicyID}
	}
	return r, nil
}
