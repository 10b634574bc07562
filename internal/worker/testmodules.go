package worker

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Operations on the files of a repository.
const (
	opTestModules  = "test_modules"
	opCheckModules = "check_modules"
)

// CheckModules returns the issues that keep controls from being stored and tests from
// running (suite.CheckModules). Faults: those of Check.
func (p *Pool) CheckModules(ctx context.Context, tenant scope.TenantID, mods []suite.Module) ([]lang.FileIssue, error) {
	rep, err := p.call(ctx, tenant, p.cfg.ModulesDeadline, request{Op: opCheckModules, Modules: mods})
	if err != nil || rep.Modules == nil {
		return nil, err
	}
	return rep.Modules.Issues, nil
}

func (c *child) checkModules(req request) reply {
	return reply{Modules: &suite.ModuleReport{Issues: suite.CheckModules(req.Modules)}}
}

// TestModules runs the Rego tests in mods and measures coverage (suite.TestModules).
// Faults: those of Check, and Invalid "evaluation_limit" for a run that exceeds
// ModulesDeadline.
func (p *Pool) TestModules(ctx context.Context, tenant scope.TenantID, mods []suite.Module) (suite.ModuleReport, error) {
	rep, err := p.call(ctx, tenant, p.cfg.ModulesDeadline, request{Op: opTestModules, Modules: mods})
	if err != nil {
		return suite.ModuleReport{}, err
	}
	if rep.Modules == nil {
		return suite.ModuleReport{Tests: []suite.ModuleTest{}, Coverage: []suite.Coverage{}}, nil
	}
	return *rep.Modules, nil
}

func (c *child) testModules(ctx context.Context, req request) reply {
	report, err := suite.TestModules(ctx, req.Modules)
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Modules: &report}
}
