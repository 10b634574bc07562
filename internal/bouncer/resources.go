package bouncer

import (
	"context"
	"errors"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxResources is how many resources a bouncer lists (Draft.ResourceIDs).
const maxResources = 1000

// AddResources adds resources to the list of the bouncer that discovered them, so that their
// controls are delivered to it as soon as there are any. It keeps the existing list, and adds
// nothing beyond the limit: the operator links the rest. The caller's transaction holds
// resource.Lock.
func (s *Service) AddResources(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64, resources []int64) error {
	old, err := get(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		return nil // the bouncer was deleted meanwhile; its last report still counts
	}
	if err != nil {
		return err
	}
	list := slices.Clone(old.ResourceIDs)
	for _, r := range resources {
		if len(list) < maxResources && !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	return s.updateResources(ctx, tx, sc, old, list)
}

// RemoveResource removes a deleted resource from the lists of all bouncers. The caller's
// transaction holds resource.Lock.
func (s *Service) RemoveResource(ctx context.Context, tx *db.Tx, sc scope.Scope, resourceID int64) error {
	bs, err := InEnvironment(ctx, tx, scope.AnyEnv)
	if err != nil {
		return err
	}
	for _, b := range bs {
		list := slices.DeleteFunc(slices.Clone(b.ResourceIDs), func(id int64) bool { return id == resourceID })
		if err := s.updateResources(ctx, tx, sc, b, list); err != nil {
			return err
		}
	}
	return nil
}

// updateResources writes a bouncer's list if it differs. UpdatedAt stays, because no person changed
// the bouncer.
func (s *Service) updateResources(ctx context.Context, tx *db.Tx, sc scope.Scope, old Bouncer, list []int64) error {
	if len(list) == len(old.ResourceIDs) {
		return nil
	}
	next := old
	next.ResourceIDs, next.ChangeNo = list, old.ChangeNo+1
	if _, err := update(ctx, tx, next); err != nil {
		return err
	}
	return s.record(ctx, tx, sc, next, "BOUNCER_UPDATED", changesOf(old, next))
}
