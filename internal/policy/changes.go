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
	// Controls are the touched controls that are active, Removed the ids of touched
	// policies that are not active controls (any more).
	Controls []Control
	Removed  []int64
	// Revisions is how many of the revisions concerned policies.
	Revisions int64
}

// ControlsSince returns the changes after a revision, up to that of the transaction. Its
// journal reaches as far back as that of resources.
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

// noteChange records that a revision concerns a policy. Every write to the table of
// policies calls it (bump): a change that is not recorded would be missing from every
// snapshot that is updated.
func noteChange(ctx context.Context, tx *db.Tx, env scope.Env, revision, id int64) error {
	if err := insertChange(ctx, tx, env, revision, id); err != nil {
		return err
	}
	return forgetChanges(ctx, tx, env, revision-resource.KeptRevisions)
}
