package policy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// together runs fn n times concurrently, repeats each call while the store is busy, and returns
// the results.
func together(n int, fn func() error) iter.Seq[error] {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = dbtest.RetryUnavailable(fn) })
	}
	wg.Wait()
	return func(yield func(error) bool) {
		for _, err := range errs {
			if !yield(err) {
				return
			}
		}
	}
}

// TestPromote: a promotion moves a control to production and links it with the counterparts of its
// resource and bouncer there.
func TestPromote(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		r := h.resource(t, scope.Sandbox, "pay")
		p := h.create(t, Draft{Status: Active, ResourceID: &r.ID, BouncerID: new(int64(71)), TestCases: passing})
		up, err := h.Promote(ctx, sc(""), p.ID, Promotion{DeploymentNotes: "go"}, 0)
		errtest.Must(t, err)
		if up.Environment != scope.Production || up.ID != p.ID || up.PromotedAt == nil || *up.BouncerID != 72 || *up.ResourceID == r.ID || up.Version != 2 {
			t.Errorf("Promote = %+v", up)
		}
		twin, err := h.Resources.Get(ctx, sc(scope.Production), *up.ResourceID)
		if err != nil || twin.Path != "/pay" || len(twin.Policies) != 1 {
			t.Errorf("counterpart of the resource = %+v, %v", twin, err)
		}
		for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
			if h.revision(t, env) == 0 {
				t.Errorf("%s has no new revision", env)
			}
		}
		_, err = h.Promote(ctx, sc(""), p.ID, Promotion{}, 0)
		wantFault(t, err, fault.Conflict, "")
		_, err = h.Promote(ctx, sc(scope.Sandbox), p.ID, Promotion{}, 0)
		wantFault(t, err, fault.NotFound, "")

		second := h.create(t, Draft{ResourceID: &r.ID, BouncerID: new(int64(73))})
		up, err = h.Promote(ctx, sc(""), second.ID, Promotion{}, 0)
		if err != nil || *up.ResourceID != twin.ID || up.BouncerID != nil || up.Status != Drafted {
			t.Errorf("Promote of a second control = %+v, %v, want the same resource and no bouncer", up, err)
		}
		h.wantAudit(t, "RESOURCE_CREATED", "POLICY_CREATED", "RESOURCE_CREATED", "POLICY_PROMOTED", "POLICY_CREATED", "POLICY_PROMOTED")
	})
}

// TestPromotionGates: failing cases, the license, a stale version and a missing approver refuse a
// promotion, and nothing changes.
func TestPromotionGates(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		failing := append([]TestCase{{Name: "eve may", Input: map[string]any{"user": map[string]any{"id": "eve"}}, Expected: true}}, passing...)
		p := h.create(t, Draft{TestCases: failing})
		_, err := h.Promote(ctx, sc(""), p.ID, Promotion{}, 0)
		wantFault(t, err, fault.Invalid, "/test_cases/0")
		h.license = fault.New(fault.Forbidden, "license_required", "the trial has expired")
		_, err = h.Promote(ctx, sc(""), p.ID, Promotion{}, 0)
		wantFault(t, err, fault.Forbidden, "")
		h.license = nil
		_, err = h.Promote(ctx, sc(""), p.ID, Promotion{}, 9)
		wantFault(t, err, fault.Precondition, "")
		_, err = h.Promote(ctx, sc(scope.Production), p.ID, Promotion{}, 0)
		wantFault(t, err, fault.NotFound, "")
		got, err := h.Get(ctx, sc(""), p.ID)
		if err != nil || got.Version != 1 || got.Environment != scope.Sandbox {
			t.Errorf("control after a refused promotion = %+v, %v, want version 1 in sandbox", got, err)
		}

		errtest.Must(t, errtest.Of(h.Tenants.Update(ctx, admin(), scope.DefaultTenant, tenant.Change{Settings: patch.Set(tenant.Settings{"four_eyes": true})})))
		ok := h.create(t, Draft{TestCases: passing})
		for _, approver := range []string{"", " ", "alice", "ALICE", "alice@x.example", "u1", "nobody", "carol", "u3", "dave"} {
			_, err = h.Promote(ctx, sc(""), ok.ID, Promotion{Approver: approver}, 0)
			wantFault(t, err, fault.Invalid, "/approver")
		}
		if _, err = h.Promote(ctx, sc(""), ok.ID, Promotion{Approver: "bob"}, 0); err != nil {
			t.Fatal(err)
		}
		errtest.Must(t, errtest.Of(h.Delete(ctx, sc(""), p.ID, false, 0)))
		_, err = h.Promote(ctx, sc(""), p.ID, Promotion{Approver: "bob"}, 0)
		wantFault(t, err, fault.NotFound, "")
	})
}

