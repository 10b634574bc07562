package resource

import (
	"context"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The queries here cover one environment each and use an index of migration 0080, so that
// they read few rows. Keep the two in step.

// tallies reads only the index, except for the longest lists of tags.
func tallies(ctx context.Context, tx *db.Tx, env scope.Env) ([]tally, error) {
	const of = `SELECT resource_kind, data_classification, compliance_tags, count(*) AS n FROM resources
		WHERE environment = $1 AND length(compliance_tags) `
	const by = ` GROUP BY resource_kind, data_classification, compliance_tags`
	return db.All[tally](ctx, tx, of+`<= 400`+by+` UNION ALL `+of+`> 400`+by, string(env))
}

// block is how many ids are counted together to find those without a control.
const block = 256

// part is one block of ids, from N*block on, and a number of resources in it.
type part struct {
	N     int64 `db:"part"`
	Count int64 `db:"n"`
}

// countParts returns how many resources each part has.
func countParts(ctx context.Context, tx *db.Tx, env scope.Env) ([]part, error) {
	n := strconv.Itoa(block)
	return db.All[part](ctx, tx, `SELECT id / `+n+` AS part, count(*) AS n FROM resources WHERE environment = $1
		GROUP BY id / `+n, string(env))
}

// guarding selects the ids of resources with active controls. A control is in the
// environment of its resource.
const guarding = `SELECT resource_id FROM policies WHERE environment = $1 AND status = 'active' AND deleted_at IS NULL AND resource_id IS NOT NULL`

// countGuarded returns how many resources of each part have an active control. It need not
// read the resources, because a resource with a control cannot be deleted.
func countGuarded(ctx context.Context, tx *db.Tx, env scope.Env) ([]part, error) {
	n := strconv.Itoa(block)
	return db.All[part](ctx, tx, `SELECT d.resource_id / `+n+` AS part, count(*) AS n
		FROM (SELECT DISTINCT g.resource_id FROM (`+guarding+`) g) d
		GROUP BY d.resource_id / `+n, string(env))
}

// gaps counts what a resource lacks, apart from a control. It must agree with the reasons
// of suspect.attention.
const gaps = `(CASE WHEN r.auto_discovered AND r.classification_source IN ('', 'heuristic') THEN 1 ELSE 0 END
	+ CASE WHEN r.resource_kind = '' THEN 1 ELSE 0 END
	+ CASE WHEN r.data_classification = '' THEN 1 ELSE 0 END
	+ CASE WHEN r.resource_kind IN ('llm_endpoint', 'agent') AND r.ai_provider = '' THEN 1 ELSE 0 END
	+ CASE WHEN r.classification_source = 'heuristic' AND r.classification_confidence < 0.6 THEN 1 ELSE 0 END)`

const suspectColumns = `r.id, r.name, r.environment, r.resource_kind, r.data_classification, r.ai_provider, r.classification_source,
	r.classification_confidence, r.auto_discovered, EXISTS (SELECT 1 FROM policies p
		WHERE p.status = 'active' AND p.deleted_at IS NULL AND p.resource_id = r.id) AS protected`

// incomplete returns the resources that lack most, then by id.
func incomplete(ctx context.Context, tx *db.Tx, env scope.Env, limit int) ([]suspect, error) {
	return db.All[suspect](ctx, tx, `SELECT `+suspectColumns+` FROM resources r WHERE r.id IN
		(SELECT r.id FROM resources r WHERE r.environment = $1 AND `+gaps+` > 0 ORDER BY `+gaps+` DESC, r.id LIMIT $2)
		ORDER BY `+gaps+` DESC, r.id`, string(env), limit)
}

// unprotected are the first resources without a control among the ids from first to last.
// EXCEPT costs the same whatever the planner estimates. PostgreSQL turned NOT EXISTS with
// a limit into a loop over both tables.
func unprotected(ctx context.Context, tx *db.Tx, env scope.Env, first, last int64, limit int) ([]suspect, error) {
	return db.All[suspect](ctx, tx, `SELECT `+suspectColumns+` FROM resources r WHERE r.id IN
		(SELECT id FROM resources WHERE environment = $1 AND id BETWEEN $2 AND $3
			EXCEPT `+guarding+` AND resource_id BETWEEN $2 AND $3 ORDER BY 1 LIMIT $4)
		ORDER BY r.id`, string(env), first, last, limit)
}
