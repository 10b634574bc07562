package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// TestPromotionWarnings: a promotion warns about a control that is not active, about a tenant-wide
// one, and about sandbox resources that it leaves without a control.
func TestPromotionWarnings(t *testing.T) {
	linked := func(d Draft, to int64) Draft { d.ResourceID = &to; return d }
	active := Draft{Status: Active}
	cases := map[string]struct {
		// pay and ship are resources of sandbox. Each function prepares the store and returns
		// the control to promote.
		arrange   func(h *fixture, pay, ship int64) Draft
		promotion Promotion
		want      []string
		uncovered []string
		text      []string
	}{
		"a draft that was alone": {
			func(_ *fixture, pay, _ int64) Draft { return linked(Draft{}, pay) },
			Promotion{},
			[]string{"not_enforced", "sandbox_uncovered"},
			[]string{"pay"},
			[]string{"is a draft", "enforces nothing", "(pay)", "keep_in_sandbox"},
		},
		"the last active one": {
			func(h *fixture, pay, _ int64) Draft {
				h.create(t, linked(Draft{Name: "a draft beside it"}, pay))
				return linked(active, pay)
			},
			Promotion{},
			[]string{"sandbox_uncovered"},
			[]string{"pay"},
			[]string{"without any control for", "(pay)"},
		},
		"the last one, but for a tenant-wide one": {
			func(h *fixture, pay, _ int64) Draft { h.create(t, active); return linked(active, pay) },
			Promotion{},
			[]string{"sandbox_uncovered"},
			[]string{"pay"},
			[]string{"any control but the tenant-wide ones"},
		},
		"one of two": {
			func(h *fixture, pay, _ int64) Draft { h.create(t, linked(active, pay)); return linked(active, pay) },
			Promotion{},
			nil, nil, nil,
		},
		"tenant-wide, the last of all": {
			func(h *fixture, pay, _ int64) Draft { h.create(t, linked(active, pay)); return active },
			Promotion{},
			[]string{"tenant_wide", "sandbox_uncovered"},
			[]string{"ship"},
			[]string{"tenant-wide", "every request of production", "(ship)"},
		},
		"tenant-wide, one of two": {
			func(h *fixture, _, _ int64) Draft { h.create(t, active); return active },
			Promotion{},
			[]string{"tenant_wide"},
			nil, nil,
		},
		"a tenant-wide draft": {
			func(*fixture, int64, int64) Draft { return Draft{} },
			Promotion{},
			[]string{"not_enforced", "tenant_wide"},
			nil, nil,
		},
		"kept": {
			func(_ *fixture, pay, _ int64) Draft { return linked(active, pay) },
			Promotion{KeepInSandbox: true},
			nil, nil, nil,
		},
		"kept as a draft": {
			func(_ *fixture, pay, _ int64) Draft { return linked(Draft{}, pay) },
			Promotion{KeepInSandbox: true},
			[]string{"not_enforced", "sandbox_uncovered"},
			[]string{"pay"},
			nil,
		},
		"tenant-wide, kept": {
			func(*fixture, int64, int64) Draft { return active },
			Promotion{KeepInSandbox: true},
			[]string{"tenant_wide"},
			nil, nil,
		},
		"a library that is a draft": {
			func(*fixture, int64, int64) Draft { return Draft{Kind: KindLibrary, RegoCode: textLib} },
			Promotion{},
			[]string{"not_enforced"},
			nil,
			[]string{"no policy can import it"},
		},
	}
	dbtest.Each(t, func(t *testing.T, cl *db.Cluster) {
		h := newFixture(t, cl)
		for name, c := range cases {
			h.empty(t)
			pay, ship := h.resource(t, scope.Sandbox, "pay"), h.resource(t, scope.Sandbox, "ship")
			p, err := h.Promote(context.Background(), sc(""), h.create(t, c.arrange(h, pay.ID, ship.ID)).ID, c.promotion, 0)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var codes, messages, uncovered []string
			for _, w := range p.Warnings {
				codes, messages = append(codes, w.Code), append(messages, w.Message)
				if !slices.Equal(w.PolicyIDs, []int64{p.ID}) {
					t.Errorf("%s: the warning names the policies %v, want %d", name, w.PolicyIDs, p.ID)
				}
				for _, id := range w.ResourceIDs {
					uncovered = append(uncovered, map[int64]string{pay.ID: "pay", ship.ID: "ship"}[id])
				}
			}
			if !slices.Equal(codes, c.want) || !slices.Equal(uncovered, c.uncovered) {
				t.Errorf("%s: warnings %v of resources %v, want %v of %v", name, codes, uncovered, c.want, c.uncovered)
			}
			for _, text := range c.text {
				if !strings.Contains(strings.Join(messages, "\n"), text) {
					t.Errorf("%s: warnings %q, want %q in them", name, messages, text)
				}
			}
		}
	})
}

