package resource

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// toClassify are those that bulk classification comes to next: never classified
// ones, then those classified longest ago, so that repeated calls go round.
func toClassify(ctx context.Context, tx *db.Tx, env scope.Env, limit int64) ([]Resource, error) {
	return db.All[Resource](ctx, tx, `SELECT `+columns+` FROM resources
		WHERE environment = $1 AND classification_source IN ('', 'heuristic')
		ORDER BY COALESCE(last_classified_at, 0), id LIMIT $2`, string(env), limit)
}

// countDecided are those that a person or the assistant classified.
func countDecided(ctx context.Context, tx *db.Tx, env scope.Env) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM resources WHERE environment = $1 AND classification_source NOT IN ('', 'heuristic')`, string(env))
}

// updateClassification writes the members that a bulk classification may change.
func updateClassification(ctx context.Context, tx *db.Tx, r Resource) error {
	_, err := tx.Exec(ctx, `UPDATE resources SET resource_kind = $1, data_classification = $2, compliance_tags = $3, ai_provider = $4,
			ai_model_family = $5, mcp_protocol_version = $6, agent_capabilities = $7, pii_categories = $8, egress_destinations = $9,
			classification_source = $10, classification_confidence = $11, last_classified_at = $12, tags = $13, version = $14, updated_at = $15
		WHERE id = $16`,
		r.Kind, r.DataClassification, r.ComplianceTags, r.AIProvider, r.AIModelFamily, r.MCPProtocolVersion, r.AgentCapabilities,
		r.PIICategories, r.EgressDestinations, r.Source, r.Confidence, r.LastClassifiedAt, r.Classification.Tags, r.Version, r.UpdatedAt, r.ID)
	return err
}

// markClassified notes that resources were looked at again and stay as they are.
func markClassified(ctx context.Context, tx *db.Tx, ids []int64, at time.Time) error {
	args, places := []any{at}, make([]string, len(ids))
	for i, id := range ids {
		args = append(args, id)
		places[i] = "$" + strconv.Itoa(len(args))
	}
	_, err := tx.Exec(ctx, `UPDATE resources SET last_classified_at = $1 WHERE id IN (`+strings.Join(places, ", ")+`)`, args...)
	return err
}
