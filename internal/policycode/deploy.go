package policycode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// keepDeployments is how long deployments are kept.
const keepDeployments = 365 * 24 * time.Hour

// Deploy deploys files to sandbox, all or none. It finds existing controls by their names. Faults,
// in the order of the checks: Invalid if the environment is not sandbox; Invalid "invalid_policy"
// with file, line and column if the files have errors or name resources or bouncers that do not
// exist; Invalid "tests_failed" if a test fails; Forbidden above the tenant's limit. A dry run
// makes the same checks and changes nothing.
func (s *Service) Deploy(ctx context.Context, sc scope.Scope, r Request) (Deployment, error) {
	return s.DeployWith(ctx, sc, r, func(context.Context, *db.Tx, Deployment) error { return nil })
}

// DeployWith is Deploy, and calls also in the transaction of the deployment. What also writes is
// stored together with the deployment, or neither is. If also returns an error, the deployment is
// rolled back, and DeployWith returns that error.
func (s *Service) DeployWith(ctx context.Context, sc scope.Scope, r Request, also func(ctx context.Context, tx *db.Tx, d Deployment) error) (Deployment, error) {
	if r.Environment != scope.AnyEnv && r.Environment != scope.Sandbox {
		return Deployment{}, fault.Invalidf("/environment", "a deployment goes to sandbox; from there controls are promoted")
	}
	if _, err := sc.CreateIn(scope.Sandbox); err != nil {
		return Deployment{}, err
	}
	repo, issues := read(r.Files)
	tests, err := s.test(ctx, sc, repo, issues)
	if err != nil {
		return Deployment{}, err
	}
	found, unresolved, err := s.resolve(ctx, sc, repo, r)
	if err != nil {
		return Deployment{}, err
	}
	if wrong := append(tests.Errors, unresolved...); len(wrong) > 0 {
		return Deployment{}, refusedFault(r.Files, wrong)
	}
	if !tests.Passed {
		return Deployment{}, failedTestsFault(tests)
	}
	d := Deployment{ID: s.NewID(), Environment: scope.Sandbox, DryRun: r.DryRun, Repository: r.Repository, Commit: r.Commit, Tests: tests.Summary}
	items := make([]policy.Placement, len(repo.Controls))
	for i, c := range repo.Controls {
		if items[i], err = placement(sc, c, found[i], r, d); err != nil {
			return Deployment{}, err
		}
	}
	placed, err := s.Policies.Deploy(ctx, sc, items, r.DryRun, func(ctx context.Context, tx *db.Tx, placed []policy.Placed) error {
		d.Files = outcomes(sc, repo, placed, r.DryRun)
		if err := s.record(ctx, tx, sc, d, placed); err != nil {
			return err
		}
		return also(ctx, tx, d)
	})
	if err != nil {
		return Deployment{}, locateError(r.Files, repo, err)
	}
	if d.DryRun {
		d.ID = ""
		for i := range placed {
			if placed[i].Outcome == policy.Created {
				d.Files[i].PolicyID = 0
			}
		}
	}
	return d, nil
}

// placement returns the changes that a deployment makes to a control: its Rego, and the members
// that its manifest or the request sets.
func placement(sc scope.Scope, c controlfile.Control, l links, r Request, d Deployment) (policy.Placement, error) {
	ch := policy.Change{RegoCode: &c.Source, Status: c.Status}
	if c.Description != nil {
		ch.Description = patch.Set(*c.Description)
	}
	if c.IsLibrary() {
		r.ResourceID, r.BouncerID = nil, nil // libraries have no links
	}
	ch.ResourceID = linkChange(c.Resource, l.resource, r.ResourceID)
	ch.BouncerID = linkChange(c.Bouncer, l.bouncer, r.BouncerID)
	if c.Cases != nil {
		cases, err := storedCases(*c.Cases)
		if err != nil {
			return policy.Placement{}, fmt.Errorf("test cases of %s: %w", c.Path, err)
		}
		// Files that were exported without audit:read lack cases that this caller may see.
		ch.TestCases, ch.KeepRecorded = patch.Set(cases), !policy.MaySeeRecorded(sc) || c.HiddenCases > 0
	}
	note := "deployed from " + c.Path
	if d.Commit != "" {
		note += " at " + d.Commit
	}
	extra := map[string]any{"deployment_id": d.ID, "path": c.Path}
	if d.Repository != "" {
		extra["repository"] = d.Repository
	}
	if d.Commit != "" {
		extra["commit"] = d.Commit
	}
	return policy.Placement{Name: c.Name, Change: ch, Note: note, Extra: extra}, nil
}

