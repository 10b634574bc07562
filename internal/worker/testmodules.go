package worker

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const opTestModules = "test_modules"

// TestModules runs the Rego tests among mods with coverage (rego.TestModules).
// Faults: those of Check; a run that does not end within ModulesDeadline is
// Invalid "evaluation_limit".
func (p *Pool) TestModules(ctx context.Context, tenant scope.TenantID, mods []rego.Module) (rego.ModuleReport, error) {
	rep, err := p.call(ctx, tenant, p.cfg.ModulesDeadline, request{Op: opTestModules, Modules: mods})
	if err != nil {
		return rego.ModuleReport{}, err
	}
	if rep.Modules == nil {
		return rego.ModuleReport{Tests: []rego.ModuleTest{}, Coverage: []rego.Coverage{}}, nil
	}
	return *rep.Modules, nil
}

func (c *child) testModules(ctx context.Context, req request) reply {
	report, err := rego.TestModules(ctx, req.Modules)
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Modules: &report}
}
