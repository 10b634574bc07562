package app

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
)

// previewPatience leaves an answer's way within the 30 s of a preview.
const previewPatience = 28 * time.Second

// rehearse sets up what decides recorded decisions again.
func (p *parts) rehearse(context.Context) error {
	p.replays = &replay.Service{
		Stores: p.stores, Now: p.now, Audit: p.audit, Policies: p.policies, Resources: p.resources, Bouncers: p.bouncers,
		Snapshots: p.snapshots, Workers: p.workers, Log: p.log, Deadline: p.cfg.DecisionDeadline, Patience: previewPatience,
	}
	p.policies.Impact = p.replays.Gate
	jobs := &job.Runner{
		Cluster: p.stores, Handlers: p.replays.Handlers(), Dead: p.replays.Buried, Now: p.now, Logger: p.log, Lease: 20 * time.Second,
	}
	p.task("jobs", jobs.Run)
	return nil
}
