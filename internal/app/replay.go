package app

import (
	"context"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
)

// previewPatience leaves time for the answer within the 30 s of a preview.
const previewPatience = 28 * time.Second

// startReplay sets up replays of recorded decisions.
func (p *parts) startReplay(context.Context) error {
	p.replays = &replay.Service{
		Stores: p.stores, Now: p.now, Audit: p.audit, Policies: p.policies, Resources: p.resources, Bouncers: p.bouncers,
		Snapshots: p.snapshots, Workers: p.workers, Log: p.log, Panics: p.panics, Deadline: p.cfg.DecisionDeadline, Patience: previewPatience,
	}
	p.hourly("retention of past states", p.replays.Forget)
	return nil
}

// setUpJobs sets up the runner of all jobs. It comes after every service that has jobs.
func (p *parts) setUpJobs(context.Context) error {
	jobs := &job.Runner{
		Cluster: p.stores, Kinds: slices.Concat(p.replays.Jobs(), p.ide.Jobs(), p.telemetry.Jobs(), p.actions.Jobs()), Now: p.now, Logger: p.log, Panics: p.panics, Lease: 20 * time.Second,
	}
	p.task("jobs", jobs.Run)
	return nil
}
