package policy

import (
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Delta is the change of an environment's controls since a revision.
type Delta struct {
	// Controls are the changed controls that are active now. Removed are the ids of the changed
	// policies that are not active controls now.
	Controls []Control
	Removed  []int64
	// Revisions is the number of revisions that changed policies.
	Revisions int64
}

// ControlsSince returns the changes after a revision, up to that of the transaction. The journal
// of changes contains the last resource.KeptRevisions revisions.
func ControlsSince(ctx context.Context, tx *db.Tx, env scope.Env, since int64) (d Delta, err error) {
	if d.Revisions, err = countChanged(ctx, tx, env, since); err != nil || d.Revisions == 0 {
		return d, err
	}
	if d.Removed, err = changedSince(ctx, tx, env, since); err != nil {
		return d, err
	}
	if d.Controls, err = controlsSince(ctx, tx, env, since); err != nil {
		return d, err
	}
	for _, c := range d.Controls {
		if i, found := slices.BinarySearch(d.Removed, c.ID); found {
			d.Removed = slices.Delete(d.Removed, i, i+1)
		}
	}
	return d, nil
}

// recordChange records that a revision changed a policy. Every write to the table of policies
// must call it (see bump): snapshots are updated from these records.
func recordChange(ctx context.Context, tx *db.Tx, env scope.Env, revision, id int64) error {
	if err := insertChange(ctx, tx, env, revision, id); err != nil {
		return err
	}
	return deleteChanges(ctx, tx, env, revision-resource.KeptRevisions)
}
