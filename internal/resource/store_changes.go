package resource

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

func insertChanges(ctx context.Context, tx *db.Tx, env scope.Env, revision int64, ids []int64) error {
	rows := make([][]any, len(ids))
	for i, id := range ids {
		rows[i] = []any{string(env), revision, id}
	}
	return db.DoRows(ctx, tx, `INSERT INTO resource_changes (environment, revision, resource_id) VALUES `, rows, "")
}

func forgetChanges(ctx context.Context, tx *db.Tx, env scope.Env, upTo int64) error {
	return tx.Do(ctx, `DELETE FROM resource_changes WHERE environment = $1 AND revision <= $2`, string(env), upTo)
}

// countChanged returns how many revisions after since changed resources.
func countChanged(ctx context.Context, tx *db.Tx, env scope.Env, since int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(DISTINCT revision) FROM resource_changes WHERE environment = $1 AND revision > $2`, string(env), since)
}

// changedSince returns at most limit ids of resources that changed after revision since.
func changedSince(ctx context.Context, tx *db.Tx, env scope.Env, since int64, limit int) ([]int64, error) {
	return db.All[int64](ctx, tx, `SELECT DISTINCT resource_id FROM resource_changes
		WHERE environment = $1 AND revision > $2 ORDER BY resource_id LIMIT $3`, string(env), since, limit)
}

// liveSince are the resources of changedSince that still exist.
func liveSince(ctx context.Context, tx *db.Tx, env scope.Env, since int64) ([]Resource, error) {
	return db.All[Resource](ctx, tx, `SELECT `+columns+` FROM resources WHERE environment = $1 AND id IN
		(SELECT resource_id FROM resource_changes WHERE environment = $1 AND revision > $2) ORDER BY id`, string(env), since)
}
