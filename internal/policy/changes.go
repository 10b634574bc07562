package policy

import (
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Delta is what became of an environment's controls since a revision.
type Delta struct {
	// Controls are active ones that were touched, Removed the ids of touched
	// policies that are none (any more).
	Controls []Control
	Removed  []int64
	// Revisions is how many of the revisions were about policies.
	Revisions int64
}

// ControlsSince gives what changed after a revision, up to that of the
// transaction. The journal reaches as far back as that of resources.
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

// noteChange notes that a revision is about a policy. Every write to the table of
// policies goes through it (bump): what is not noted would be missing from every
// snapshot that is brought up to date.
func noteChange(ctx context.Context, tx *db.Tx, env scope.Env, revision, id int64) error {
	if err := insertChange(ctx, tx, env, revision, id); err != nil {
		return err
	}
	return forgetChanges(ctx, tx, env, revision-resource.KeptRevisions)
}
