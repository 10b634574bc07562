package policycode

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

func saveOrigin(ctx context.Context, tx *db.Tx, o Origin) error {
	return tx.Do(ctx, `INSERT INTO policy_origins (policy_id, path, repository, commit_hash, version, deployment_id, deployed_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (policy_id) DO UPDATE SET path = excluded.path, repository = excluded.repository, commit_hash = excluded.commit_hash,
			version = excluded.version, deployment_id = excluded.deployment_id, deployed_at = excluded.deployed_at`,
		o.PolicyID, o.Path, o.Repository, o.Commit, o.Version, o.DeploymentID, o.DeployedAt)
}

// RecordCopy gives the copy that a promotion leaves in sandbox the origin of the promoted policy,
// so that drift and pull treat the copy like that policy. Version 1 of the copy is what was deployed,
// unless the policy was changed since: then no version is (0).
func RecordCopy(ctx context.Context, tx *db.Tx, from, to int64) error {
	return tx.Do(ctx, `INSERT INTO policy_origins (policy_id, path, repository, commit_hash, version, deployment_id, deployed_at)
		SELECT CAST($2 AS BIGINT), o.path, o.repository, o.commit_hash,
			CASE WHEN EXISTS (SELECT 1 FROM policy_versions v WHERE v.policy_id = o.policy_id AND v.version > o.version AND v.change <> 'promoted')
				THEN 0 ELSE 1 END, o.deployment_id, o.deployed_at
		FROM policy_origins o WHERE o.policy_id = $1`, from, to)
}

// origins returns the origins of all controls that have one, by the control's id.
func origins(ctx context.Context, tx *db.Tx) (map[int64]Origin, error) {
	all, err := db.All[Origin](ctx, tx, `SELECT policy_id, path, repository, commit_hash, version, deployment_id, deployed_at FROM policy_origins`)
	out := make(map[int64]Origin, len(all))
	for _, o := range all {
		out[o.PolicyID] = o
	}
	return out, err
}

// saveDeployment stores a deployment, and deletes those from before keepSince.
func saveDeployment(ctx context.Context, tx *db.Tx, d Deployment, by string, at, keepSince time.Time) error {
	if err := tx.Do(ctx, `DELETE FROM policy_deployments WHERE created_at < $1`, keepSince); err != nil {
		return err
	}
	return tx.Do(ctx, `INSERT INTO policy_deployments (id, repository, commit_hash, report, created_by, created_at)
		VALUES ($1, $2, $3, $4, $5, $6)`, d.ID, d.Repository, d.Commit, d, by, at)
}

// deploymentRow is a deployment as it is stored.
type deploymentRow struct {
	Report Deployment `db:"report"`
}

func deployment(ctx context.Context, tx *db.Tx, id string) (Deployment, error) {
	row, err := db.One[deploymentRow](ctx, tx, `SELECT report FROM policy_deployments WHERE id = $1`, id)
	return row.Report, err
}
