package policy

import (
	"context"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// meanwhile is an evaluator during whose first call something else happens.
type meanwhile struct {
	*inProcess
	do func()
}

func (e *meanwhile) once() {
	if do := e.do; do != nil {
		e.do = nil
		do()
	}
}

func (e *meanwhile) Check(ctx context.Context, id scope.TenantID, source string, libs ...lang.Library) (worker.Validation, error) {
	e.once()
	return e.inProcess.Check(ctx, id, source, libs...)
}

func (e *meanwhile) Test(ctx context.Context, id scope.TenantID, r worker.TestRequest) ([]suite.TestResult, error) {
	e.once()
	return e.inProcess.Test(ctx, id, r)
}

// TestRecordedCaseMeanwhile: a recorded case that somebody adds while a change of the control compiles or
// runs its tests stays, if the author of the change may not see it: with an update, a restored version, a
// promotion, and a promotion that replaces the control.
func TestRecordedCaseMeanwhile(t *testing.T) {
	ctx := context.Background()
	author := sc("") // without audit:read
	recorded := TestCase{Name: "decision 1", Input: map[string]any{"user": map[string]any{"id": "alice"}}, Expected: true, Source: FromDecision}
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		for name, x := range map[string]struct {
			env    scope.Env // of the control that gets the case
			change func(h *fixture, p, other Policy) (Policy, error)
		}{
			"update": {scope.Sandbox, func(h *fixture, p, _ Policy) (Policy, error) {
				source, cases := better, passing[:1]
				return h.Update(ctx, author, p.ID, Change{RegoCode: &source, TestCases: patch.Set(cases)}, 0)
			}},
			"restored version": {scope.Sandbox, func(h *fixture, p, _ Policy) (Policy, error) {
				return h.RestoreVersion(ctx, author, p.ID, 1, 0)
			}},
			"promotion": {scope.Sandbox, func(h *fixture, p, _ Policy) (Policy, error) {
				return h.Promote(ctx, author, p.ID, Promotion{}, 0)
			}},
			"replacing promotion": {scope.Production, func(h *fixture, _, other Policy) (Policy, error) {
				return h.Promote(ctx, author, other.ID, Promotion{Replace: true}, 0)
			}},
		} {
			h := newFixture(t, c)
			r := h.resource(t, x.env, name)
			p := h.create(t, Draft{Name: name, Environment: x.env, ResourceID: &r.ID, TestCases: passing, Status: Active})
			other := Policy{}
			if x.env == scope.Production {
				twin := h.resource(t, scope.Sandbox, name)
				other = h.create(t, Draft{Name: name, Environment: scope.Sandbox, ResourceID: &twin.ID, TestCases: passing, Status: Active})
			}
			e := &meanwhile{inProcess: h.eval, do: func() {
				errtest.Must(t, errtest.Of(h.Update(ctx, admin(), p.ID, Change{AddRecorded: []TestCase{recorded}}, 0)))
			}}
			h.Compiler = Compiler{Evaluator: e} // it has compiled nothing yet
			made, err := x.change(h, p, other)
			if err != nil || e.do != nil {
				t.Errorf("%s: %v, and the case was added: %v, want both", name, err, e.do == nil)
				continue
			}
			got, err := h.Get(ctx, admin(), made.ID)
			errtest.Must(t, err)
			if !slices.ContainsFunc(got.TestCases, func(c TestCase) bool { return c.Name == recorded.Name && c.Source == FromDecision && !c.InputHidden }) {
				t.Errorf("%s: the cases are %s, want the recorded one among them", name, caseText(got.TestCases))
			}
		}
	})
}