// TestFiftyPromotes: of 50 concurrent promotions on two replicas, one succeeds.
func TestFiftyPromotes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		// Two replicas share one store: the turns of a process do not apply to the other one.
		ctx, a, b := context.Background(), newFixture(t, c), newFixture(t, c)
		p := a.create(t, Draft{Status: Active, TestCases: passing})
		turn, promoted, refused := 0, 0, 0
		var mu sync.Mutex
		for err := range together(50, func() error {
			mu.Lock()
			turn++
			h := []*fixture{a, b}[turn%2]
			mu.Unlock()
			_, err := h.Promote(ctx, sc(""), p.ID, Promotion{}, 0)
			return err
		}) {
			switch {
			case err == nil:
				promoted++
			case fault.Is(err, fault.Conflict):
				refused++
			default:
				t.Errorf("Promote: %v", err)
			}
		}
		if promoted != 1 || refused != 49 {
			t.Errorf("%d promotions succeed and %d conflict, want 1 and 49", promoted, refused)
		}
		a.wantAudit(t, "POLICY_CREATED", "POLICY_PROMOTED")
		a.wantEvents(t, "policy.created", "policy.deployed", "policy.promoted")
	})
}

// TestHundredUpdates: each of 100 concurrent updates gets a version of its own.
func TestHundredUpdates(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		p := h.create(t, Draft{})
		n := 0
		var mu sync.Mutex
		for err := range together(100, func() error {
			mu.Lock()
			n++
			name, source := fmt.Sprintf("name %d", n), good
			if n%10 == 0 {
				source = strings.ReplaceAll(good, "alice", fmt.Sprintf("alice%d", n))
			}
			mu.Unlock()
			_, err := h.Update(ctx, sc(""), p.ID, Change{Name: &name, RegoCode: &source}, 0)
			return err
		}) {
			if err != nil {
				t.Error(err)
			}
		}
		got, err := h.Get(ctx, sc(""), p.ID)
		if err != nil || got.Version != 101 {
			t.Errorf("version = %d, %v, want 101", got.Version, err)
		}
		hist, err := h.Versions(ctx, sc(""), p.ID, 0, 1000)
		if err != nil || hist.Total != 101 {
			t.Errorf("Versions = %d, %v, want 101", hist.Total, err)
		}
	})
}

