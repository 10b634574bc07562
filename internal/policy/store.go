package policy

import (
	"context"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const columns = `p.id, p.kind, p.name, p.description, p.status, p.environment, p.rego_code, p.test_cases, p.actions, p.version,
	p.resource_id, p.bouncer_id, p.created_by, p.created_at, p.updated_at, p.promoted_at, p.deleted_at,
	COALESCE(c.evaluations, 0) AS evaluations, COALESCE(c.cache_hits, 0) AS cache_hits, COALESCE(c.nanoseconds, 0) AS nanoseconds`

const from = ` FROM policies p LEFT JOIN policy_counters c ON c.policy_id = p.id `

const filters = ` WHERE ($1 = '' OR p.environment = $1) AND ($2 = '' OR p.status = $2)
	AND ($3 = '' OR p.name_folded LIKE $3 ESCAPE '\') AND ($4 = '' OR p.kind = $4) AND p.deleted_at IS `

// filter returns the condition for deleted policies, or for all others.
func (f Filter) filter() string {
	if f.Deleted {
		return filters + "NOT NULL "
	}
	return filters + "NULL "
}

// get reads a control, deleted or not.
func get(ctx context.Context, tx *db.Tx, id int64) (Policy, error) {
	p, err := db.One[Policy](ctx, tx, `SELECT `+columns+from+`WHERE p.id = $1`, id)
	p.fillMetrics()
	return p, err
}

func list(ctx context.Context, tx *db.Tx, env scope.Env, f Filter) ([]Policy, error) {
	ps, err := db.All[Policy](ctx, tx, `SELECT `+columns+from+f.filter()+`ORDER BY p.id LIMIT $5 OFFSET $6`,
		string(env), f.Status, contains(f.Name), f.Kind, f.Limit, f.Skip)
	for i := range ps {
		ps[i].fillMetrics()
	}
	return ps, err
}

func count(ctx context.Context, tx *db.Tx, env scope.Env, f Filter) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM policies p`+f.filter(), string(env), f.Status, contains(f.Name), f.Kind)
}

// contains returns a LIKE pattern for a literal part of a folded name; empty for none.
func contains(part string) string {
	if part == "" {
		return ""
	}
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(fold(part)) + "%"
}

// fold returns s in lower case, for searches. SQL's lower() treats letters differently in the two
// backends.
func fold(s string) string { return strings.ToLower(s) }

func insert(ctx context.Context, tx *db.Tx, p Policy) (int64, error) {
	return db.One[int64](ctx, tx, `INSERT INTO policies (name, name_folded, description, status, environment, rego_code,
			test_cases, actions, version, resource_id, bouncer_id, created_by, created_at, updated_at, kind)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) RETURNING id`,
		p.Name, fold(p.Name), p.Description, p.Status, string(p.Environment), p.RegoCode, p.TestCases, p.Actions, p.Version,
		p.ResourceID, p.BouncerID, p.CreatedBy, p.CreatedAt, p.UpdatedAt, p.Kind)
}

// update writes a control and reads it back as it is stored.
func update(ctx context.Context, tx *db.Tx, p Policy) (Policy, error) {
	err := tx.Do(ctx, `UPDATE policies SET name = $1, name_folded = $2, description = $3, status = $4, environment = $5,
			rego_code = $6, test_cases = $7, actions = $8, version = $9, resource_id = $10, bouncer_id = $11,
			updated_at = $12, promoted_at = $13, deleted_at = $14 WHERE id = $15`,
		p.Name, fold(p.Name), p.Description, p.Status, string(p.Environment), p.RegoCode, p.TestCases, p.Actions, p.Version,
		p.ResourceID, p.BouncerID, p.UpdatedAt, p.PromotedAt, p.DeletedAt, p.ID)
	if err != nil {
		return Policy{}, err
	}
	return get(ctx, tx, p.ID)
}

// erase removes a control, its versions and its counters.
func erase(ctx context.Context, tx *db.Tx, id int64) error {
	for _, sql := range []string{
		`DELETE FROM policy_versions WHERE policy_id = $1`,
		`DELETE FROM policy_counters WHERE policy_id = $1`,
		`DELETE FROM policy_action_minutes WHERE policy_id = $1`,
		`DELETE FROM policies WHERE id = $1`,
	} {
		if err := tx.Do(ctx, sql, id); err != nil {
			return err
		}
	}
	return nil
}

func insertVersion(ctx context.Context, tx *db.Tx, p Policy, change, note, actor string, at time.Time, since revisions) error {
	return tx.Do(ctx, `INSERT INTO policy_versions (policy_id, version, change, note, name, description, status, environment,
			rego_code, test_cases, actions, resource_id, bouncer_id, created_by, created_at, sandbox_revision, production_revision)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`,
		p.ID, p.Version, change, note, p.Name, p.Description, p.Status, string(p.Environment), p.RegoCode, p.TestCases, p.Actions,
		p.ResourceID, p.BouncerID, actor, at, since.Sandbox, since.Production)
}

const versionColumns = `policy_id, version, change, note, name, description, status, environment, rego_code, test_cases,
	actions, resource_id, bouncer_id, created_by, created_at`

func versions(ctx context.Context, tx *db.Tx, id, skip, limit int64) ([]Version, int64, error) {
	total, err := db.One[int64](ctx, tx, `SELECT count(*) FROM policy_versions WHERE policy_id = $1`, id)
	if err != nil {
		return nil, 0, err
	}
	vs, err := db.All[Version](ctx, tx, `SELECT `+versionColumns+` FROM policy_versions WHERE policy_id = $1
		ORDER BY version DESC LIMIT $2 OFFSET $3`, id, limit, skip)
	return vs, total, err
}

func version(ctx context.Context, tx *db.Tx, id, v int64) (Version, error) {
	return db.One[Version](ctx, tx, `SELECT `+versionColumns+` FROM policy_versions WHERE policy_id = $1 AND version = $2`, id, v)
}

const liveControls = `SELECT id, name, version, COALESCE(resource_id, 0) AS resource_id,
			COALESCE(bouncer_id, 0) AS bouncer_id, rego_code, actions, updated_at FROM policies
		WHERE environment = $1 AND status = 'active' AND kind = 'control' AND deleted_at IS NULL `

// ControlsFor returns the active controls of an environment with their sources, sorted by id.
func ControlsFor(ctx context.Context, tx *db.Tx, env scope.Env) ([]Control, error) {
	return db.All[Control](ctx, tx, liveControls+`ORDER BY id`, string(env))
}

// activeLibrary is an active library.
type activeLibrary struct {
	ID          int64     `db:"id"`
	Name        string    `db:"name"`
	Version     int64     `db:"version"`
	Environment scope.Env `db:"environment"`
	Source      string    `db:"rego_code"`
}

func activeLibraries(ctx context.Context, tx *db.Tx) ([]activeLibrary, error) {
	return db.All[activeLibrary](ctx, tx, `SELECT id, name, version, environment, rego_code FROM policies
		WHERE kind = 'library' AND status = 'active' AND deleted_at IS NULL ORDER BY id`)
}

// importers returns the live policies of an environment whose source may import a library.
func importers(ctx context.Context, tx *db.Tx, env scope.Env) ([]Policy, error) {
	return db.All[Policy](ctx, tx, `SELECT `+columns+from+`WHERE p.deleted_at IS NULL AND p.environment = $1
		AND p.rego_code LIKE '%lib%' ORDER BY p.id`, string(env))
}

// link is one control and the resource that it is bound to.
type link struct {
	Resource int64 `db:"resource_id"`
	Policy   int64 `db:"id"`
}

func listBoundTo(ctx context.Context, tx *db.Tx, first, last int64) ([]link, error) {
	return db.All[link](ctx, tx, `SELECT resource_id, id FROM policies
		WHERE deleted_at IS NULL AND resource_id BETWEEN $1 AND $2 ORDER BY id`, first, last)
}

func byBouncer(ctx context.Context, tx *db.Tx, bouncer int64) ([]link, error) {
	return db.All[link](ctx, tx, `SELECT COALESCE(resource_id, 0) AS resource_id, id FROM policies
		WHERE deleted_at IS NULL AND bouncer_id = $1 ORDER BY id`, bouncer)
}

// bouncerLink is a bouncer that a live control names, and the control's resource.
type bouncerLink struct {
	Bouncer  int64 `db:"bouncer_id"`
	Resource int64 `db:"resource_id"`
}

func bouncerLinks(ctx context.Context, tx *db.Tx, env scope.Env) ([]bouncerLink, error) {
	return db.All[bouncerLink](ctx, tx, `SELECT DISTINCT bouncer_id, resource_id FROM policies
		WHERE deleted_at IS NULL AND bouncer_id IS NOT NULL AND resource_id IS NOT NULL AND environment = $1
		ORDER BY bouncer_id, resource_id`, string(env))
}

// Count returns the number of live controls of the tenant, in both environments.
func Count(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM policies WHERE deleted_at IS NULL`)
}

