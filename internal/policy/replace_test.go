package policy

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// inProduction returns the ids of the active controls of production.
func (h *fixture) inProduction(t *testing.T) (ids []int64) {
	t.Helper()
	h.in(t, func(ctx context.Context, tx *db.Tx) error {
		list, err := ControlsFor(ctx, tx, scope.Production)
		for _, c := range list {
			ids = append(ids, c.ID)
		}
		return err
	})
	return ids
}

// TestReplace: a promotion with Replace deactivates the active controls of the same name and resource,
// and no others. Reinstate undoes it.
func TestReplace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		pay, ship := h.resource(t, scope.Sandbox, "pay"), h.resource(t, scope.Sandbox, "ship")
		promote := func(d Draft, replace bool) Policy {
			t.Helper()
			p, err := h.Promote(ctx, sc(""), h.create(t, d).ID, Promotion{Replace: replace}, 0)
			errtest.Must(t, err)
			p.Warnings = slices.DeleteFunc(p.Warnings, func(w Warning) bool { return !strings.HasPrefix(w.Code, "same_name_") })
			return p
		}
		draft := Draft{Name: "owners", Status: Active, ResourceID: &pay.ID}
		first := promote(draft, true) // there is nothing to replace yet, nor a resource
		other := promote(Draft{Name: "owners", Status: Active, ResourceID: &ship.ID}, false)
		if len(first.Replaced)+len(first.Warnings) != 0 || len(other.Warnings) != 1 || other.Warnings[0].Code != "same_name_elsewhere" || !slices.Equal(other.Warnings[0].PolicyIDs, []int64{first.ID}) {
			t.Errorf("promotions of two resources = %+v, warnings %+v, want only same_name_elsewhere", first, other.Warnings)
		}
		wide := promote(Draft{Name: "owners", Status: Active}, true)
		second := promote(draft, false)
		if len(wide.Replaced) != 0 || len(second.Warnings) != 2 || second.Warnings[0].Code != "same_name_active" || !slices.Equal(second.Warnings[0].PolicyIDs, []int64{first.ID}) {
			t.Errorf("promotions beside each other = %+v, warnings %+v, want same_name_active for %d", wide, second.Warnings, first.ID)
		}
		// The next one replaces both, and no other.
		before := h.revision(t, scope.Production)
		third := promote(draft, true)
		if len(third.Replaced) != 2 || third.Replaced[0] != (Superseded{first.ID, "owners", 3}) || third.Replaced[1].PolicyID != second.ID || len(third.Warnings) != 1 {
			t.Errorf("Replaced = %+v, warnings %+v, want both of the resource", third.Replaced, third.Warnings)
		}
		if got, want := h.inProduction(t), []int64{other.ID, wide.ID, third.ID}; !slices.Equal(got, want) || h.revision(t, scope.Production) == before {
			t.Errorf("active controls of production = %v, want %v in a new revision", got, want)
		}
		history, err := h.Versions(ctx, sc(""), first.ID, 0, 10)
		promoted, err2 := h.Versions(ctx, sc(""), third.ID, 0, 1)
		if err != nil || err2 != nil || history.Total != 3 || history.Versions[0].Status != Inactive || history.Versions[0].Note != "superseded by policy 5, version 2" || !history.Versions[0].CreatedAt.Equal(promoted.Versions[0].CreatedAt) {
			t.Errorf("versions of the replaced control = %+v, %v, %v", history, err, err2)
		}

		// Undo the replacement, which changes only the states, and redo it.
		for _, step := range []struct{ to, from int64 }{{first.ID, third.ID}, {third.ID, first.ID}} {
			p, err := h.Reinstate(ctx, sc(""), step.to, Reinstatement{DeploymentNotes: "back"}, 0)
			if err != nil || p.Status != Active || len(p.Replaced) != 1 || p.Replaced[0].PolicyID != step.from {
				t.Errorf("Reinstate of %d = %+v, %v, want it to replace %d", step.to, p, err, step.from)
			}
			again, err := h.Reinstate(ctx, sc(scope.Production), step.to, Reinstatement{}, p.Version)
			if err != nil || again.Version != p.Version || len(again.Replaced) != 0 {
				t.Errorf("Reinstate of %d again = %+v, %v, want no change", step.to, again, err)
			}
		}
		_, err = h.Reinstate(ctx, sc(scope.Sandbox), first.ID, Reinstatement{}, 0)
		wantFault(t, err, fault.NotFound, "")
		_, err = h.Reinstate(ctx, sc(""), first.ID, Reinstatement{}, 1)
		wantFault(t, err, fault.Precondition, "")
		errtest.Must(t, errtest.Of(h.Delete(ctx, sc(""), first.ID, false, 0)))
		_, err = h.Reinstate(ctx, sc(""), first.ID, Reinstatement{}, 0)
		wantFault(t, err, fault.NotFound, "")
	})
}

