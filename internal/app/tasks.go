package app

import (
	"context"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// task is background work that runs until the context ends. An error stops the server.
type task struct {
	name string
	run  func(context.Context) error
}

func (p *parts) task(name string, run func(context.Context) error) {
	p.tasks = append(p.tasks, task{name, run})
}

// every adds a task that calls f at once and then at each interval.
func every(p *parts, name string, interval time.Duration, f func(context.Context)) {
	p.task(name, func(ctx context.Context) error {
		repeat(ctx, interval, func() { f(ctx) })
		return nil
	})
}

// hourly calls do for each tenant, at the start and then every hour.
func (p *parts) hourly(name string, do func(ctx context.Context, t scope.TenantID) error) {
	every(p, name, time.Hour, func(ctx context.Context) {
		tenants, err := p.stores.Tenants(ctx)
		for _, t := range tenants {
			if err = do(ctx, t); err != nil && ctx.Err() == nil {
				p.log.Warn("an hourly task failed", "task", name, "tenant", t, "error", err)
			}
		}
		if err != nil && len(tenants) == 0 && ctx.Err() == nil {
			p.log.Warn("an hourly task failed", "task", name, "error", err)
		}
	})
}

// lead adds a task that runs on one replica at a time; see job.Leases. holder is this replica.
func lead(p *parts, name string, ttl time.Duration, holder string, work func(context.Context)) {
	leases := &job.Leases{System: p.stores.System(), Holder: holder, Now: p.now, Logger: p.log}
	p.task(name, func(ctx context.Context) error {
		leases.Lead(ctx, name, ttl, work)
		return nil
	})
}

// setUpJobs sets up the runner of all jobs. It comes after every service that has jobs.
func (p *parts) setUpJobs(context.Context) error {
	jobs := &job.Runner{
		Cluster: p.stores, Kinds: slices.Concat(p.replays.Jobs(), p.ide.Jobs(), p.telemetry.Jobs(), p.actions.Jobs()), Now: p.now, Logger: p.log, Panics: p.panics, Lease: 20 * time.Second,
	}
	p.task("jobs", jobs.Run)
	return nil
}

// watch calls f for each change in the stores, until the server stops.
func watch(p *parts, name string, f func(t scope.TenantID, revision string)) {
	stop := p.stores.Watch(f)
	p.closers.add(name, time.Second, func(context.Context) error { stop(); return nil })
}

// repeat calls f at once and then at each interval, until the context ends.
func repeat(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
