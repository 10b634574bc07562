package resource

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// pastColumns are the columns of a resource that Doc reads.
const pastColumns = `environment, id, name, type, path, methods, original_host, url, attributes, description, resource_kind,
	data_classification, compliance_tags, audit_level, sla_tier, data_residency, owner_team, owner_email, business_context,
	ai_provider, ai_model_family, mcp_protocol_version, agent_capabilities, pii_categories, egress_destinations, tags,
	path_matching`

// storePast stores the resources of a revision as they are before it.
func storePast(ctx context.Context, tx *db.Tx, env scope.Env, revision int64, at time.Time) error {
	return tx.Do(ctx, `INSERT INTO resource_past (until_revision, until_at, existed, `+pastColumns+`)
		SELECT CAST($2 AS BIGINT), CAST($3 AS BIGINT), TRUE, `+pastColumns+` FROM resources
		WHERE id IN (SELECT resource_id FROM resource_changes WHERE environment = $1 AND revision = $2)`, string(env), revision, at)
}

// storeAbsence records that the resources of a revision did not exist before it.
func storeAbsence(ctx context.Context, tx *db.Tx, env scope.Env, revision int64, at time.Time) error {
	return tx.Do(ctx, `INSERT INTO resource_past (until_revision, until_at, existed, environment, id)
		SELECT revision, CAST($3 AS BIGINT), FALSE, environment, resource_id FROM resource_changes
		WHERE environment = $1 AND revision = $2`, string(env), revision, at)
}

// pastRows are the past states, newest first.
func pastRows(ctx context.Context, tx *db.Tx, env scope.Env, from time.Time, upTo int64) iter.Seq2[pastRow, error] {
	return db.Rows[pastRow](ctx, tx, `SELECT until_revision, until_at, existed, `+pastColumns+` FROM resource_past
		WHERE environment = $1 AND until_revision <= $2 AND until_at >= $3 ORDER BY until_revision DESC, id`, string(env), upTo, from)
}

// forgetPast deletes the states of the oldest revisions that ended before a time.
func forgetPast(ctx context.Context, tx *db.Tx, env scope.Env, before time.Time, revisions int64) (int64, error) {
	oldest, err := db.One[pastRow](ctx, tx, `SELECT until_revision, until_at FROM resource_past
		WHERE environment = $1 ORDER BY until_revision LIMIT 1`, string(env))
	if errors.Is(err, db.ErrNoRows) || err == nil && !oldest.At.Before(before) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return tx.Exec(ctx, `DELETE FROM resource_past WHERE environment = $1 AND until_revision < $2 AND until_at < $3`,
		string(env), oldest.Revision+revisions, before)
}
