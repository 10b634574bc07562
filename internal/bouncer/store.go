package bouncer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

const columns = `id, name, hostname, port, environment, target_app, configuration, resource_ids, token_digest, token_issued_at,
	change_no, created_at, updated_at, status, status_detail, last_heartbeat, version, policies_synced, requests_per_second,
	cache_hit_rate, target_app_reachable, policy_cache_size, decision_cache_size, credentials_no`

func get(ctx context.Context, tx *db.Tx, id int64) (Bouncer, error) {
	return db.One[Bouncer](ctx, tx, `SELECT `+columns+` FROM bouncers WHERE id = $1`, id)
}

func byDigest(ctx context.Context, tx *db.Tx, digest string) (Bouncer, error) {
	return db.One[Bouncer](ctx, tx, `SELECT `+columns+` FROM bouncers WHERE token_digest = $1`, digest)
}

func list(ctx context.Context, tx *db.Tx, env scope.Env, f Filter) ([]Bouncer, error) {
	return db.All[Bouncer](ctx, tx, `SELECT `+columns+` FROM bouncers
		WHERE ($1 = '' OR environment = $1) AND ($2 = '' OR status = $2) ORDER BY id LIMIT $3 OFFSET $4`,
		string(env), f.Status, f.Limit, f.Skip)
}

func count(ctx context.Context, tx *db.Tx, env scope.Env, f Filter) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM bouncers
		WHERE ($1 = '' OR environment = $1) AND ($2 = '' OR status = $2)`, string(env), f.Status)
}

// Count returns how many bouncers the tenant has, in both environments.
func Count(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM bouncers`)
}

// InEnvironment returns all bouncers of an environment, by id; AnyEnv selects both environments.
func InEnvironment(ctx context.Context, tx *db.Tx, env scope.Env) ([]Bouncer, error) {
	return db.All[Bouncer](ctx, tx, `SELECT `+columns+` FROM bouncers WHERE ($1 = '' OR environment = $1) ORDER BY id`, string(env))
}

func insert(ctx context.Context, tx *db.Tx, b Bouncer) (Bouncer, error) {
	return db.One[Bouncer](ctx, tx, `INSERT INTO bouncers (name, hostname, port, environment, target_app, configuration, resource_ids,
			token_digest, token_issued_at, change_no, created_at, updated_at, status, target_app_reachable)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, FALSE) RETURNING `+columns,
		b.Name, b.Hostname, b.Port, string(b.Environment), b.TargetApp, b.Configuration, b.ResourceIDs,
		b.TokenDigest, b.TokenIssuedAt, b.ChangeNo, b.CreatedAt, b.UpdatedAt, b.Status)
}

// update writes the members that people set, and not those that the bridge reports.
func update(ctx context.Context, tx *db.Tx, b Bouncer) (Bouncer, error) {
	return db.One[Bouncer](ctx, tx, `UPDATE bouncers SET name = $1, hostname = $2, port = $3, target_app = $4, configuration = $5,
			resource_ids = $6, token_digest = $7, token_issued_at = $8, change_no = $9, updated_at = $10
		WHERE id = $11 RETURNING `+columns,
		b.Name, b.Hostname, b.Port, b.TargetApp, b.Configuration, b.ResourceIDs, b.TokenDigest, b.TokenIssuedAt, b.ChangeNo, b.UpdatedAt, b.ID)
}

func loadCredentials(ctx context.Context, tx *db.Tx, id int64) (credentialRow, error) {
	return db.One[credentialRow](ctx, tx, `SELECT rules, sealed FROM bouncer_credentials WHERE bouncer_id = $1`, id)
}

// storeCredentials writes the row, and increments CredentialsNo in the bouncer's own row.
func storeCredentials(ctx context.Context, tx *db.Tx, b Bouncer, row credentialRow) error {
	err := tx.Do(ctx, `INSERT INTO bouncer_credentials (bouncer_id, rules, sealed, updated_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (bouncer_id) DO UPDATE SET rules = excluded.rules, sealed = excluded.sealed, updated_at = excluded.updated_at`,
		b.ID, row.Rules, row.Sealed, b.UpdatedAt)
	if err != nil {
		return err
	}
	return tx.Do(ctx, `UPDATE bouncers SET credentials_no = $1, change_no = $2, updated_at = $3 WHERE id = $4`,
		b.CredentialsNo, b.ChangeNo, b.UpdatedAt, b.ID)
}

