package policycode

import (
	"context"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// listPage is how many controls one query reads.
const listPage = 500

// Drift compares files with an environment. It compares Rego as text, and the members that the
// manifests set. A control is missing if it was deployed from the repository that the request names
// (or from any, if it names none) and is not in the files. Fault: Invalid if the files have errors.
func (s *Service) Drift(ctx context.Context, sc scope.Scope, r Request) (Drift, error) {
	env, err := sc.CreateIn(r.Environment)
	if err != nil {
		return Drift{}, err
	}
	repo, issues := controlfile.Read(r.Files)
	if len(issues) > 0 {
		return Drift{}, refusedFault(r.Files, issues)
	}
	there, err := s.controls(ctx, sc, env, "")
	if err != nil {
		return Drift{}, err
	}
	out := Drift{Environment: env, Controls: []Drifted{}}
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		out.Controls = []Drifted{}
		from, err := origins(ctx, tx)
		if err != nil {
			return err
		}
		byName := map[string]policy.Policy{}
		for _, p := range there {
			// If several have the name, use the one that was promoted last, or else the oldest.
			if other, known := byName[p.Name]; !known || isLater(p, other) {
				byName[p.Name] = p
			}
		}
		named := map[string]bool{}
		for _, c := range repo.Controls {
			named[c.Name] = true
			p, found := byName[c.Name]
			d, differs, err := s.compare(ctx, tx, sc, r, env, c, p, found, from)
			if err != nil {
				return err
			}
			if differs {
				out.Controls = append(out.Controls, d)
			}
		}
		for _, p := range there {
			o, coded := from[p.ID]
			if coded && !named[p.Name] && (r.Repository == "" || r.Repository == o.Repository) {
				out.Controls = append(out.Controls, Drifted{Name: p.Name, State: Missing, Path: o.Path, PolicyID: p.ID, Version: p.Version, Origin: &o})
			}
		}
		return nil
	})
	slices.SortStableFunc(out.Controls, func(a, b Drifted) int { return strings.Compare(a.Name, b.Name) })
	out.InSync = len(out.Controls) == 0
	return out, err
}

// isLater reports whether a was promoted after b.
func isLater(a, b policy.Policy) bool {
	return a.PromotedAt != nil && (b.PromotedAt == nil || a.PromotedAt.After(*b.PromotedAt))
}

// compare compares a file with the control that has the same name, if one was found. It reports
// whether they differ.
func (s *Service) compare(ctx context.Context, tx *db.Tx, sc scope.Scope, r Request, env scope.Env, c controlfile.Control, p policy.Policy, found bool, from map[int64]Origin) (Drifted, bool, error) {
	d := Drifted{Name: c.Name, Path: c.Path, State: Added}
	if !found {
		d.Diff = policy.Unified("/dev/null", "b/"+c.Path, "", c.Source)
		return d, true, nil
	}
	d.PolicyID, d.Version, d.State = p.ID, p.Version, Changed
	l, _, err := s.link(ctx, tx, env, c) // links that do not resolve are not compared
	if err != nil {
		return d, false, err
	}
	if env == scope.Production {
		c.Status = nil // ids belong to sandbox, and promotions decide the status in production
		if c.Resource != nil && c.Resource.ID != 0 {
			c.Resource = nil
		}
		if c.Bouncer != nil && c.Bouncer.ID != 0 {
			c.Bouncer = nil
		}
		r.ResourceID, r.BouncerID = nil, nil
	}
	item, err := placement(sc, c, l, r, Deployment{})
	if err != nil {
		return d, false, err
	}
	item.Change.Status = nil
	next, changes, err := p.Preview(sc, item.Change)
	if err != nil {
		return d, false, err
	}
	if c.Status != nil && *c.Status != p.Status {
		changes = append(changes, policy.MemberDifference{Member: "status", From: p.Status, To: *c.Status})
	}
	d.Changes, d.Diff = changes, policy.Unified("a/"+c.Path, "b/"+c.Path, p.RegoCode, next.RegoCode)
	if len(changes) == 0 && d.Diff == "" {
		return d, false, nil
	}
	o, coded := from[p.ID]
	if coded {
		d.Origin = &o
	}
	outside := !coded
	if coded {
		if outside, err = policy.ChangedSince(ctx, tx, p.ID, o.Version); err != nil {
			return d, false, err
		}
	}
	if outside {
		d.State = ChangedOutside
	}
	return d, true, nil
}

// controls returns the controls of an environment whose names contain a text, sorted by id. In
// production it leaves out controls that are not active if an active one has the same name, because
// a promotion replaced them.
func (s *Service) controls(ctx context.Context, sc scope.Scope, env scope.Env, name string) ([]policy.Policy, error) {
	sc.Env = env
	var out []policy.Policy
	for {
		page, err := s.Policies.List(ctx, sc, policy.Filter{Name: name, Skip: int64(len(out)), Limit: listPage})
		if err != nil {
			return nil, err
		}
		out = append(out, page.Policies...)
		if len(page.Policies) < listPage {
			break
		}
	}
	active := map[string]bool{}
	for _, p := range out {
		active[p.Name] = active[p.Name] || env == scope.Production && p.Status == policy.Active
	}
	return slices.DeleteFunc(out, func(p policy.Policy) bool { return p.Status != policy.Active && active[p.Name] }), nil
}