// addCounts adds to a control's counters, unless the control is gone.
func addCounts(ctx context.Context, tx *db.Tx, id, evaluations, hits, nanos int64) error {
	return tx.Do(ctx, `INSERT INTO policy_counters (policy_id, evaluations, cache_hits, nanoseconds)
		SELECT id, CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT) FROM policies WHERE id = $1
		ON CONFLICT (policy_id) DO UPDATE SET evaluations = policy_counters.evaluations + excluded.evaluations,
			cache_hits = policy_counters.cache_hits + excluded.cache_hits,
			nanoseconds = policy_counters.nanoseconds + excluded.nanoseconds`, id, evaluations, hits, nanos)
}

// byName returns the live controls of an environment with exactly this name.
func byName(ctx context.Context, tx *db.Tx, env scope.Env, name string) ([]Policy, error) {
	return db.All[Policy](ctx, tx, `SELECT `+columns+from+`WHERE p.deleted_at IS NULL AND p.environment = $1 AND p.name = $2 ORDER BY p.id LIMIT 10`,
		string(env), strings.TrimSpace(name))
}

// activeNamed returns the active controls of an environment with exactly this name.
func activeNamed(ctx context.Context, tx *db.Tx, env scope.Env, name string) ([]Policy, error) {
	return db.All[Policy](ctx, tx, `SELECT `+columns+from+`WHERE p.deleted_at IS NULL AND p.environment = $1 AND p.name = $2
		AND p.status = 'active' AND p.kind = 'control' ORDER BY p.id`, string(env), name)
}

// countSince counts the versions after v that no promotion made.
func countSince(ctx context.Context, tx *db.Tx, id, v int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM policy_versions WHERE policy_id = $1 AND version > $2 AND change <> 'promoted'`, id, v)
}

// LoadFigures returns the figures of an environment, or of both for AnyEnv, in the caller's
// transaction.
func LoadFigures(ctx context.Context, tx *db.Tx, env scope.Env) (Figures, error) {
	return db.One[Figures](ctx, tx, `SELECT COUNT(*) AS total,
			COUNT(CASE WHEN status = 'active' THEN 1 END) AS active, COUNT(CASE WHEN status = 'draft' THEN 1 END) AS draft,
			COUNT(CASE WHEN status = 'active' AND resource_id IS NOT NULL THEN 1 END) AS protecting
		FROM policies WHERE deleted_at IS NULL AND kind = $1 AND ($2 = '' OR environment = $2)`, KindControl, string(env))
}
