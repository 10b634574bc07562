package app

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/simulator"
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