// TestReplaceRefused: if the new control may not be promoted, production does not change.
func TestReplaceRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		old, err := h.Promote(ctx, sc(""), h.create(t, Draft{Name: "owners", Status: Active}).ID, Promotion{}, 0)
		errtest.Must(t, err)
		inactive := h.create(t, Draft{Name: "owners", TestCases: passing})
		_, err = h.Promote(ctx, sc(""), inactive.ID, Promotion{Replace: true}, 0)
		wantCode(t, err, fault.Conflict, "not_active", "draft")
		measured := 0
		h.Impact = func(_ context.Context, _ scope.Scope, p Policy, replaced []Policy) (*Impact, error) {
			if measured++; p.ID == inactive.ID || len(replaced) != 1 || replaced[0].ID != old.ID {
				t.Errorf("impact of %d instead of %+v, want of the active one instead of %d", p.ID, replaced, old.ID)
			}
			return nil, fault.New(fault.Invalid, "impact_blocked", "too many")
		}
		next := h.create(t, Draft{Name: "owners", Status: Active})
		_, err = h.Promote(ctx, sc(""), next.ID, Promotion{Replace: true}, 0)
		wantCode(t, err, fault.Invalid, "impact_blocked")
		if got := h.inProduction(t); !slices.Equal(got, []int64{old.ID}) || measured != 1 {
			t.Errorf("active controls = %v after %d measurements, want only %d after 1", got, measured, old.ID)
		}
		// A change between the gates and the transaction makes the gates run again.
		measured = 0
		h.Impact = func(context.Context, scope.Scope, Policy, []Policy) (*Impact, error) {
			if measured++; measured == 1 {
				if _, err := h.Update(ctx, sc(""), old.ID, Change{RegoCode: new(good + "\n# edited\n")}, 0); err != nil {
					t.Error(err)
				}
			}
			return nil, nil
		}
		p, err := h.Promote(ctx, sc(""), next.ID, Promotion{Replace: true}, 0)
		if err != nil || measured != 2 || len(p.Replaced) != 1 || p.Replaced[0].Version != 4 || !slices.Equal(h.inProduction(t), []int64{next.ID}) {
			t.Errorf("Promote = %+v, %v after %d measurements, want it to replace version 4 after 2", p, err, measured)
		}
		h.wantAudit(t, "POLICY_CREATED", "POLICY_PROMOTED", "POLICY_CREATED", "POLICY_CREATED", "POLICY_UPDATED", "POLICY_UPDATED", "POLICY_PROMOTED")
		h.wantEvents(t, "policy.created", "policy.deployed", "policy.promoted", "policy.created", "policy.created", "policy.deployed", "policy.updated", "policy.updated", "policy.promoted")
	})
}

// TestReplaceLibrary: a library replaces the active one of its package, whatever its name is, and
// the users must compile with it.
func TestReplaceLibrary(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		promote := func(id int64, replace bool) (Policy, error) {
			return h.Promote(ctx, sc(""), id, Promotion{Replace: replace}, 0)
		}
		first, err := promote(h.library(t, scope.Sandbox, textLib).ID, false)
		errtest.Must(t, err)
		user := h.create(t, Draft{Name: "user", RegoCode: usesText, Status: Active})
		errtest.Must(t, errtest.Of(promote(user.ID, false)))
		measured := 0
		h.Impact = func(_ context.Context, _ scope.Scope, p Policy, replaced []Policy) (*Impact, error) {
			if measured++; p.Kind != KindLibrary || len(replaced) != 1 || replaced[0].ID != first.ID {
				t.Errorf("impact of %+v instead of %+v, want of a library instead of %d", p, replaced, first.ID)
			}
			return nil, nil
		}
		next := h.create(t, Draft{Kind: KindLibrary, Name: "other name", Status: Active, RegoCode: strings.ReplaceAll(textLib, "lower", "upper")})
		_, err = promote(next.ID, false)
		wantCode(t, err, fault.Conflict, "library_exists")
		broken := h.create(t, Draft{Kind: KindLibrary, Name: "broken", RegoCode: "package lib.text\n\nother := 1\n"})
		errtest.Must(t, errtest.Of(h.Update(ctx, sc(""), next.ID, Change{Status: new(Inactive)}, 0)))
		errtest.Must(t, errtest.Of(h.Update(ctx, sc(""), broken.ID, Change{Status: new(Active)}, 0)))
		_, err = promote(broken.ID, true)
		wantCode(t, err, fault.Invalid, "library_breaks_users", "user")
		errtest.Must(t, errtest.Of(h.Update(ctx, sc(""), broken.ID, Change{Status: new(Inactive)}, 0)))
		errtest.Must(t, errtest.Of(h.Update(ctx, sc(""), next.ID, Change{Status: new(Active)}, 0)))
		p, err := promote(next.ID, true)
		if err != nil || len(p.Replaced) != 1 || p.Replaced[0].PolicyID != first.ID || measured != 2 {
			t.Fatalf("Promote = %+v, %v after %d measurements, want it to replace %d after 2", p, err, measured, first.ID)
		}
		for _, want := range []int64{first.ID, next.ID} {
			errtest.Must(t, errtest.Of(h.Reinstate(ctx, sc(""), want, Reinstatement{}, 0)))
			libs, err := h.Libraries(ctx, sc(""), scope.Production)
			if err != nil || len(libs) != 1 || libs[0].ID != want {
				t.Errorf("Libraries = %+v, %v, want only %d", libs, err, want)
			}
		}
	})
}
