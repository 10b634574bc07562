package resource

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// nextToClassify are the next resources of a bulk classification: those never classified,
// then those classified longest ago, so that repeated calls reach all.
func nextToClassify(ctx context.Context, tx *db.Tx, env scope.Env, limit int64) ([]Resource, error) {
	return db.All[Resource](ctx, tx, `SELECT `+columns+` FROM resources
		WHERE environment = $1 AND classification_source IN ('', 'heuristic')
		ORDER BY COALESCE(last_classified_at, 0), id LIMIT $2`, string(env), limit)
}

// countDecided returns how many resources a person or the assistant classified. The query
// names the sources, because NOT IN would read the whole index.
func countDecided(ctx context.Context, tx *db.Tx, env scope.Env) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM resources WHERE environment = $1 AND classification_source IN ('manual', 'assist')`, string(env))
}

// updateClassifications writes the members that a bulk classification may change.
func updateClassifications(ctx context.Context, tx *db.Tx, rs []Resource) error {
	rows := make([][]any, len(rs))
	for i, r := range rs {
		rows[i] = []any{
			r.ID, r.Kind, r.DataClassification, r.ComplianceTags, r.AIProvider, r.AIModelFamily, r.MCPProtocolVersion, r.AgentCapabilities,
			r.PIICategories, r.EgressDestinations, r.Source, r.Confidence, r.LastClassifiedAt, r.Classification.Tags, r.Version, r.UpdatedAt,
		}
	}
	n, err := db.ExecRows(ctx, tx, `WITH v(id, kind, level, compliance, provider, family, protocol, capabilities,
			pii, egress, source, confidence, classified_at, tags, version, updated_at) AS (VALUES `, rows, `)
		UPDATE resources SET resource_kind = v.kind, data_classification = v.level, compliance_tags = v.compliance, ai_provider = v.provider,
			ai_model_family = v.family, mcp_protocol_version = v.protocol, agent_capabilities = v.capabilities, pii_categories = v.pii,
			egress_destinations = v.egress, classification_source = v.source, classification_confidence = v.confidence,
			last_classified_at = v.classified_at, tags = v.tags, version = v.version, updated_at = v.updated_at
		FROM v WHERE resources.id = v.id`,
		"BIGINT", "TEXT", "TEXT", "TEXT", "TEXT", "TEXT", "TEXT", "TEXT", "TEXT", "TEXT", "TEXT", "DOUBLE PRECISION", "BIGINT", "TEXT", "BIGINT", "BIGINT")
	if err == nil && n != int64(len(rs)) {
		return fmt.Errorf("%d of %d resources were there to be classified", n, len(rs))
	}
	return err
}

// markClassified notes that resources were examined and did not change.
func markClassified(ctx context.Context, tx *db.Tx, ids []int64, at time.Time) error {
	rows := make([][]any, len(ids))
	for i, id := range ids {
		rows[i] = []any{id, at}
	}
	return db.DoRows(ctx, tx, `WITH v(id, classified_at) AS (VALUES `, rows, `)
		UPDATE resources SET last_classified_at = v.classified_at FROM v WHERE resources.id = v.id`, "BIGINT", "BIGINT")
}
