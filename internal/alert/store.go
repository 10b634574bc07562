package alert

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const columns = `id, name, description, environment, severity, enabled, condition, frequency, channels, created_by, created_at, updated_at, change_no,
	firing, value, evaluated_at, fired_at, day, fires_in_day`

const inEnv = ` WHERE ($1 = '' OR environment = $1)`

func countRules(ctx context.Context, tx *db.Tx, env scope.Env) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM alert_rules`+inEnv, string(env))
}

func listRules(ctx context.Context, tx *db.Tx, env scope.Env, skip, limit int64) ([]Rule, error) {
	return db.All[Rule](ctx, tx, `SELECT `+columns+` FROM alert_rules`+inEnv+` ORDER BY id LIMIT $2 OFFSET $3`, string(env), limit, skip)
}

func enabledRules(ctx context.Context, tx *db.Tx) ([]Rule, error) {
	return db.All[Rule](ctx, tx, `SELECT `+columns+` FROM alert_rules WHERE enabled ORDER BY id`)
}

func getRule(ctx context.Context, tx *db.Tx, id int64) (Rule, error) {
	return db.One[Rule](ctx, tx, `SELECT `+columns+` FROM alert_rules WHERE id = $1`, id)
}

func ruleNamed(ctx context.Context, tx *db.Tx, name string) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT id FROM alert_rules WHERE name = $1`, name)
}

func insertRule(ctx context.Context, tx *db.Tx, r Rule) (Rule, error) {
	return db.One[Rule](ctx, tx, `INSERT INTO alert_rules (name, description, environment, severity, enabled, condition, frequency, channels, created_by,
			created_at, updated_at, change_no)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING `+columns,
		r.Name, r.Description, string(r.Environment), r.Severity, r.Enabled, r.Trigger, r.Frequency, r.Channels, r.CreatedBy, r.CreatedAt, r.UpdatedAt, r.ChangeNo)
}

// updateRule writes the columns that people change, and firing. The Evaluator writes the others.
func updateRule(ctx context.Context, tx *db.Tx, r Rule) (Rule, error) {
	return db.One[Rule](ctx, tx, `UPDATE alert_rules SET name = $2, description = $3, severity = $4, enabled = $5, condition = $6, frequency = $7,
			channels = $8, updated_at = $9, change_no = $10, firing = $11 WHERE id = $1 RETURNING `+columns,
		r.ID, r.Name, r.Description, r.Severity, r.Enabled, r.Trigger, r.Frequency, r.Channels, r.UpdatedAt, r.ChangeNo, r.Firing)
}

func deleteRule(ctx context.Context, tx *db.Tx, id int64) error {
	return tx.Do(ctx, `DELETE FROM alert_rules WHERE id = $1`, id)
}

// saveState stores the result of an evaluation.
func saveState(ctx context.Context, tx *db.Tx, r Rule) error {
	return tx.Do(ctx, `UPDATE alert_rules SET firing = $2, value = $3, evaluated_at = $4, fired_at = $5, day = $6, fires_in_day = $7 WHERE id = $1`,
		r.ID, r.Firing, r.Value, r.EvaluatedAt, r.FiredAt, r.Day, r.Fires)
}

// countEntries counts entries of the administrative log in [from, to), about an environment or
// about the whole tenant. It leaves out entries about alert rules and notification channels, so
// that a rule cannot keep itself firing.
func countEntries(ctx context.Context, tx *db.Tx, env scope.Env, kind string, from, to time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM audit_events
		WHERE at >= $1 AND at < $2 AND (environment = $3 OR environment = '') AND ($4 = '' OR type = $4) AND object <> 'alert_rule' AND object <> 'notification_channel'`,
		from, to, string(env), kind)
}

// source is a data source: when its data was last synced or, without data, when it was created, and
// how many of its syncs are kept.
type source struct {
	ID        int64     `db:"id"`
	Since     time.Time `db:"since"`
	CreatedAt time.Time `db:"created_at"`
	Syncs     int64     `db:"syncs"`
}

// sourcesOf returns one data source, or for 0 all that are synced on a schedule.
func sourcesOf(ctx context.Context, tx *db.Tx, connection int64) ([]source, error) {
	return db.All[source](ctx, tx, `SELECT id, COALESCE(last_sync_at, created_at) AS since, created_at,
			(SELECT COUNT(*) FROM pip_syncs s WHERE s.connection_id = c.id) AS syncs
		FROM pip_connections c WHERE id = $1 OR ($1 = 0 AND sync_enabled AND sync_frequency <> 'manual') ORDER BY id`, connection)
}

// sourceExists reports whether a data source exists.
func sourceExists(ctx context.Context, tx *db.Tx, connection int64) (bool, error) {
	n, err := db.One[int64](ctx, tx, `SELECT COUNT(*) FROM pip_connections WHERE id = $1`, connection)
	return n > 0, err
}

type syncedAt struct {
	At time.Time `db:"finished_at"`
}

// goodSyncs returns the kept syncs of a data source that succeeded, oldest first.
func goodSyncs(ctx context.Context, tx *db.Tx, connection int64) ([]syncedAt, error) {
	return db.All[syncedAt](ctx, tx, `SELECT finished_at FROM pip_syncs WHERE connection_id = $1 AND status = 'completed' AND finished_at IS NOT NULL
		ORDER BY finished_at`, connection)
}

type entriesAt struct {
	Minute int64 `db:"minute"`
	N      int64 `db:"n"`
}

// entriesByMinute returns the counts of countEntries for each minute, oldest first. Minutes are
// numbered from 1970.
func entriesByMinute(ctx context.Context, tx *db.Tx, env scope.Env, kind string, from, to time.Time) ([]entriesAt, error) {
	return db.All[entriesAt](ctx, tx, `SELECT at / 60000000 AS minute, COUNT(*) AS n FROM audit_events
		WHERE at >= $1 AND at < $2 AND (environment = $3 OR environment = '') AND ($4 = '' OR type = $4) AND object <> 'alert_rule' AND object <> 'notification_channel'
		GROUP BY at / 60000000 ORDER BY at / 60000000`, from, to, string(env), kind)
}
