package policy

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// TestLifeOfAControl follows a control from its creation over changes to its deactivation.
func TestLifeOfAControl(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		p := h.create(t, Draft{Name: "Pay_50%", TestCases: passing})
		if p.Status != Drafted || p.Environment != scope.Sandbox || p.Version != 1 || p.CreatedBy != "alice" || p.SyncErrors == nil {
			t.Errorf("Create = %+v", p)
		}
		got, err := h.Get(ctx, sc(""), p.ID)
		if diff := cmp.Diff(p, got); err != nil || diff != "" {
			t.Errorf("Get after Create: %v (-created +read)\n%s", err, diff)
		}
		before := h.revision(t, scope.Sandbox)
		up, err := h.Update(ctx, sc(""), p.ID, Change{Status: new(Active), Description: patch.Set("d")}, 1)
		if err != nil || up.Status != Active || up.Version != 2 || up.RegoCode != good || up.Description != "d" {
			t.Fatalf("Update to active = %+v, %v", up, err)
		}
		if after := h.revision(t, scope.Sandbox); after != before+1 {
			t.Errorf("revision = %d, want %d", after, before+1)
		}
		if h.eval.checks.Load() != 1 {
			t.Errorf("%d compilations of one source, want 1", h.eval.checks.Load())
		}
		_, err = h.Update(ctx, sc(""), p.ID, Change{Name: new("x")}, 1)
		wantFault(t, err, fault.Precondition, "")
		_, err = h.Update(ctx, sc(""), p.ID, Change{Status: new(Drafted)}, 0)
		wantFault(t, err, fault.Conflict, "")
		_, err = h.Update(ctx, sc(""), p.ID, Change{RegoCode: new(broken)}, 0)
		wantFault(t, err, fault.Invalid, "/rego_code")
		h.in(t, func(ctx context.Context, tx *db.Tx) error {
			cs, err := ControlsFor(ctx, tx, scope.Sandbox)
			if err != nil || len(cs) != 1 || cs[0].Source != good || cs[0].Version != 2 || cs[0].ResourceID != 0 {
				t.Errorf("ControlsFor = %+v, %v, want version 2 of the control", cs, err)
			}
			return nil
		})
		errtest.Must(t, errtest.Of(h.Update(ctx, sc(""), p.ID, Change{Status: new(Inactive)}, 0)))
		h.in(t, func(ctx context.Context, tx *db.Tx) error {
			if cs, err := ControlsFor(ctx, tx, scope.Sandbox); err != nil || len(cs) != 0 {
				t.Errorf("ControlsFor after the deactivation = %+v, %v, want none", cs, err)
			}
			return nil
		})
		h.wantAudit(t, "POLICY_CREATED", "POLICY_UPDATED", "POLICY_UPDATED")
		h.wantEvents(t, "policy.created", "policy.updated", "policy.deployed", "policy.updated")
	})
}

// TestTransitions: no control becomes a draft again, and a draft becomes active first.
func TestTransitions(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		ok       bool
	}{
		{Drafted, Drafted, true},
		{Drafted, Active, true},
		{Drafted, Inactive, false},
		{Active, Inactive, true},
		{Active, Drafted, false},
		{Inactive, Active, true},
		{Inactive, Drafted, false},
		{Active, Active, true},
	} {
		if err := transition(tc.from, tc.to); (err == nil) != tc.ok {
			t.Errorf("transition from %s to %s = %v, want allowed: %t", tc.from, tc.to, err, tc.ok)
		}
	}
}

