package resource

import (
	"context"
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// KeptRevisions is how many revisions the journal of changes covers.
	KeptRevisions = 1000
	// maxDelta is the largest number of changed resources that are updated one by one.
	maxDelta = 5000
)

// Delta is what changed in an environment's resources between two revisions.
type Delta struct {
	// Docs are new or changed resources. Removed are the ids of deleted ones.
	Docs    []rego.Resource
	Removed []int64
	// Revisions is how many of the revisions changed resources. The others changed
	// controls or modes.
	Revisions int64
}

// noteChanged increases the environment's revision, adds the changed resources to the
// journal, and stores their current state (Past). Call it before the change; for new
// resources call noteCreated. Every write to the table of resources calls one of the two in
// its transaction. Otherwise snapshots that are updated from the journal would miss the
// change. Transactions that increase the revision wait for each other, so the journal has no
// gaps.
func (s *Service) noteChanged(ctx context.Context, tx *db.Tx, env scope.Env, ids ...int64) error {
	revision, err := note(ctx, tx, env, ids)
	if err != nil {
		return err
	}
	return storePast(ctx, tx, env, revision, s.Now())
}

// noteCreated is noteChanged for resources that the transaction creates.
func (s *Service) noteCreated(ctx context.Context, tx *db.Tx, env scope.Env, ids ...int64) error {
	revision, err := note(ctx, tx, env, ids)
	if err != nil {
		return err
	}
	return storeAbsence(ctx, tx, env, revision, s.Now())
}

func note(ctx context.Context, tx *db.Tx, env scope.Env, ids []int64) (revision int64, err error) {
	if revision, err = tx.Bump(ctx, Revision(env)); err != nil {
		return 0, err
	}
	if err := insertChanges(ctx, tx, env, revision, ids); err != nil {
		return 0, err
	}
	return revision, forgetChanges(ctx, tx, env, revision-KeptRevisions)
}

// DocsSince returns what changed after revision since, up to now, the transaction's
// revision. ok is false if the journal does not go back that far, or if so much changed that
// reading everything (Docs) is faster.
func DocsSince(ctx context.Context, tx *db.Tx, env scope.Env, since, now int64) (d Delta, ok bool, err error) {
	if since > now || now-since > KeptRevisions {
		return d, false, nil
	}
	d.Revisions, err = countChanged(ctx, tx, env, since)
	if err != nil {
		return d, false, err
	}
	if d.Revisions == 0 {
		return d, true, nil
	}
	ids, err := changedSince(ctx, tx, env, since, maxDelta+1)
	if err != nil || len(ids) > maxDelta {
		return d, false, err
	}
	live, err := liveSince(ctx, tx, env, since)
	if err != nil {
		return d, false, err
	}
	for _, r := range live {
		doc, err := r.Doc()
		if err != nil {
			return d, false, fmt.Errorf("resource %d: %w", r.ID, err)
		}
		d.Docs = append(d.Docs, doc)
		if i, found := slices.BinarySearch(ids, r.ID); found {
			ids = slices.Delete(ids, i, i+1)
		}
	}
	d.Removed = ids
	return d, true, nil
}