func remove(ctx context.Context, tx *db.Tx, id int64) error {
	for _, sql := range []string{
		`DELETE FROM bouncer_credentials WHERE bouncer_id = $1`,
		`DELETE FROM bouncer_sync WHERE bouncer_id = $1`,
		`DELETE FROM bouncer_bundles WHERE bouncer_id = $1`,
		`DELETE FROM bouncers WHERE id = $1`,
	} {
		if err := tx.Do(ctx, sql, id); err != nil {
			return err
		}
	}
	return nil
}

// idByName returns the id of the bouncer of env with this name.
func idByName(ctx context.Context, tx *db.Tx, env scope.Env, name string) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT id FROM bouncers WHERE environment = $1 AND name = $2`, string(env), name)
}

// addToken and removeToken maintain the system's table of the tenant of each token.
// The reference is also the digest, because the row can be written before the bouncer has an id.
func addToken(ctx context.Context, tx *db.Tx, tenant scope.TenantID, digest string) error {
	return tx.Do(ctx, `INSERT INTO credentials (digest, tenant, kind, ref) VALUES ($1, $2, 'bouncer', $1)`, digest, string(tenant))
}

func removeToken(ctx context.Context, tx *db.Tx, digest string) error {
	return tx.Do(ctx, `DELETE FROM credentials WHERE digest = $1 AND kind = 'bouncer'`, digest)
}

func recordHeartbeat(ctx context.Context, tx *db.Tx, id int64, now time.Time, f Figures) error {
	return tx.Do(ctx, `UPDATE bouncers SET last_heartbeat = $1, version = COALESCE($2, version),
			requests_per_second = COALESCE($3, requests_per_second), cache_hit_rate = COALESCE($4, cache_hit_rate),
			target_app_reachable = COALESCE($5, target_app_reachable), policy_cache_size = COALESCE($6, policy_cache_size),
			decision_cache_size = COALESCE($7, decision_cache_size) WHERE id = $8`,
		now, f.Version, f.RequestsPerSecond, f.CacheHitRate, f.TargetAppReachable, f.PolicyCacheSize, f.DecisionCacheSize, id)
}

func setStatus(ctx context.Context, tx *db.Tx, id int64, from, to, detail string) (int64, error) {
	return tx.Exec(ctx, `UPDATE bouncers SET status = $1, status_detail = $2 WHERE id = $3 AND status = $4`, to, detail, id, from)
}

func countSynced(ctx context.Context, tx *db.Tx, id int64) error {
	return tx.Do(ctx, `UPDATE bouncers SET policies_synced =
		(SELECT count(*) FROM bouncer_sync WHERE bouncer_id = $1 AND status = 'synced') WHERE id = $1`, id)
}

const bundleColumns = `bouncer_id, revision, content_hash, published_at, active_revision, activated_at, refused_revision, refused_errors`

// publish stores the new contents of bundles, each with the next revision. It does not change a
// bundle whose newest revision has this content.
func publish(ctx context.Context, tx *db.Tx, list []Content, now time.Time) error {
	var text strings.Builder
	args := []any{now}
	text.WriteString(`INSERT INTO bouncer_bundles (bouncer_id, revision, content_hash, published_at) VALUES `)
	for i, c := range list {
		if i > 0 {
			text.WriteString(", ")
		}
		args = append(args, c.BouncerID, c.Hash)
		fmt.Fprintf(&text, "($%d, 1, $%d, $1)", len(args)-1, len(args))
	}
	text.WriteString(` ON CONFLICT (bouncer_id) DO UPDATE SET revision = bouncer_bundles.revision + 1, content_hash = excluded.content_hash,
		published_at = excluded.published_at WHERE bouncer_bundles.content_hash <> excluded.content_hash`)
	return tx.Do(ctx, text.String(), args...)
}

// RaiseRevision gives a bouncer's bundle a higher revision than one that the bouncer has. This is needed
// after the store was restored from a backup, because a bouncer accepts no older revision.
func RaiseRevision(ctx context.Context, tx *db.Tx, id, seen int64) error {
	return tx.Do(ctx, `UPDATE bouncer_bundles SET revision = $2 WHERE bouncer_id = $1 AND revision < $2`, id, seen+1)
}

func bundle(ctx context.Context, tx *db.Tx, id int64) (Bundle, error) {
	return db.One[Bundle](ctx, tx, `SELECT `+bundleColumns+` FROM bouncer_bundles WHERE bouncer_id = $1`, id)
}

// BundlesIn returns the bundle of each bouncer of an environment that has one, by id.
func BundlesIn(ctx context.Context, tx *db.Tx, env scope.Env) ([]Bundle, error) {
	return db.All[Bundle](ctx, tx, `SELECT `+bundleColumns+` FROM bouncer_bundles
		WHERE bouncer_id IN (SELECT id FROM bouncers WHERE $1 = '' OR environment = $1) ORDER BY bouncer_id`, string(env))
}

func activate(ctx context.Context, tx *db.Tx, id, revision int64, now time.Time) (int64, error) {
	return tx.Exec(ctx, `UPDATE bouncer_bundles SET active_revision = $2, activated_at = $3,
			refused_errors = CASE WHEN refused_revision <= $2 THEN '[]' ELSE refused_errors END,
			refused_revision = CASE WHEN refused_revision <= $2 THEN 0 ELSE refused_revision END
		WHERE bouncer_id = $1 AND active_revision <> $2 AND revision >= $2`, id, revision, now)
}

// refuse records a refused revision. If the bouncer ran it before and now refuses it, for example
// with another key after a restart, it no longer counts as running.
func refuse(ctx context.Context, tx *db.Tx, id, revision int64, why []Refusal) (int64, error) {
	return tx.Exec(ctx, `UPDATE bouncer_bundles SET refused_revision = $2, refused_errors = $3,
			active_revision = CASE WHEN active_revision = $2 THEN 0 ELSE active_revision END
		WHERE bouncer_id = $1 AND refused_revision <> $2 AND revision >= $2`, id, revision, why)
}

const syncColumns = `bouncer_id, policy_id, version, revision, status, started_at, synced_at, error, file, line`

func syncs(ctx context.Context, tx *db.Tx, id int64) ([]Sync, error) {
	rows, err := db.All[Sync](ctx, tx, `SELECT `+syncColumns+` FROM bouncer_sync WHERE bouncer_id = $1 ORDER BY policy_id`, id)
	for i := range rows {
		if rows[i].Status == Synced {
			rows[i].Status = Enabled
		}
	}
	return rows, err
}

// RefusalsOf returns, for the controls with ids from first to last, the sync rows of bouncers that
// refused them.
func RefusalsOf(ctx context.Context, tx *db.Tx, first, last int64) ([]Sync, error) {
	return db.All[Sync](ctx, tx, `SELECT `+syncColumns+` FROM bouncer_sync
		WHERE policy_id BETWEEN $1 AND $2 AND status = 'failed' ORDER BY policy_id, bouncer_id`, first, last)
}

// startSync does not change a row that has this version in place or in progress.
func startSync(ctx context.Context, tx *db.Tx, id int64, it Item, revision int64, now time.Time) error {
	return tx.Do(ctx, `INSERT INTO bouncer_sync (bouncer_id, policy_id, version, revision, status, started_at)
		VALUES ($1, $2, $3, $4, 'in_progress', $5)
		ON CONFLICT (bouncer_id, policy_id) DO UPDATE SET version = excluded.version, revision = excluded.revision,
			status = excluded.status, started_at = excluded.started_at, error = '', file = '', line = 0
		WHERE bouncer_sync.version <> excluded.version OR bouncer_sync.status IN ('pending', 'failed')`,
		id, it.PolicyID, it.Version, revision, now)
}

func dropSyncs(ctx context.Context, tx *db.Tx, id int64, keep []Item) error {
	rows, err := syncs(ctx, tx, id)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if slices.ContainsFunc(keep, func(it Item) bool { return it.PolicyID == row.PolicyID }) {
			continue
		}
		if err := tx.Do(ctx, `DELETE FROM bouncer_sync WHERE bouncer_id = $1 AND policy_id = $2`, id, row.PolicyID); err != nil {
			return err
		}
	}
	return nil
}

func finishSyncs(ctx context.Context, tx *db.Tx, id, revision int64, now time.Time) error {
	return tx.Do(ctx, `UPDATE bouncer_sync SET status = 'synced', synced_at = $3, error = '', file = '', line = 0
		WHERE bouncer_id = $1 AND revision <= $2 AND status <> 'synced'`, id, revision, now)
}

// failSyncs marks the controls that a refusal names, or all of the revision if it names none. It
// resets the others, which did not arrive either.
func failSyncs(ctx context.Context, tx *db.Tx, id, revision int64, why []Refusal) error {
	named := false
	for _, r := range why {
		if r.PolicyID == 0 {
			continue
		}
		named = true
		if err := tx.Do(ctx, `UPDATE bouncer_sync SET status = 'failed', error = $3, file = $4, line = $5
			WHERE bouncer_id = $1 AND policy_id = $2`, id, r.PolicyID, r.Message, r.File, r.Line); err != nil {
			return err
		}
	}
	status, message := Pending, ""
	if !named {
		status, message = Failed, "the bouncer refused the bundle"
		if len(why) > 0 {
			message = why[0].Message
		}
	}
	return tx.Do(ctx, `UPDATE bouncer_sync SET status = $3, error = $4
		WHERE bouncer_id = $1 AND revision = $2 AND status = 'in_progress'`, id, revision, status, message)
}

// LoadSyncHealth counts the sync rows of a tenant; those in progress since before stuckBefore are
// stuck.
func LoadSyncHealth(ctx context.Context, tx *db.Tx, stuckBefore time.Time) (SyncHealth, error) {
	return db.One[SyncHealth](ctx, tx, `SELECT
			COALESCE(SUM(CASE WHEN status = 'in_progress' THEN 1 ELSE 0 END), 0) AS in_progress,
			COALESCE(SUM(CASE WHEN status = 'in_progress' AND started_at < $1 THEN 1 ELSE 0 END), 0) AS stuck,
			(SELECT MAX(at) FROM (SELECT MAX(synced_at) AS at FROM bouncer_sync
				UNION ALL SELECT MAX(activated_at) AS at FROM bouncer_bundles) AS syncs) AS last_sync
		FROM bouncer_sync`, stuckBefore)
}

// RevokeTokens revokes the tokens of all bouncers of a tenant within tx: each bouncer needs a new
// one (rotate). It is one of tenant.Service.RevokeHooks.
func RevokeTokens(ctx context.Context, tx *db.Tx) error {
	// No digest has this form.
	return tx.Do(ctx, `UPDATE bouncers SET token_digest = 'void-' || CAST(id AS TEXT)`)
}

func tallyBouncers(ctx context.Context, tx *db.Tx, env scope.Env) (Tally, error) {
	return db.One[Tally](ctx, tx, `SELECT COUNT(CASE WHEN status = 'connected' THEN 1 END) AS connected,
			COUNT(CASE WHEN status = 'degraded' THEN 1 END) AS degraded, COUNT(CASE WHEN status = 'disconnected' THEN 1 END) AS disconnected
		FROM bouncers WHERE ($1 = '' OR environment = $1)`, string(env))
}

func tallyDeliveries(ctx context.Context, tx *db.Tx, env scope.Env) (Tally, error) {
	return db.One[Tally](ctx, tx, `SELECT COUNT(*) AS deliveries, COUNT(CASE WHEN s.status = 'synced' THEN 1 END) AS delivered,
			COUNT(CASE WHEN s.status IN ('pending', 'in_progress') THEN 1 END) AS awaited
		FROM bouncer_sync s JOIN bouncers b ON b.id = s.bouncer_id WHERE ($1 = '' OR b.environment = $1)`, string(env))
}

// Secrets declares the credentials of bouncers, for package reseal.
func (s *Service) Secrets() []reseal.Column {
	return []reseal.Column{{Table: "bouncer_credentials", Name: "sealed", Key: "bouncer_id", Box: s.Box, Place: reseal.ByID(credentialPlace)}}
}
