package simulator

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// A scenario exists as long as its control. The scenario of a deleted control, or of a control of
// the other environment, is not found.
const scenarios = `SELECT s.id, s.name, s.description, s.policy_id, p.name AS policy_name, s.attributes, s.created_at, s.last_used, s.created_by
	FROM simulation_scenarios s JOIN policies p ON p.id = s.policy_id
	WHERE p.deleted_at IS NULL AND ($1 = '' OR p.environment = $1) `

func getScenario(ctx context.Context, tx *db.Tx, env scope.Env, id int64) (Scenario, error) {
	return db.One[Scenario](ctx, tx, scenarios+`AND s.id = $2`, string(env), id)
}

// listScenarios returns the scenarios of a control, or all for 0.
func listScenarios(ctx context.Context, tx *db.Tx, env scope.Env, policy int64) ([]Scenario, error) {
	return db.All[Scenario](ctx, tx, scenarios+`AND (CAST($2 AS BIGINT) = 0 OR s.policy_id = $2) ORDER BY s.id`, string(env), policy)
}

func countScenarios(ctx context.Context, tx *db.Tx, policy int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM simulation_scenarios WHERE policy_id = $1`, policy)
}

func insertScenario(ctx context.Context, tx *db.Tx, s Scenario) (int64, error) {
	return db.One[int64](ctx, tx, `INSERT INTO simulation_scenarios (policy_id, name, description, attributes, created_by, created_at)
		VALUES ($1, $2, $3, $4, $5, $6) RETURNING id`, s.PolicyID, s.Name, s.Description, s.Attributes, s.CreatedBy, s.CreatedAt)
}

func updateScenario(ctx context.Context, tx *db.Tx, s Scenario) error {
	return tx.Do(ctx, `UPDATE simulation_scenarios SET policy_id = $1, name = $2, description = $3, attributes = $4 WHERE id = $5`,
		s.PolicyID, s.Name, s.Description, s.Attributes, s.ID)
}

func useScenario(ctx context.Context, tx *db.Tx, id int64, at time.Time) error {
	return tx.Do(ctx, `UPDATE simulation_scenarios SET last_used = $1 WHERE id = $2`, at, id)
}

func deleteScenario(ctx context.Context, tx *db.Tx, id int64) error {
	return tx.Do(ctx, `DELETE FROM simulation_scenarios WHERE id = $1`, id)
}

// pruneOrphans removes scenarios whose control was deleted for good.
func pruneOrphans(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM simulation_scenarios WHERE id IN (SELECT id FROM simulation_scenarios
		WHERE policy_id NOT IN (SELECT id FROM policies) LIMIT $1)`, n)
}
