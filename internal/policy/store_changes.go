package policy

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

func insertChange(ctx context.Context, tx *db.Tx, env scope.Env, revision, id int64) error {
	return tx.Do(ctx, `INSERT INTO control_changes (environment, revision, policy_id) VALUES ($1, $2, $3)`, string(env), revision, id)
}

func deleteChanges(ctx context.Context, tx *db.Tx, env scope.Env, upTo int64) error {
	return tx.Do(ctx, `DELETE FROM control_changes WHERE environment = $1 AND revision <= $2`, string(env), upTo)
}

// countChanged returns how many revisions after since changed policies.
func countChanged(ctx context.Context, tx *db.Tx, env scope.Env, since int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(DISTINCT revision) FROM control_changes WHERE environment = $1 AND revision > $2`, string(env), since)
}

// changedSince returns the ids of the policies that revisions after since changed, sorted.
func changedSince(ctx context.Context, tx *db.Tx, env scope.Env, since int64) ([]int64, error) {
	return db.All[int64](ctx, tx, `SELECT DISTINCT policy_id FROM control_changes WHERE environment = $1 AND revision > $2 ORDER BY policy_id`,
		string(env), since)
}

// controlsSince returns those of changedSince that are active controls.
func controlsSince(ctx context.Context, tx *db.Tx, env scope.Env, since int64) ([]Control, error) {
	return db.All[Control](ctx, tx, liveControls+`AND id IN
		(SELECT policy_id FROM control_changes WHERE environment = $1 AND revision > $2) ORDER BY id`, string(env), since)
}
