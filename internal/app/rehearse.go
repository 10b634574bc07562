package app

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
)

// previewPatience leaves an answer's way within the 30 s of a preview.
const previewPatience = 28 * time.Second

// rehearse sets up what decides recorded decisions again.
func (p *parts) rehearse(context.Context) error {
	p.replays = &replay.Service{
		Stores: p.stores, Now: p.now, Audit: p.audit, Policies: p.policies, Resources: p.resources, Bouncers: p.bouncers,
		Snapshots: p.snapshots, Workers: p.workers, Log: p.log, Panics: p.panics, Deadline: p.cfg.DecisionDeadline, Patience: previewPatience,
	}
	p.hourly("retention of what was before", p.replays.Forget)
	return nil
}

// work sets up the one runner of all jobs: it is after every service that has some.
func (p *parts) work(context.Context) error {
	handlers := p.replays.Handlers()
	handlers[ide.JobKind] = p.ide.Work
	jobs := &job.Runner{
		Cluster: p.stores, Handlers: handlers, Now: p.now, Logger: p.log, Panics: p.panics, Lease: 20 * time.Second,
		Dead: func(ctx context.Context, tx *db.Tx, t job.Task, cause error) error {
			switch t.Kind {
			case ide.JobKind:
				return p.ide.HandleDead(ctx, tx, t, cause)
			case replay.JobKind:
				return p.replays.HandleDead(ctx, tx, t, cause)
			default: // of another version: nobody here knows what waits for it
				p.log.WarnContext(ctx, "a job of an unknown kind is given up", "tenant", t.Tenant, "kind", t.Kind, "id", t.ID, "error", cause)
				return nil
			}
		},
	}
	p.task("jobs", jobs.Run)
	return nil
}
