package pip

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const dataRows = `SELECT c.name, d.data FROM pip_connections c JOIN pip_data d ON d.connection_id = c.id`

func allData(ctx context.Context, tx *db.Tx) ([]row, error) {
	return db.All[row](ctx, tx, dataRows+` ORDER BY c.name`)
}

// dataSince returns the data of the connections that revisions after since changed.
func dataSince(ctx context.Context, tx *db.Tx, env scope.Env, since int64) ([]row, error) {
	return db.All[row](ctx, tx, dataRows+` WHERE c.name IN (SELECT name FROM pip_changes WHERE environment = $1 AND revision > $2) ORDER BY c.name`, string(env), since)
}

func allFacts(ctx context.Context, tx *db.Tx) ([]facts, error) {
	return db.All[facts](ctx, tx, `SELECT c.name, c.records, c.last_sync_at, c.last_error FROM pip_connections c JOIN pip_data d ON d.connection_id = c.id
		WHERE c.last_sync_at IS NOT NULL ORDER BY c.name`)
}

func insertChange(ctx context.Context, tx *db.Tx, env scope.Env, revision int64, name string) error {
	return tx.Do(ctx, `INSERT INTO pip_changes (environment, revision, name) VALUES ($1, $2, $3)`, string(env), revision, name)
}

func forgetChanges(ctx context.Context, tx *db.Tx, env scope.Env, upTo int64) error {
	return tx.Do(ctx, `DELETE FROM pip_changes WHERE environment = $1 AND revision <= $2`, string(env), upTo)
}

// countChanged returns how many revisions after since changed data sources.
func countChanged(ctx context.Context, tx *db.Tx, env scope.Env, since int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(DISTINCT revision) FROM pip_changes WHERE environment = $1 AND revision > $2`, string(env), since)
}

// changedSince returns the names of the connections that revisions after since changed.
func changedSince(ctx context.Context, tx *db.Tx, env scope.Env, since int64) ([]string, error) {
	return db.All[string](ctx, tx, `SELECT DISTINCT name FROM pip_changes WHERE environment = $1 AND revision > $2 ORDER BY name`, string(env), since)
}
