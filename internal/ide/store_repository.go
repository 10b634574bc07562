package ide

import (
	"context"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

const repositoryColumns = `id, name, url, branch, path, resource_id, bouncer_id, enabled, secret, access_token, change_no, created_by, created_at, updated_at`

func repository(ctx context.Context, tx *db.Tx, id int64) (Repository, error) {
	return db.One[Repository](ctx, tx, `SELECT `+repositoryColumns+` FROM ide_repositories WHERE id = $1`, id)
}

func repositories(ctx context.Context, tx *db.Tx, skip, limit int64) ([]Repository, error) {
	return db.All[Repository](ctx, tx, `SELECT `+repositoryColumns+` FROM ide_repositories ORDER BY id LIMIT $1 OFFSET $2`, limit, skip)
}

func countRepositories(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM ide_repositories`)
}

func insertRepository(ctx context.Context, tx *db.Tx, r Repository) (Repository, error) {
	return db.One[Repository](ctx, tx, `INSERT INTO ide_repositories
			(name, url, branch, path, resource_id, bouncer_id, enabled, secret, access_token, change_no, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12) RETURNING `+repositoryColumns,
		r.Name, r.URL, r.Branch, r.Path, r.ResourceID, r.BouncerID, r.Enabled, r.Secret, r.Token, r.ChangeNo, r.CreatedBy, r.CreatedAt)
}

func updateRepository(ctx context.Context, tx *db.Tx, r Repository) (Repository, error) {
	return db.One[Repository](ctx, tx, `UPDATE ide_repositories SET name = $1, url = $2, branch = $3, path = $4, resource_id = $5, bouncer_id = $6,
			enabled = $7, secret = $8, access_token = $9, change_no = $10, updated_at = $11 WHERE id = $12 RETURNING `+repositoryColumns,
		r.Name, r.URL, r.Branch, r.Path, r.ResourceID, r.BouncerID, r.Enabled, r.Secret, r.Token, r.ChangeNo, r.UpdatedAt, r.ID)
}

func deleteRepository(ctx context.Context, tx *db.Tx, id int64) error {
	return tx.Do(ctx, `DELETE FROM ide_repositories WHERE id = $1`, id)
}

const deploymentColumns = `id, repository_id, source, event_type, status, branch, commit_hash, result, created_by, created_at, finished_at`

func insertDeployment(ctx context.Context, tx *db.Tx, d Deployment, request string) error {
	return tx.Do(ctx, `INSERT INTO ide_deployments
			(id, repository_id, source, event_type, status, branch, commit_hash, request, result, created_by, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		d.ID, d.RepositoryID, d.Source, d.EventType, d.Status, d.Branch, d.CommitHash, request, d.Outcome, d.CreatedBy, d.CreatedAt)
}

func deployment(ctx context.Context, tx *db.Tx, id string) (Deployment, error) {
	return db.One[Deployment](ctx, tx, `SELECT `+deploymentColumns+` FROM ide_deployments WHERE id = $1`, id)
}

// deployments returns one page of a repository's deployments, or of all if repository is 0.
func deployments(ctx context.Context, tx *db.Tx, repository, skip, limit int64) ([]Deployment, error) {
	return db.All[Deployment](ctx, tx, `SELECT `+deploymentColumns+` FROM ide_deployments
		WHERE ($1 = 0 OR repository_id = $1) ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, repository, limit, skip)
}

func countDeployments(ctx context.Context, tx *db.Tx, repository int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM ide_deployments WHERE ($1 = 0 OR repository_id = $1)`, repository)
}

func deploymentRequest(ctx context.Context, tx *db.Tx, id string) (string, error) {
	return db.One[string](ctx, tx, `SELECT request FROM ide_deployments WHERE id = $1`, id)
}

// finishDeployment ends a running deployment. It changes no row if the deployment had ended.
func finishDeployment(ctx context.Context, tx *db.Tx, id, status string, o Outcome, now time.Time) (int64, error) {
	return tx.Exec(ctx, `UPDATE ide_deployments SET status = $1, result = $2, finished_at = $3, request = '' WHERE id = $4 AND status = 'in_progress'`, status, o, now, id)
}

// setCommit stores the commit that a deployment fetched, if the delivery named none.
func setCommit(ctx context.Context, tx *db.Tx, id, commit string) error {
	return tx.Do(ctx, `UPDATE ide_deployments SET commit_hash = $1 WHERE id = $2`, commit, id)
}

// runningSync returns the running synchronisation of a repository.
func runningSync(ctx context.Context, tx *db.Tx, repository int64) (Deployment, error) {
	return db.One[Deployment](ctx, tx, `SELECT `+deploymentColumns+` FROM ide_deployments
		WHERE repository_id = $1 AND event_type = 'deploy' AND status = 'in_progress' ORDER BY created_at DESC LIMIT 1`, repository)
}

func dropOldDeployments(ctx context.Context, tx *db.Tx, before time.Time) error {
	if err := tx.Do(ctx, `DELETE FROM ide_deployments WHERE created_at < $1`, before); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM ide_deliveries WHERE received_at < $1`, before.Add(-keepDeployments))
}

// knownDelivery returns the deployment that a delivery started.
func knownDelivery(ctx context.Context, tx *db.Tx, digest string) (string, error) {
	return db.One[string](ctx, tx, `SELECT deployment_id FROM ide_deliveries WHERE digest = $1`, digest)
}

func insertDelivery(ctx context.Context, tx *db.Tx, digest, deployment string, now time.Time) error {
	return tx.Do(ctx, `INSERT INTO ide_deliveries (digest, deployment_id, received_at) VALUES ($1, $2, $3) ON CONFLICT (digest) DO NOTHING`, digest, deployment, now)
}

// forgetDeliveries deletes the digests of a deployment's delivery, so that it can be sent again.
func forgetDeliveries(ctx context.Context, tx *db.Tx, deployment string) error {
	return tx.Do(ctx, `DELETE FROM ide_deliveries WHERE deployment_id = $1`, deployment)
}

// Secrets declares the secrets and access tokens of repositories, for package reseal.
func (s *Service) Secrets() []reseal.Column {
	at := func(member string) func(scope.TenantID, any) string {
		return reseal.ByID(func(t scope.TenantID, id int64) string {
			return seal(scope.Scope{Tenant: t}, strconv.FormatInt(id, 10), member)
		})
	}
	return []reseal.Column{
		{Table: "ide_repositories", Name: "secret", Key: "id", Box: s.Box, Place: at("secret")},
		{Table: "ide_repositories", Name: "access_token", Key: "id", Box: s.Box, Place: at("access_token")},
	}
}
