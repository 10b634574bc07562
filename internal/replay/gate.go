package replay

import (
	"context"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Gate measures the impact of a promotion, as the tenant's settings require. It returns nil if the
// gate is off, and otherwise the figures. In mode block, if they exceed the threshold, it returns
// the fault Invalid "impact_blocked" with the figures. The candidate leaves out the controls that
// the promotion replaces, so that only the difference counts; a replaced library is found by its
// package. Gate is used as policy.Service.Impact.
func (s *Service) Gate(ctx context.Context, sc scope.Scope, p policy.Policy, replaced []policy.Policy) (*policy.Impact, error) {
	settings, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (tenant.Settings, error) { return tenant.SettingsIn(ctx, tx) })
	gate := settings.ImpactGate()
	if err != nil || gate.Mode == tenant.ImpactOff {
		return nil, err
	}
	few := 3
	var without []int64
	for _, r := range replaced {
		if r.Kind == policy.KindControl {
			without = append(without, r.ID)
		}
	}
	found, err := s.Preview(ctx, sc, Request{
		Environment: scope.Sandbox, SourceEnvironment: scope.Production, WindowHours: gate.WindowHours, Samples: &few,
		Baseline:   Now, // what this promotion changes, not what others have changed since
		Candidates: []Candidate{{PolicyID: p.ID, RegoCode: p.RegoCode}}, WithoutIDs: without,
	})
	if err != nil {
		return nil, err
	}
	out := &policy.Impact{
		Mode: gate.Mode, WindowHours: gate.WindowHours, Evaluated: found.Evaluated, Changed: found.Changed,
		NewlyBlocked: found.NewlyBlocked, NewlyAllowed: found.NewlyAllowed, NewlyBlockedPercent: found.NewlyBlockedPercent,
		ThresholdPercent: gate.Threshold, Exceeded: exceeds(found, gate.Threshold), Truncated: found.Truncated, Note: found.Note,
	}
	if len(found.ByRule) > 0 {
		out.Rule, out.Line = found.ByRule[0].Rule, found.ByRule[0].Line
	}
	if p.Status != policy.Active {
		out.Note = strings.Join([]string{"the control is not active; these are the figures for when it is", out.Note}, "; ")
		out.Note = strings.TrimSuffix(out.Note, "; ")
	}
	if gate.Mode != tenant.ImpactBlock || !out.Exceeded {
		return out, nil
	}
	return nil, fault.Newf(fault.Invalid, "impact_blocked",
		"%d of %d recorded decisions (%g %%) would newly be blocked, over the threshold of %g %%", found.NewlyBlocked, found.Evaluated, found.NewlyBlockedPercent, gate.Threshold).
		With("impact", out).With("samples", found.Samples)
}

// exceeds reports whether the share of newly blocked decisions is above the threshold, in percent.
// It compares the exact share, not the rounded one.
func exceeds(i Impact, threshold float64) bool {
	return i.Evaluated > 0 && float64(i.NewlyBlocked)*100 > threshold*float64(i.Evaluated)
}
