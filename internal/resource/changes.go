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
	// KeptRevisions is for how many revisions back the journal reaches.
	KeptRevisions = 1000
	// maxDelta is how many resources are worth bringing up to date one by one.
	maxDelta = 5000
)

// Delta is what became of an environment's resources between two revisions.
type Delta struct {
	// Docs are new or changed resources, Removed the ids of those that are gone.
	Docs    []rego.Resource
	Removed []int64
	// Revisions is how many of the revisions were about resources. The others were
	// about something else: controls, or a mode of enforcement.
	Revisions int64
}

// noteChanged bumps the environment's revision, notes which resources it is about, and
// keeps what they are until now (Past). It comes before the change, for what is
// not kept by then is gone; of new resources there is nothing yet (born). Every
// write to the table of resources goes through one of the two in its transaction:
// what is not noted would be missing from every snapshot that is brought up to
// date. Transactions that bump wait for each other, so the journal has no gaps.
func (s *Service) noteChanged(ctx context.Context, tx *db.Tx, env scope.Env, ids ...int64) error {
	revision, err := note(ctx, tx, env, ids)
	if err != nil {
		return err
	}
	return keepPast(ctx, tx, env, revision, s.Now())
}

// noteCreated is touch for resources that the transaction made: until now they were not
// there.
func (s *Service) noteCreated(ctx context.Context, tx *db.Tx, env scope.Env, ids ...int64) error {
	revision, err := note(ctx, tx, env, ids)
	if err != nil {
		return err
	}
	return keepAbsence(ctx, tx, env, revision, s.Now())
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

// DocsSince gives what changed after a revision, up to that of the transaction,
// now. ok is false where the journal does not reach back so far or so much
// changed that reading everything (Docs) is the shorter way.
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
