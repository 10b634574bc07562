package app

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// warmTime is how long the start loads snapshots. Tenants that are not loaded by then
// load with their first decision.
const warmTime = 300 * time.Millisecond

// warm prepares what the first decisions would wait for: the tables of the compiler and the
// snapshots of tenants. The service is ready only after it. It does not fail: what it could not
// load is loaded when it is needed.
func (p *parts) warm(ctx context.Context) {
	defer p.warmed.Store(true)
	until := p.now().Add(warmTime)
	rego.Compile(rego.Meta{}, "package warm\n\nallow if input.user.id == \"\"")
	tenants, err := p.stores.Tenants(ctx)
	if err != nil {
		return
	}
	for _, t := range tenants {
		for _, env := range []scope.Env{scope.Production, scope.Sandbox} {
			if ctx.Err() != nil || p.now().After(until) {
				return
			}
			if _, err := p.snapshots.Get(ctx, t, env); err != nil {
				p.log.Warn("loading the controls and data for decisions failed", "tenant", t, "environment", env, "error", err)
			}
		}
	}
}