// linkChange returns the change of a link: to the one in the manifest or, if it has none, to the one in
// the request.
func linkChange(l *controlfile.Link, id, otherwise *int64) patch.Field[int64] {
	switch {
	case l != nil && l.None:
		return patch.Clear[int64]()
	case id != nil:
		return patch.Set(*id)
	case otherwise != nil:
		return patch.Set(*otherwise)
	default:
		return patch.Field[int64]{}
	}
}

func outcomes(sc scope.Scope, repo controlfile.Repository, placed []policy.Placed, diffs bool) []Outcome {
	out := make([]Outcome, len(placed))
	for i, p := range placed {
		c := repo.Controls[i]
		out[i] = Outcome{Path: c.Path, Name: p.Policy.Name, Result: p.Outcome, PolicyID: p.Policy.ID, Version: p.Policy.Version, Status: p.Policy.Status, TenantWide: p.Policy.ResourceID == nil && !c.IsLibrary()}
		if !diffs || p.Outcome == policy.Unchanged {
			continue
		}
		before := "a/" + c.Path
		if p.Outcome == policy.Created {
			before = "/dev/null"
		} else {
			out[i].Changes = p.Old.Differences(sc, p.Policy)
		}
		out[i].Diff = policy.Unified(before, "b/"+c.Path, p.Old.RegoCode, p.Policy.RegoCode)
	}
	return out
}

// record stores the origin of each control, the deployment, and one audit entry. It emits no event,
// because the changes of the controls do.
func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, d Deployment, placed []policy.Placed) error {
	now := s.Now()
	names := map[string][]string{policy.Created: {}, policy.Updated: {}, policy.Unchanged: {}}
	for i, p := range placed {
		names[p.Outcome] = append(names[p.Outcome], p.Policy.Name)
		if err := saveOrigin(ctx, tx, Origin{
			PolicyID: p.Policy.ID, Path: d.Files[i].Path, Repository: d.Repository, Commit: d.Commit, Version: p.Policy.Version, DeploymentID: d.ID, DeployedAt: now,
		}); err != nil {
			return err
		}
	}
	if err := saveDeployment(ctx, tx, d, sc.Actor.ID, now, now.Add(-keepDeployments)); err != nil {
		return err
	}
	title := cmp.Or(d.Repository, "policies as code")
	what := map[string]any{"created": names[policy.Created], "updated": names[policy.Updated], "unchanged": len(names[policy.Unchanged])}
	if d.Commit != "" {
		what["commit"] = d.Commit
	}
	return audit.Append(ctx, tx, sc, now, audit.Entry{
		Type: "POLICIES_DEPLOYED", Object: "deployment", ObjectID: d.ID, ObjectName: title, Env: d.Environment, Changes: what,
	})
}

// locateError converts a fault about one control to issues with the position in its file. It
// returns all other errors unchanged.
func locateError(files []controlfile.File, repo controlfile.Repository, err error) error {
	p, ok := errors.AsType[*policy.PlacementError](err)
	if !ok {
		return err
	}
	f, ok := errors.AsType[*fault.Error](p.Err)
	if !ok || f.Kind != fault.Invalid && f.Kind != fault.Conflict {
		return err
	}
	c := repo.Controls[p.Index]
	if f.Kind == fault.Conflict { // the control cannot get the status in the file
		return refusedFault(files, []lang.FileIssue{c.Issue("status", "%s", f.Message)})
	}
	var issues []lang.FileIssue
	for _, d := range f.Details {
		is := c.Issue(strings.TrimPrefix(d.Pointer, "/"), "%s", d.Message)
		if d.Line > 0 {
			is.File, is.Line, is.Column = c.Path, d.Line, d.Column
		}
		issues = append(issues, is)
	}
	if len(issues) == 0 {
		issues = append(issues, c.Issue(f.Code, "%s", f.Message))
	}
	return refusedFault(files, issues)
}

// Get returns a stored deployment. Fault: NotFound.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id string) (Deployment, error) {
	d, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Deployment, error) { return deployment(ctx, tx, id) })
	return db.Found(d, err, sc.Sees(d.Environment), "deployment")
}
