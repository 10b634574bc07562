package app

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/simulator"
)

// setUpSimulator sets up the simulator. It uses the snapshots and people of live decisions.
func (p *parts) setUpSimulator(people *decision.People) {
	p.simulator = &simulator.Service{
		Stores: p.stores, Now: p.now, Evaluator: p.workers, Policies: p.policies, Snapshots: p.snapshots,
		Person: people.Person, LiveDeadline: p.cfg.DecisionDeadline,
	}
	p.hourly("retention of simulations", func(ctx context.Context, t scope.TenantID) error {
		_, err := p.simulator.Retain(ctx, t)
		return err
	})
}

// hourly calls do for each tenant, at the start and then every hour.
func (p *parts) hourly(name string, do func(ctx context.Context, t scope.TenantID) error) {
	p.task(name, func(ctx context.Context) error {
		return repeat(ctx, time.Hour, func() {
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
	})
}
