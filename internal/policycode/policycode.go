// Package policycode has the use cases of policies as code. It validates and tests the files of a
// repository, deploys them to sandbox (all or none), and reports where the repository and the
// service differ.
//
//	files ─► controlfile.Read ─► worker: check, Rego tests, cases ─► policy.Deploy
//	             paths, manifests      (killable, bounded)            one transaction:
//	                                                                  controls, origins,
//	                                                                  deployment, audit
//
// A promotion brings the controls to production, like all others (package policy).
package policycode

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Evaluator checks and runs authors' Rego in another process. Package worker implements it.
type Evaluator interface {
	CheckModules(ctx context.Context, tenant scope.TenantID, mods []suite.Module) ([]lang.FileIssue, error)
	TestModules(ctx context.Context, tenant scope.TenantID, mods []suite.Module) (suite.ModuleReport, error)
	Lint(ctx context.Context, tenant scope.TenantID, source string) ([]lang.Issue, error)
}

// Service has the use cases of policies as code. All fields must be set.
type Service struct {
	Stores    *db.Cluster
	Now       func() time.Time
	NewID     func() string
	Evaluator Evaluator
	Policies  *policy.Service
}

// Request is the request of an operation.
type Request struct {
	Files       []controlfile.File `json:"files" minItems:"1" maxItems:"1000" doc:"Files: controls (.rego), their Rego tests (_test.rego), and gatehouse.yaml, which names, links and tests them."`
	Environment scope.Env          `json:"environment,omitempty" enum:"sandbox,production" doc:"sandbox by default. production is refused (422): controls get there by promotion."`
	ResourceID  *int64             `json:"resource_id,omitempty" nullable:"true" minimum:"1" doc:"Resource for controls for which gatehouse.yaml names none."`
	BouncerID   *int64             `json:"bouncer_id,omitempty" nullable:"true" minimum:"1" doc:"Bouncer for controls for which gatehouse.yaml names none."`
	DryRun      bool               `json:"dry_run,omitempty" doc:"Only show what a deployment would do, with diffs."`
	Repository  string             `json:"repository,omitempty" maxLength:"500" doc:"Origin of the files; stored with the controls, to detect drift." example:"github.com/acme/controls"`
	Commit      string             `json:"commit,omitempty" maxLength:"100" doc:"Their commit; stored with the controls." example:"4f1c2aa"`
}

// Origin is the file and deployment from which a control comes.
type Origin struct {
	Path         string    `json:"path" db:"path" doc:"Path of its file"`
	Repository   string    `json:"repository,omitempty" db:"repository" doc:"Repository, as given in the deployment"`
	Commit       string    `json:"commit,omitempty" db:"commit_hash" doc:"Commit, as given in the deployment"`
	Version      int64     `json:"version" db:"version" doc:"Version of the control after the deployment"`
	DeploymentID string    `json:"deployment_id" db:"deployment_id" doc:"The deployment"`
	DeployedAt   time.Time `json:"deployed_at" db:"deployed_at" doc:"When"`
	PolicyID     int64     `json:"-" db:"policy_id"`
}

// Deployment is the result of a deployment, or of a dry run.
type Deployment struct {
	ID          string              `json:"deployment_id,omitempty" doc:"Id of the deployment; absent on a dry run"`
	Environment scope.Env           `json:"environment" enum:"sandbox" doc:"Environment of the controls"`
	DryRun      bool                `json:"dry_run" doc:"Whether this was a dry run, which changes nothing"`
	Repository  string              `json:"repository,omitempty" doc:"Repository, as given in the request"`
	Commit      string              `json:"commit,omitempty" doc:"Commit, as given in the request"`
	Files       []Outcome           `json:"files" doc:"The controls, by path"`
	Tests       controlfile.Summary `json:"tests" doc:"Results of the tests that ran first"`
}

// Outcome is the result for one control.
type Outcome struct {
	Path     string `json:"path" doc:"Path of the control"`
	Name     string `json:"name" doc:"Name of the control"`
	Result   string `json:"result" enum:"created,updated,unchanged" doc:"What was done, or would be"`
	PolicyID int64  `json:"policy_id,omitempty" doc:"Id of the control; absent when a dry run would create it"`
	Version  int64  `json:"version" doc:"Its version now, or at the time"`
	Status   string `json:"status" enum:"draft,active,inactive" doc:"Its status now, or at the time"`
	// TenantWide is set for a control without a resource.
	TenantWide bool                      `json:"tenant_wide" doc:"Whether the control has no resource, so that it applies to every request of the environment"`
	Diff       string                    `json:"diff,omitempty" doc:"In a dry run: a unified diff of its Rego"`
	Changes    []policy.MemberDifference `json:"changes,omitempty" doc:"In a dry run: the other members that change"`
}

// Drift has the differences between a repository and the service.
type Drift struct {
	Environment scope.Env `json:"environment" enum:"sandbox,production" doc:"Environment compared with"`
	InSync      bool      `json:"in_sync" doc:"Whether there is no difference"`
	Controls    []Drifted `json:"controls" doc:"The controls that differ, by name"`
}

// Drifted is a control that differs.
type Drifted struct {
	Name     string                    `json:"name" doc:"Name of the control"`
	State    string                    `json:"state" enum:"added,changed,changed_outside,missing" doc:"added: only in the repository; changed: different in the repository; changed_outside: the service has a version that no deployment made; missing: deployed from code, and no longer in the repository"`
	Path     string                    `json:"path,omitempty" doc:"Path of its file"`
	PolicyID int64                     `json:"policy_id,omitempty" doc:"Id of the control; absent when it is only in the repository"`
	Version  int64                     `json:"version,omitempty" doc:"Its version in the service"`
	Diff     string                    `json:"diff,omitempty" doc:"Unified diff of its Rego, from the service to the repository"`
	Changes  []policy.MemberDifference `json:"changes,omitempty" doc:"Other members that differ, from the service to the repository"`
	Origin   *Origin                   `json:"origin,omitempty" doc:"Where it was deployed from; absent if it was not"`
}

// The states of Drifted.
const (
	Added          = "added"
	Changed        = "changed"
	ChangedOutside = "changed_outside"
	Missing        = "missing"
)