// TestForeignIDs: a control cannot name a resource, a bouncer or a destination of another environment or
// of none, and it is not visible outside its tenant and environment.
func TestForeignIDs(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		prod, here := h.resource(t, scope.Production, "prod"), h.resource(t, scope.Sandbox, "here")
		channel := func(ref, kind string) []actions.Action {
			return []actions.Action{{Type: kind, DestinationRef: ref, Trigger: "on_deny"}}
		}
		for _, tc := range []struct {
			d       Draft
			pointer string
		}{
			{Draft{ResourceID: &prod.ID}, "/resource_id"},
			{Draft{ResourceID: new(int64(999))}, "/resource_id"},
			{Draft{ResourceID: &here.ID, BouncerID: new(int64(72))}, "/bouncer_id"},
			{Draft{BouncerID: new(int64(999))}, "/bouncer_id"},
			{Draft{Actions: channel("channel:2", "notification")}, "/actions/0/destination_ref"},
			{Draft{Actions: channel("integration:1", "notification")}, "/actions/0/destination_ref"},
			{Draft{Actions: channel("channel:1", "webhook")}, "/actions/0/destination_ref"},
		} {
			tc.d.Name, tc.d.RegoCode = "x", good
			_, err := h.Create(ctx, sc(""), tc.d)
			wantFault(t, err, fault.Invalid, tc.pointer)
		}
		p := h.create(t, Draft{ResourceID: &here.ID, BouncerID: new(int64(71)), Actions: channel("channel:1", "notification")})
		_, err := h.Update(ctx, sc(""), p.ID, Change{ResourceID: patch.Set(prod.ID)}, 0)
		wantFault(t, err, fault.Invalid, "/resource_id")
		_, err = h.Update(ctx, sc(""), p.ID, Change{Environment: new(scope.Production)}, 0)
		wantFault(t, err, fault.Invalid, "/environment")
		up, err := h.Update(ctx, sc(""), p.ID, Change{ResourceID: patch.Clear[int64]()}, 0)
		if err != nil || up.ResourceID != nil || *up.BouncerID != 71 {
			t.Errorf("Update without the resource = %+v, %v, want bouncer 71 only", up, err)
		}
		other := sc("")
		other.Tenant = dbtest.Second
		_, err = h.Get(ctx, other, p.ID)
		wantFault(t, err, fault.NotFound, "")
		_, err = h.Get(ctx, sc(scope.Production), p.ID)
		wantFault(t, err, fault.NotFound, "")
	})
}

