package policy

import (
	"context"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestCasesOverData: cases run with the data of the control's environment, and for a promotion with
// that of production. Data that a case sets replaces it.
func TestCasesOverData(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		sandbox := h.resource(t, scope.Sandbox, "ledger")
		const source = "package p\n\nallow if { some r in data.resources; r.path == input.path; r.environment == input.environment }\n"
		in := func(env scope.Env) map[string]any {
			return map[string]any{"path": "/ledger", "environment": string(env)}
		}
		over := &TestData{Resources: map[string]any{"1": map[string]any{"path": "/ledger", "environment": "nowhere"}}}
		p := h.create(t, Draft{RegoCode: source, TestCases: []TestCase{
			{Name: "as it is", Input: in(scope.Sandbox), Expected: true},
			{Name: "of the other environment", Input: in(scope.Production), Expected: false},
			{Name: "set", Input: in("nowhere"), Expected: true, Data: over},
			{Name: "only what is set", Input: in(scope.Sandbox), Expected: false, Data: over},
			{Name: "set to nothing", Input: in(scope.Sandbox), Expected: false, Data: &TestData{Resources: map[string]any{}}},
			{Name: "another member", Input: in(scope.Sandbox), Expected: true, Data: &TestData{PIP: map[string]any{"hr": 1}}},
		}})
		if got, err := h.Get(ctx, sc(""), p.ID); err != nil || fmt.Sprint(got.TestCases[4].Data, got.TestCases[0].Data) != "&{map[] map[]} <nil>" || got.TestCases[4].Data.Resources == nil {
			t.Errorf("stored cases = %+v, %v", got.TestCases, err)
		}
		wantPassed := func(want int) {
			t.Helper()
			if r, err := h.Test(ctx, sc(""), p.ID, nil); err != nil || r.Summary.Passed != want || r.Summary.Total != 6 {
				t.Errorf("Test = %+v, %v, want %d of 6 passed", r, err, want)
			}
		}
		wantPassed(6)
		twin := h.resource(t, scope.Production, "ledger")
		wantPassed(6)
		_, err := h.Promote(ctx, sc(""), p.ID, Promotion{}, 0)
		wantFault(t, err, fault.Invalid, "/test_cases/0")
		wantFault(t, err, fault.Invalid, "/test_cases/1")
		cases := []TestCase{{Name: "production's", Input: in(scope.Production), Expected: true}}
		p = h.create(t, Draft{RegoCode: source, TestCases: cases})
		if r, err := h.Test(ctx, sc(""), p.ID, nil); err != nil || r.Summary.Passed != 0 {
			t.Errorf("Test in sandbox = %+v, %v, want none passed", r, err)
		}
		errtest.Must(t, errtest.Of(h.Promote(ctx, sc(""), p.ID, Promotion{}, 0)))
		for _, id := range []int64{sandbox.ID, twin.ID} {
			errtest.Must(t, errtest.Of(h.Resources.Delete(ctx, sc(""), id, 0)))
		}
		if r, err := h.Test(ctx, sc(""), p.ID, nil); err != nil || r.Summary.Passed != 0 {
			t.Errorf("Test without the resource = %+v, %v, want none passed", r, err)
		}
	})
}
