package policy

import (
	"context"
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Superseded is a policy that became inactive because another one replaced it.
type Superseded struct {
	PolicyID int64  `json:"policy_id" doc:"The policy, now inactive."`
	Name     string `json:"name" doc:"Its name."`
	Version  int64  `json:"version" doc:"Its version now that it is inactive."`
}

// Warning reports a consequence of a change that the caller may not expect.
type Warning struct {
	Code        string  `json:"code" enum:"not_enforced,tenant_wide,shadowed,sandbox_uncovered,actions_left_out,same_name_active,same_name_elsewhere" doc:"not_enforced: the policy is a draft or inactive, and enforces nothing until it is active. tenant_wide: the control names no resource and applies to every request of its environment. shadowed: some requests do not reach the control, because resources that name a host and have no active control take precedence over its own, which names none. sandbox_uncovered: resources of sandbox have no active control left. actions_left_out: the control came without actions whose targets its environment does not have. same_name_active: active controls with the same name for the same resource stay active and decide too. same_name_elsewhere: active controls with the same name for another resource stay active."`
	Message     string  `json:"message" doc:"Message for people."`
	PolicyIDs   []int64 `json:"policy_ids" doc:"The policies concerned: the promoted one, or those that stay."`
	ResourceIDs []int64 `json:"resource_ids,omitempty" doc:"sandbox_uncovered: the resources without a control; shadowed: those that take precedence; 10 at most."`
}

// activeOthers are other active policies in p's environment: same are those in the same place as p,
// elsewhere those with the same name for another resource.
type activeOthers struct{ same, elsewhere []Policy }

// findBeside returns the policies beside p. The place of a control is its name and its resource.
// The place of a library is its package: an environment has at most one active library for it.
func findBeside(ctx context.Context, tx *db.Tx, p Policy) (activeOthers, error) {
	var b activeOthers
	if p.Kind == KindLibrary {
		all, err := activeLibraries(ctx, tx)
		for _, l := range all {
			if err != nil || l.Environment != p.Environment || l.ID == p.ID || l.library().Package() != library(p).Package() {
				continue
			}
			var found Policy
			found, err = get(ctx, tx, l.ID)
			b.same = append(b.same, found)
		}
		return b, err
	}
	found, err := activeNamed(ctx, tx, p.Environment, p.Name)
	for _, c := range found {
		switch {
		case c.ID == p.ID:
		case deref(c.ResourceID) == deref(p.ResourceID):
			b.same = append(b.same, c)
		default:
			b.elsewhere = append(b.elsewhere, c)
		}
	}
	return b, err
}

// warnings returns warnings about the policies that stay active beside p.
func (b activeOthers) warnings(p Policy) []Warning {
	var out []Warning
	warn := func(code, text string, list []Policy) {
		if len(list) == 0 {
			return
		}
		w := Warning{Code: code, PolicyIDs: make([]int64, len(list))}
		for i, c := range list {
			w.PolicyIDs[i] = c.ID
		}
		w.Message = fmt.Sprintf("%s has active controls named %q %s: %v", p.Environment, p.Name, text, w.PolicyIDs)
		out = append(out, w)
	}
	text := "for the same resource, which decide beside it; a promotion with replace makes them inactive"
	if !p.live() {
		text = "for the same resource; once this one is active, they decide beside it"
	}
	warn("same_name_active", text, b.same)
	warn("same_name_elsewhere", "for other resources, which do not change", b.elsewhere)
	return out
}

// findReplaced returns the policies that a promotion of p would replace. p must have the
// environment production, but still its resource of sandbox. If p is not active but would replace
// others, the fault is Conflict "not_active": production would be left without any of them.
func (s *Service) findReplaced(ctx context.Context, sc scope.Scope, p Policy) ([]Policy, error) {
	var b activeOthers
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		if p.ResourceID != nil {
			// If there is no counterpart, production has no control for it either. If the
			// resource was deleted, the promotion's transaction returns the fault.
			twin, _, err := resource.FindTwin(ctx, tx, scope.Production, *p.ResourceID)
			if err != nil && !isNotFound(err) {
				return err
			}
			p.ResourceID = &twin
		}
		var err error
		b, err = findBeside(ctx, tx, p)
		return err
	})
	if err == nil && len(b.same) > 0 && !p.live() {
		err = fault.Newf(fault.Conflict, "not_active", "the policy is %s: to replace policy %d, which is active, it must be active itself", p.Status, b.same[0].ID)
	}
	return b.same, err
}

// sameRows reports whether two lists contain the same versions of the same policies.
func sameRows(a, b []Policy) bool {
	return slices.EqualFunc(a, b, func(x, y Policy) bool { return x.ID == y.ID && x.Version == y.Version })
}

// deactivate makes the policies inactive that next replaces, and adds them to the step of next.
// Their changes have the same time as that of next.
func (s *Service) deactivate(ctx context.Context, tx *db.Tx, sc scope.Scope, next Policy, list []Policy, st *step) ([]Superseded, error) {
	var out []Superseded
	ids := make([]int64, 0, len(list))
	for _, old := range list {
		off := old
		off.Status = Inactive
		off, err := s.storeNext(ctx, tx, sc, old, off, step{
			verb: "updated", note: fmt.Sprintf("superseded by policy %d, version %d", next.ID, next.Version), together: true, at: st.at,
			extra: map[string]any{"superseded_by": next.ID, "superseded_by_version": next.Version},
		})
		if err != nil {
			return nil, err
		}
		out, ids = append(out, Superseded{off.ID, off.Name, off.Version}), append(ids, old.ID)
	}
	if len(ids) > 0 {
		st.extra["supersedes"] = ids
	}
	st.superseded = list
	return out, nil
}

// Reinstatement is the input of Reinstate.
type Reinstatement struct {
	DeploymentNotes string `json:"deployment_notes,omitempty" maxLength:"4000" doc:"The reason; stored with the version and in the audit."`
}

// Reinstate makes a policy active and the active policies in its place inactive, in one
// transaction. It undoes a promotion that replaced the policy, and another Reinstate can undo it.
// The requirements are those of an update to active: the control must compile with its libraries,
// and the users of a library must still compile. If the policy is active and alone in its place,
// nothing changes.
func (s *Service) Reinstate(ctx context.Context, sc scope.Scope, id int64, r Reinstatement, ifVersion int64) (Policy, error) {
	var p Policy
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := loadLive(ctx, tx, sc, id)
		if old, err = fault.Current(old, err, "policy", old.Version, ifVersion); err != nil {
			return err
		}
		next := old
		next.Status = Active
		beside, err := findBeside(ctx, tx, next)
		if err != nil {
			return err
		}
		if !old.live() {
			next.Version++
			if next.TestCases, err = inheritedCases(sc, beside.same, next.TestCases); err != nil {
				return err
			}
		}
		st := step{verb: "updated", note: r.DeploymentNotes, extra: map[string]any{"reinstated": true, "deployment_notes": r.DeploymentNotes}, at: s.Now()}
		replaced, err := s.deactivate(ctx, tx, sc, next, beside.same, &st)
		if err != nil {
			return err
		}
		if p = old; !old.live() {
			p, err = s.storeNext(ctx, tx, sc, old, next, st)
		}
		beside.same = nil
		p.Replaced, p.Warnings = replaced, beside.warnings(p)
		return err
	})
	return p, err
}