// empty removes all controls and resources.
func (h *fixture) empty(t *testing.T) {
	t.Helper()
	h.in(t, func(ctx context.Context, tx *db.Tx) error {
		for _, table := range []string{"policies", "resources"} {
			if _, err := tx.Exec(ctx, "DELETE FROM "+table); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestPromotionUncoversMany: a warning lists at most ten resources and says that there are more.
func TestPromotionUncoversMany(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h := newFixture(t, c)
		for i := range 12 {
			h.resource(t, scope.Sandbox, fmt.Sprint("r", i))
		}
		p, err := h.Promote(context.Background(), sc(""), h.create(t, Draft{Status: Active}).ID, Promotion{}, 0)
		if err != nil || len(p.Warnings) != 2 || len(p.Warnings[1].ResourceIDs) != 10 || !strings.Contains(p.Warnings[1].Message, "and more") {
			t.Errorf("Promote warns of %+v, %v, want ten resources and more", p.Warnings, err)
		}
	})
}

// TestKeepInSandbox: the copy has the content that the promoted control had in sandbox, and its own
// id. If the promotion is refused, no copy is stored.
func TestKeepInSandbox(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		r := h.resource(t, scope.Sandbox, "pay")
		old := h.create(t, Draft{
			Name: "owners", Description: "who owns", Status: Active, ResourceID: &r.ID, BouncerID: new(int64(71)), TestCases: passing,
		})
		p, err := h.Promote(ctx, sc(""), old.ID, Promotion{KeepInSandbox: true}, 0)
		if err != nil || p.ID != old.ID || p.Environment != scope.Production || p.SandboxCopyID == 0 || p.SandboxCopyID == old.ID {
			t.Fatalf("Promote = %+v, %v, want a copy in sandbox", p, err)
		}
		copied, err := h.Get(ctx, sc(scope.Sandbox), p.SandboxCopyID)
		if err != nil || copied.Name != old.Name || copied.Description != old.Description || copied.Status != Active || copied.RegoCode != old.RegoCode ||
			*copied.ResourceID != r.ID || *copied.BouncerID != 71 || len(copied.TestCases) != len(passing) || copied.Version != 1 || copied.PromotedAt != nil {
			t.Errorf("copy = %+v, %v, want the content of %+v", copied, err, old)
		}
		h.wantAudit(t, "RESOURCE_CREATED", "POLICY_CREATED", "RESOURCE_CREATED", "POLICY_PROMOTED", "POLICY_CREATED")
		h.wantEvents(t, "resource.created", "policy.created", "policy.deployed", "resource.created", "policy.promoted", "policy.created", "policy.deployed")

		lib := h.library(t, scope.Sandbox, textLib)
		up, err := h.Promote(ctx, sc(""), lib.ID, Promotion{KeepInSandbox: true}, 0)
		if err != nil || up.SandboxCopyID == 0 {
			t.Errorf("Promote of a library = %+v, %v, want a copy in sandbox", up, err)
		}

		// If the tenant's limit does not allow the copy, nothing is promoted.
		last := h.create(t, Draft{Name: "last", Status: Active})
		n := int64(5)
		errtest.Must(t, errtest.Of(h.Tenants.Update(ctx, admin(), scope.DefaultTenant, tenant.Change{Settings: patch.Set(tenant.Settings{"max_policies": n})})))
		_, err = h.Promote(ctx, sc(""), last.ID, Promotion{KeepInSandbox: true}, 0)
		wantCode(t, err, fault.Forbidden, "limit_exceeded")
		if got, err := h.Get(ctx, sc(""), last.ID); err != nil || got.Environment != scope.Sandbox {
			t.Errorf("control without room for its copy = %+v, %v, want it in sandbox", got, err)
		}
	})
}
