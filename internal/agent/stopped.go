package agent

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Stopped returns the agents of a tenant whose requests are refused: those that are inactive, and
// those that were removed, because ids are never given out again. It changes only together with the
// revisions of both environments.
func Stopped(ctx context.Context, tx *db.Tx) (actor.Stopped, error) {
	last, err := lastID(ctx, tx)
	if err != nil || last == 0 {
		return actor.Stopped{}, err
	}
	active, err := activeIDs(ctx, tx)
	return actor.StoppedBut(active, last), err
}

// noteStopped increments the revisions of both environments, and records that the agents that are
// stopped changed. Agents belong to no environment.
func noteStopped(ctx context.Context, tx *db.Tx) error {
	for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
		revision, err := tx.Bump(ctx, resource.Revision(env))
		if err != nil {
			return err
		}
		if err := insertChange(ctx, tx, env, revision, revision-resource.KeptRevisions); err != nil {
			return err
		}
	}
	return nil
}