// TestVersions: each change is a version that can be read, compared and restored.
func TestVersions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		p := h.create(t, Draft{TestCases: passing})
		errtest.Must(t, errtest.Of(h.Update(ctx, sc(""), p.ID, Change{RegoCode: new(better), Status: new(Active)}, 0)))
		d, err := h.Diff(ctx, sc(""), p.ID, 0, 0)
		if err != nil || d.From != 1 || d.To != 2 || len(d.Changes) != 1 || d.Changes[0].Member != "status" || !strings.Contains(d.Rego, "+allow if input.user.id in") {
			t.Errorf("Diff = %+v, %v, want the status and the new rule", d, err)
		}
		back, err := h.RestoreVersion(ctx, sc(""), p.ID, 1, 0)
		if err != nil || back.RegoCode != good || back.Version != 3 || back.Status != Active {
			t.Errorf("RestoreVersion(1) = %+v, %v, want version 3 with the first source", back, err)
		}
		v, err := h.Version(ctx, sc(""), p.ID, 2)
		if err != nil || v.RegoCode != better || v.Change != "updated" || v.CreatedBy != "alice" {
			t.Errorf("Version(2) = %+v, %v", v, err)
		}
		_, err = h.Version(ctx, sc(""), p.ID, 9)
		wantFault(t, err, fault.NotFound, "")
		_, err = h.RestoreVersion(ctx, sc(""), p.ID, 1, 1)
		wantFault(t, err, fault.Precondition, "")
		hist, err := h.Versions(ctx, sc(""), p.ID, 0, 2)
		if err != nil || hist.Total != 3 || len(hist.Versions) != 2 || hist.Versions[0].Version != 3 || hist.Versions[0].Change != "restored" {
			t.Errorf("Versions = %+v, %v, want 2 of 3, the newest first", hist, err)
		}
	})
}

// TestRunTestsAndValidate: Test runs the stored cases or those that are sent, Validate shows each issue.
func TestRunTestsAndValidate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		p := h.create(t, Draft{TestCases: passing})
		r, err := h.Test(ctx, sc(""), p.ID, nil)
		if err != nil || r.Summary != (Summary{Total: 2, Passed: 2, PassRate: 1}) {
			t.Errorf("Test of the stored cases = %+v, %v", r, err)
		}
		r, err = h.Test(ctx, sc(""), p.ID, []TestCase{{Name: "x", Input: map[string]any{}, Expected: true}})
		if err != nil || r.Summary != (Summary{Total: 1, Failed: 1}) || r.Results[0].Actual {
			t.Errorf("Test of a sent case = %+v, %v, want one failure", r, err)
		}
		r, err = h.Test(ctx, sc(""), p.ID, []TestCase{})
		if err != nil || r.Results == nil || r.Summary.Total != 0 {
			t.Errorf("Test of no case = %+v, %v, want an empty list", r, err)
		}
		v, err := h.Validate(ctx, sc(""), broken)
		if err != nil || v.Valid || len(v.Errors) == 0 || v.Errors[0].Line != 3 {
			t.Errorf("Validate of a broken source = %+v, %v, want an error in line 3", v, err)
		}
		v, err = h.Validate(ctx, sc(""), good)
		if err != nil || !v.Valid || v.Warnings == nil || v.Message == "" {
			t.Errorf("Validate of a good source = %+v, %v, want valid", v, err)
		}
	})
}

// TestErrorIsADenial: a stored case that expects no access passes if the control fails, and does
// not prevent a promotion. The result contains the error.
func TestErrorIsADenial(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		p := h.create(t, Draft{
			RegoCode:  "package p\n\nallow if to_number(input.user.id) > 7\n",
			TestCases: []TestCase{{Name: "no number", Input: map[string]any{"user": map[string]any{"id": "alice"}}}},
		})
		r, err := h.Test(ctx, sc(""), p.ID, nil)
		if err != nil || r.Summary != (Summary{Total: 1, Passed: 1, PassRate: 1}) || r.Results[0].Error == "" {
			t.Errorf("Test = %+v, %v, want one passed with an error", r, err)
		}
		errtest.Must(t, errtest.Of(h.Promote(ctx, sc(""), p.ID, Promotion{}, 0)))
	})
}

// TestTurnsEndWithTheCaller: a caller that goes away stops waiting for its turn.
func TestTurnsEndWithTheCaller(t *testing.T) {
	var ts nameLocks
	leave, err := ts.lock(context.Background(), "a")
	errtest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := ts.lock(ctx, "a"); !fault.Is(err, fault.Unavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("enter of a cancelled caller: got %v, want unavailable", err)
	}
	leave()
	if len(ts.open) != 0 {
		t.Errorf("%d turns remain, want none", len(ts.open))
	}
}
