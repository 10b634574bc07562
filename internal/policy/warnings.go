package policy

import (
	"context"
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Codes of the warnings of a promotion about the promoted policy and about sandbox.
const (
	warnNotEnforced = "not_enforced"
	warnTenantWide  = "tenant_wide"
	warnUncovered   = "sandbox_uncovered"
	warnShadowed    = "shadowed"
	warnActions     = "actions_left_out"
)

// maxUncovered is how many resources one warning lists.
const maxUncovered = 10

// promotionWarnings returns the unexpected consequences of a promotion from old to p. It
// runs after all changes of the promotion, in their transaction.
func promotionWarnings(ctx context.Context, tx *db.Tx, old, p Policy) ([]Warning, error) {
	var out []Warning
	add := func(kind, message string, resources ...int64) {
		out = append(out, p.warning(kind, message, resources...))
	}
	if !p.live() {
		status := "inactive"
		if p.Status == Drafted {
			status = "a draft"
		}
		effect := "it enforces nothing until it is active"
		if p.Kind == KindLibrary {
			effect = "no policy can import it until it is active"
		}
		add(warnNotEnforced, fmt.Sprintf("policy %d is %s: %s", p.ID, status, effect))
	}
	if p.Kind == KindLibrary {
		return out, nil
	}
	if p.ResourceID == nil {
		add(warnTenantWide, fmt.Sprintf("policy %d names no resource: it is tenant-wide and applies to every request of %s", p.ID, p.Environment))
	}
	shadowed, err := shadowWarnings(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	out = append(out, shadowed...)
	wide, err := countTenantWide(ctx, tx, scope.Sandbox)
	if err != nil {
		return nil, err
	}
	left, err := uncoveredBy(ctx, tx, old, wide)
	if err != nil || len(left) == 0 {
		return out, err
	}
	controls := "any control"
	if wide > 0 {
		controls = "any control but the tenant-wide ones"
	}
	ids, names := make([]int64, len(left)), make([]string, len(left))
	for i, r := range left {
		ids[i], names[i] = r.ID, fmt.Sprintf("%d (%s)", r.ID, r.Name)
	}
	what, more := "resource ", ""
	if len(left) > 1 {
		what = "resources "
	}
	if len(left) > maxUncovered {
		ids, names, more = ids[:maxUncovered], names[:maxUncovered], " and more"
	}
	add(warnUncovered, fmt.Sprintf("sandbox is left without %s for %s%s%s; a promotion with keep_in_sandbox leaves a copy there", controls, what, strings.Join(names, ", "), more), ids...)
	return out, nil
}

// uncoveredBy returns the resources that have no active control in sandbox after old left it. For a
// control with a resource, that is its resource, if no other active control is bound to it. For a
// tenant-wide control, it is every resource without a control of its own, if sandbox has no other
// tenant-wide control (wide counts them). It returns at most maxUncovered+1.
func uncoveredBy(ctx context.Context, tx *db.Tx, old Policy, wide int64) ([]uncovered, error) {
	if old.ResourceID != nil {
		return withoutControl(ctx, tx, scope.Sandbox, *old.ResourceID)
	}
	if wide > 0 || !old.live() {
		return nil, nil
	}
	return withoutControl(ctx, tx, scope.Sandbox, 0)
}

// shadowWarnings returns a warning if some requests do not reach p, because a resource that names
// a host and has no active control matches them before p's resource, which names none.
func shadowWarnings(ctx context.Context, tx *db.Tx, p Policy) ([]Warning, error) {
	if p.ResourceID == nil || p.Kind == KindLibrary {
		return nil, nil
	}
	found, err := resource.Shadows(ctx, tx, p.Environment, []int64{*p.ResourceID})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	by := found[*p.ResourceID]
	return []Warning{p.warning(warnShadowed, fmt.Sprintf("policy %d does not decide on all requests of resource %d: %s", p.ID, *p.ResourceID, by.Why), by.IDs...)}, nil
}

// warning returns a warning about p and resources.
func (p Policy) warning(kind, message string, resources ...int64) Warning {
	return Warning{Code: kind, Message: message, PolicyIDs: []int64{p.ID}, ResourceIDs: resources}
}