// TestListAndSearch: List filters by environment, status and a part of the name, literally.
func TestListAndSearch(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		for _, d := range []Draft{{Name: "ÄPFEL 50%"}, {Name: "a_b", Status: Active}, {Name: "axb"}, {Name: `back\slash`}, {Name: "Prod", Environment: scope.Production}} {
			h.create(t, d)
		}
		for _, tc := range []struct {
			env  scope.Env
			f    Filter
			want string
		}{
			{"", Filter{}, "ÄPFEL 50%|a_b|axb|back\\slash|Prod|"},
			{"", Filter{Name: "äpf"}, "ÄPFEL 50%|"},
			{"", Filter{Name: "%"}, "ÄPFEL 50%|"},
			{"", Filter{Name: "A_B"}, "a_b|"},
			{"", Filter{Name: `\`}, "back\\slash|"},
			{"", Filter{Name: "' OR 1=1 --"}, ""},
			{"", Filter{Status: Active}, "a_b|"},
			{scope.Production, Filter{}, "Prod|"},
			{"", Filter{Skip: 4}, "Prod|"},
		} {
			tc.f.Limit = 100
			page, err := h.List(ctx, sc(tc.env), tc.f)
			errtest.Must(t, err)
			got := ""
			for _, p := range page.Policies {
				got += p.Name + "|"
			}
			if got != tc.want {
				t.Errorf("List in %q of %+v = %q, want %q", tc.env, tc.f, got, tc.want)
			}
		}
		page, err := h.List(ctx, sc(""), Filter{Skip: 4, Limit: 2})
		if err != nil || page.Page != 3 || page.PageSize != 2 || page.Total != 5 {
			t.Errorf("third page of 2 = %+v, %v", page, err)
		}
	})
}

// TestDeleteAndRestore: a deleted control comes back as it was, but never active without the resource
// that it had.
func TestDeleteAndRestore(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		r := h.resource(t, scope.Sandbox, "pay")
		p := h.create(t, Draft{Status: Active, ResourceID: &r.ID})
		if _, err := h.Delete(ctx, sc(""), p.ID, false, 7); !fault.Is(err, fault.Precondition) {
			t.Errorf("Delete with an old version: got %v, want a failed precondition", err)
		}
		h.Now = func() time.Time { return time.Unix(1e9, 123456789) }
		at, err := h.Delete(ctx, sc(""), p.ID, false, 0)
		if err != nil || at.Location() != time.UTC {
			t.Fatalf("Delete = %v, %v, want a time in UTC", at, err)
		}
		err = c.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			gone, err := get(ctx, tx, p.ID)
			if err == nil && !gone.DeletedAt.Equal(at) {
				t.Errorf("deleted at %v in the store, want %v", gone.DeletedAt, at)
			}
			return err
		})
		errtest.Must(t, err)
		for deleted, want := range map[bool]int64{true: 1, false: 0} {
			page, err := h.List(ctx, sc(""), Filter{Deleted: deleted, Limit: 10})
			if err != nil || page.Total != want || int64(len(page.Policies)) != want {
				t.Errorf("List with Deleted %v = %+v, %v, want %d", deleted, page, err, want)
			}
		}
		_, err = h.Delete(ctx, sc(""), p.ID, false, 0)
		wantFault(t, err, fault.NotFound, "")
		_, err = h.Get(ctx, sc(""), p.ID)
		wantFault(t, err, fault.NotFound, "")
		back, err := h.Restore(ctx, sc(""), p.ID)
		if err != nil || back.Status != Active || *back.ResourceID != r.ID || back.Version != 3 {
			t.Fatalf("Restore = %+v, %v, want version 3, active", back, err)
		}
		_, err = h.Restore(ctx, sc(""), p.ID)
		wantFault(t, err, fault.Conflict, "")

		// A control whose resource is gone must not become tenant-wide and active.
		errtest.Must(t, errtest.Of(h.Delete(ctx, sc(""), p.ID, false, 0)))
		errtest.Must(t, errtest.Of(h.Resources.Delete(ctx, sc(""), r.ID, 0)))
		back, err = h.Restore(ctx, sc(""), p.ID)
		if err != nil || back.Status != Inactive || back.ResourceID != nil {
			t.Fatalf("Restore without the resource = %+v, %v, want inactive", back, err)
		}
		errtest.Must(t, errtest.Of(h.Delete(ctx, sc(""), p.ID, true, 0)))
		_, err = h.Restore(ctx, sc(""), p.ID)
		wantFault(t, err, fault.NotFound, "")
		h.wantEvents(t, "resource.created", "policy.created", "policy.deployed", "policy.deleted", "policy.updated", "policy.deployed",
			"policy.deleted", "resource.deleted", "policy.updated", "policy.deleted")
	})
}

// TestLimit: concurrent calls cannot create more controls than the tenant may have.
func TestLimit(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		_, err := h.Tenants.Update(ctx, admin(), scope.DefaultTenant, tenant.Change{Settings: patch.Set(tenant.Settings{"max_policies": int64(10)})})
		errtest.Must(t, err)
		made := 0
		for err := range together(50, func() error {
			_, err := h.Create(ctx, sc(""), Draft{Name: "x", RegoCode: good})
			return err
		}) {
			if err == nil {
				made++
				continue
			}
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "limit_exceeded" || f.Fields["limit"] != int64(10) {
				t.Errorf("Create over the limit: got %v, want limit_exceeded", err)
			}
		}
		if page, err := h.List(ctx, sc(""), Filter{Limit: 100}); err != nil || page.Total != 10 || made != 10 {
			t.Errorf("%d controls created and %d stored, %v, want 10", made, page.Total, err)
		}
	})
}
