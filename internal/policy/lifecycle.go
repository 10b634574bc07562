package policy

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Delete deletes a control: reads and decisions ignore it at once. It can be restored. With hard,
// the control and its versions are removed for good, also if it is deleted already. Faults:
// NotFound, Precondition.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id int64, hard bool, ifVersion int64) (time.Time, error) {
	var at time.Time
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := loadAny(ctx, tx, sc, id)
		if err == nil && old.DeletedAt != nil && !hard {
			err = fault.NotFoundf("no such policy")
		}
		if err == nil {
			err = fault.CheckVersion("policy", old.Version, ifVersion)
		}
		if err != nil {
			return err
		}
		at = db.Stamp(s.Now())
		next := old
		next.Version, next.UpdatedAt, next.DeletedAt = old.Version+1, at, &at
		st := step{verb: "deleted"}
		if hard {
			st = step{verb: "erased", extra: map[string]any{"hard_delete": true}}
			err = erase(ctx, tx, id)
		} else {
			_, err = update(ctx, tx, next)
		}
		if err != nil {
			return err
		}
		if err := s.record(ctx, tx, sc, old, next, st); err != nil || old.DeletedAt != nil {
			return err
		}
		return s.Tenants.UpdateUsageAlerts(ctx, tx, tenant.Policies)
	})
	return at, err
}

// Restore restores a soft-deleted control as it was. If its resource or bouncer has been
// removed since, it comes back inactive and without links, because without its resource it
// would be tenant-wide. Fault: Conflict if it is not deleted.
func (s *Service) Restore(ctx context.Context, sc scope.Scope, id int64) (Policy, error) {
	var p Policy
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := loadAny(ctx, tx, sc, id)
		if err != nil {
			return err
		}
		if old.DeletedAt == nil {
			return fault.New(fault.Conflict, "not_deleted", "the policy is not deleted")
		}
		if err := s.Tenants.CheckLimit(ctx, tx, tenant.Policies, 1); err != nil {
			return err
		}
		next := old
		next.Version, next.UpdatedAt, next.DeletedAt = old.Version+1, s.Now(), nil
		if err := s.dropDeadLinks(ctx, tx, &next); err != nil {
			return err
		}
		if p, err = update(ctx, tx, next); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, old, p, step{verb: "restored"})
	})
	p.Content = p.shownTo(sc)
	return p, err
}

// dropDeadLinks removes links to objects that no longer exist. If it removes one, it deactivates
// the control.
func (l *Links) dropDeadLinks(ctx context.Context, tx *db.Tx, p *Policy) error {
	for _, link := range []struct {
		id  **int64
		env func(context.Context, *db.Tx, int64) (scope.Env, error)
	}{{&p.ResourceID, resource.EnvironmentOf}, {&p.BouncerID, l.BouncerEnv}} {
		if *link.id == nil {
			continue
		}
		env, err := link.env(ctx, tx, **link.id)
		if err != nil && !isNotFound(err) {
			return err
		}
		if err != nil || env != p.Environment {
			*link.id = nil
			if p.Status == Active {
				p.Status = Inactive
			}
		}
	}
	return nil
}

// loadAny returns one control in the scope, deleted or not. Fault: NotFound.
func loadAny(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (Policy, error) {
	p, err := get(ctx, tx, id)
	return db.Found(p, err, sc.Sees(p.Environment), "policy")
}

// ByResource returns the live controls bound to each resource with an id from first to
// last.
func ByResource(ctx context.Context, tx *db.Tx, first, last int64) (map[int64][]int64, error) {
	links, err := listBoundTo(ctx, tx, first, last)
	out := map[int64][]int64{}
	for _, l := range links {
		out[l.Resource] = append(out[l.Resource], l.Policy)
	}
	return out, err
}

// LinksOfBouncer returns the live controls that name a bouncer, and the resources that
// those controls are bound to, without duplicates and sorted by id.
func LinksOfBouncer(ctx context.Context, tx *db.Tx, bouncer int64) (policies, resources []int64, err error) {
	links, err := byBouncer(ctx, tx, bouncer)
	seen := map[int64]struct{}{}
	policies = []int64{}
	for _, l := range links {
		policies = append(policies, l.Policy)
		if l.Resource != 0 {
			seen[l.Resource] = struct{}{}
		}
	}
	return policies, sortedKeys(seen), err
}

// BouncerLinks returns, for each bouncer that live controls of an environment name, the
// resources that those controls are bound to, sorted by id.
func BouncerLinks(ctx context.Context, tx *db.Tx, env scope.Env) (map[int64][]int64, error) {
	links, err := bouncerLinks(ctx, tx, env)
	out := map[int64][]int64{}
	for _, l := range links {
		out[l.Bouncer] = append(out[l.Bouncer], l.Resource)
	}
	return out, err
}

// Exists reports whether there is a policy of an id that is not deleted.
func Exists(ctx context.Context, tx *db.Tx, id int64) (bool, error) {
	p, err := get(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	return err == nil && p.DeletedAt == nil, err
}

// EnvironmentOf returns the environment of a policy that is not deleted, else NotFound.
func EnvironmentOf(ctx context.Context, tx *db.Tx, id int64) (scope.Env, error) {
	p, err := get(ctx, tx, id)
	return db.Found(p.Environment, err, p.DeletedAt == nil, "policy")
}
