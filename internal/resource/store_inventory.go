package resource

import (
	"context"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// What is summed up or ordered here stands in the index resources_inventory, so
// that few rows are read; keep its columns in step.

// inEnv is the condition for an environment, or for both.
func inEnv(env scope.Env) (where string, args []any) {
	if env == scope.AnyEnv {
		return "r.environment IN ('production', 'sandbox')", nil
	}
	return "r.environment = $1", []any{string(env)}
}

func tallies(ctx context.Context, tx *db.Tx, env scope.Env) ([]tally, error) {
	where, args := inEnv(env)
	return db.All[tally](ctx, tx, `SELECT resource_kind, data_classification, compliance_tags, count(*) AS n FROM resources r
		WHERE `+where+` GROUP BY resource_kind, data_classification, compliance_tags`, args...)
}

// guarded are the ids of resources that active controls are bound to.
const guarded = `SELECT p.resource_id FROM policies p WHERE p.status = 'active' AND p.deleted_at IS NULL AND p.resource_id IS NOT NULL`

// countProtected needs no look at the resources: a control is in the environment
// of its resource, and a resource with a control is not deleted.
func countProtected(ctx context.Context, tx *db.Tx, env scope.Env) (int64, error) {
	where, args := inEnv(env)
	return db.One[int64](ctx, tx, `SELECT count(*) FROM (SELECT DISTINCT r.resource_id FROM policies r
		WHERE r.status = 'active' AND r.deleted_at IS NULL AND r.resource_id IS NOT NULL AND `+where+`) d`, args...)
}

// gaps is how many things a resource lacks, but for a control; it and the reasons
// of suspect.attention say the same.
const gaps = `(CASE WHEN r.auto_discovered AND r.classification_source IN ('', 'heuristic') THEN 1 ELSE 0 END
	+ CASE WHEN r.resource_kind = '' THEN 1 ELSE 0 END
	+ CASE WHEN r.data_classification = '' THEN 1 ELSE 0 END
	+ CASE WHEN r.resource_kind IN ('llm_endpoint', 'agent') AND r.ai_provider = '' THEN 1 ELSE 0 END
	+ CASE WHEN r.classification_source = 'heuristic' AND r.classification_confidence < 0.6 THEN 1 ELSE 0 END)`

const suspectColumns = `r.id, r.name, r.environment, r.resource_kind, r.data_classification, r.ai_provider, r.classification_source,
	r.classification_confidence, r.auto_discovered, EXISTS (` + guarded + ` AND p.resource_id = r.id) AS protected`

// lacking are the resources that lack most, by id among equals.
func lacking(ctx context.Context, tx *db.Tx, env scope.Env, limit int) ([]suspect, error) {
	where, args := inEnv(env)
	return db.All[suspect](ctx, tx, `SELECT `+suspectColumns+` FROM resources r
		JOIN (SELECT r.id AS worst, `+gaps+` AS missing FROM resources r WHERE `+where+` AND `+gaps+` > 0
			ORDER BY missing DESC, r.id LIMIT $`+strconv.Itoa(len(args)+1)+`) w ON w.worst = r.id
		ORDER BY w.missing DESC, r.id`, append(args, limit)...)
}

// unprotected are the first resources without a control, by id. EXCEPT costs the
// same whatever a planner believes; of NOT EXISTS with a limit PostgreSQL made a
// loop over both tables.
func unprotected(ctx context.Context, tx *db.Tx, env scope.Env, limit int) ([]suspect, error) {
	where, args := inEnv(env)
	return db.All[suspect](ctx, tx, `SELECT `+suspectColumns+` FROM resources r WHERE r.id IN
		(SELECT r.id FROM resources r WHERE `+where+` EXCEPT `+guarded+` ORDER BY 1 LIMIT $`+strconv.Itoa(len(args)+1)+`)
		ORDER BY r.id`, append(args, limit)...)
}
