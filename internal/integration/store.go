package integration

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

const columns = `id, name, kind, endpoint, environment, settings, enabled, failures, last_error, last_success_at, last_failure_at, next_at, place, pushed, looked,
	created_by, created_at, updated_at, change_no, credential`

const ofKind = ` WHERE ($1 = '' OR kind = $1)`

func countIntegrations(ctx context.Context, tx *db.Tx, kind string) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM integrations`+ofKind, kind)
}

func listIntegrations(ctx context.Context, tx *db.Tx, kind string, skip, limit int64) ([]Integration, error) {
	return db.All[Integration](ctx, tx, `SELECT `+columns+` FROM integrations`+ofKind+` ORDER BY id LIMIT $2 OFFSET $3`, kind, limit, skip)
}

func getIntegration(ctx context.Context, tx *db.Tx, id int64) (Integration, error) {
	return db.One[Integration](ctx, tx, `SELECT `+columns+` FROM integrations WHERE id = $1`, id)
}

func integrationNamed(ctx context.Context, tx *db.Tx, name string) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT id FROM integrations WHERE name = $1`, name)
}

func insertIntegration(ctx context.Context, tx *db.Tx, it Integration) (Integration, error) {
	return db.One[Integration](ctx, tx, `INSERT INTO integrations (name, kind, endpoint, environment, settings, enabled, place, credential, created_by,
			created_at, updated_at, change_no)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING `+columns,
		it.Name, it.Kind, it.Endpoint, string(it.Environment), it.Settings, it.Enabled, it.Place, it.Credential, it.CreatedBy, it.CreatedAt, it.UpdatedAt, it.ChangeNo)
}

// updateIntegration writes the columns that people change, and ends the pause after a failure. The
// Forwarder writes the others. If the endpoint or the settings change, the record of the pushed
// bundle is deleted, because another store may not have it.
func updateIntegration(ctx context.Context, tx *db.Tx, it Integration) (Integration, error) {
	return db.One[Integration](ctx, tx, `UPDATE integrations SET name = $2, endpoint = $3, settings = $4, enabled = $5, credential = $6, updated_at = $7,
			change_no = $8, next_at = NULL,
			pushed = CASE WHEN endpoint = $3 AND settings = $4 THEN pushed END, looked = CASE WHEN endpoint = $3 AND settings = $4 THEN looked END
		WHERE id = $1 RETURNING `+columns, it.ID, it.Name, it.Endpoint, it.Settings, it.Enabled, it.Credential, it.UpdatedAt, it.ChangeNo)
}

func deleteIntegration(ctx context.Context, tx *db.Tx, id int64) error {
	for _, sql := range []string{
		`DELETE FROM integration_messages WHERE integration_id = $1`, `DELETE FROM integration_runs WHERE integration_id = $1`,
		`DELETE FROM integration_inbound WHERE integration_id = $1`, `DELETE FROM integrations WHERE id = $1`,
	} {
		if err := tx.Do(ctx, sql, id); err != nil {
			return err
		}
	}
	return nil
}

// lane is an enabled integration, with what the Forwarder needs to schedule it.
type lane struct {
	ID          int64           `db:"id"`
	Kind        string          `db:"kind"`
	Environment scope.Env       `db:"environment"`
	Place       *tail.Place     `db:"place"`
	Looked      *storeRevisions `db:"looked"`
	NextAt      *time.Time      `db:"next_at"`
	Until       time.Time       `db:"lane_until"`
	Holder      string          `db:"lane_holder"`
	Waiting     int64           `db:"waiting"`
}

func enabledLanes(ctx context.Context, tx *db.Tx) ([]lane, error) {
	return db.All[lane](ctx, tx, `SELECT id, kind, environment, place, looked, next_at, lane_until, lane_holder,
			(SELECT COUNT(*) FROM integration_messages m WHERE m.integration_id = integrations.id) AS waiting
		FROM integrations WHERE enabled ORDER BY id`)
}

// message is a message that waits for an integration.
type message struct {
	ID       int64     `db:"id"`
	EventID  string    `db:"event_id"`
	Type     string    `db:"event_type"`
	At       time.Time `db:"at"`
	Data     []byte    `db:"data"`
	Attempts int64     `db:"attempts"`
	// Run is the run that the message starts; nil: none.
	Run *int64 `db:"run_id"`
}

// takesFrom returns the kind of an enabled integration that gets messages of an environment, or
// ErrNoRows.
func takesFrom(ctx context.Context, tx *db.Tx, id int64, env scope.Env) (string, error) {
	return db.One[string](ctx, tx, `SELECT kind FROM integrations WHERE id = $1 AND enabled AND (environment = '' OR environment = $2)`, id, string(env))
}

// enabledOf returns the enabled integrations of a kind that get messages of an environment.
func enabledOf(ctx context.Context, tx *db.Tx, kind string, env scope.Env) ([]Integration, error) {
	return db.All[Integration](ctx, tx, `SELECT `+columns+` FROM integrations WHERE kind = $1 AND enabled AND (environment = '' OR environment = $2) ORDER BY id`, kind, string(env))
}

// insertInbound stores the id of a message that a system sent. It returns false if the id was
// stored before.
func insertInbound(ctx context.Context, tx *db.Tx, integration int64, id string, at time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO integration_inbound (integration_id, message_id, at) VALUES ($1, $2, $3) ON CONFLICT (integration_id, message_id) DO NOTHING`, integration, id, at)
	return n == 1, err
}

func forgetInbound(ctx context.Context, tx *db.Tx, before time.Time) error {
	return tx.Do(ctx, `DELETE FROM integration_inbound WHERE at < $1`, before)
}

func insertMessage(ctx context.Context, tx *db.Tx, id int64, m message) error {
	return tx.Do(ctx, `INSERT INTO integration_messages (integration_id, event_id, event_type, at, data, run_id) VALUES ($1, $2, $3, $4, $5, $6)`,
		id, m.EventID, m.Type, m.At, string(m.Data), m.Run)
}

func firstMessage(ctx context.Context, tx *db.Tx, id int64) (message, error) {
	return db.One[message](ctx, tx, `SELECT id, event_id, event_type, at, data, attempts, run_id FROM integration_messages WHERE integration_id = $1 ORDER BY id LIMIT 1`, id)
}

func deleteMessage(ctx context.Context, tx *db.Tx, id int64) error {
	return tx.Do(ctx, `DELETE FROM integration_messages WHERE id = $1`, id)
}

func noteAttempt(ctx context.Context, tx *db.Tx, id int64) error {
	return tx.Do(ctx, `UPDATE integration_messages SET attempts = attempts + 1 WHERE id = $1`, id)
}

// saveSuccess records that the system accepted a parcel, and the new position in the logs. It
// returns false if another replica has taken over the lane.
func saveSuccess(ctx context.Context, tx *db.Tx, id int64, holder string, now time.Time, place *tail.Place) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE integrations SET failures = 0, last_error = '', next_at = NULL, last_success_at = $3, place = $4
		WHERE id = $1 AND lane_holder = $2`, id, holder, now, place)
	return n == 1, err
}

// savePushed records which bundle the store of a policy engine has. It returns false if another
// replica has taken over the lane, or if the integration has changed and may have another store.
func savePushed(ctx context.Context, tx *db.Tx, it Integration, holder string, p *Pushed, at storeRevisions) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE integrations SET pushed = $4, looked = $5 WHERE id = $1 AND lane_holder = $2 AND change_no = $3`, it.ID, holder, it.ChangeNo, p, &at)
	return n == 1, err
}

// forgetPushed ends the turn of another replica, and deletes what it recorded about the store of a
// policy engine.
func forgetPushed(ctx context.Context, tx *db.Tx, id int64, holder string) error {
	return tx.Do(ctx, `UPDATE integrations SET pushed = NULL, looked = NULL, lane_holder = '', lane_until = 0 WHERE id = $1 AND lane_holder <> $2`, id, holder)
}

// saveLooked records that the bundle is still the one that was pushed.
func saveLooked(ctx context.Context, tx *db.Tx, it Integration, holder string, at storeRevisions) error {
	return tx.Do(ctx, `UPDATE integrations SET looked = $4 WHERE id = $1 AND lane_holder = $2 AND change_no = $3`, it.ID, holder, it.ChangeNo, &at)
}

// saveFailure records a failed attempt, and when the next one is due. It returns false if another
// replica has taken over the lane.
func saveFailure(ctx context.Context, tx *db.Tx, id int64, holder string, now, next time.Time, why string) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE integrations SET failures = failures + 1, last_error = $5, next_at = $4, last_failure_at = $3
		WHERE id = $1 AND lane_holder = $2`, id, holder, now, next, why)
	return n == 1, err
}

// Secrets declares the credentials of integrations. The tokens of runs are short-lived, for package reseal.
func (s *Service) Secrets() []reseal.Column {
	return []reseal.Column{{Table: "integrations", Name: "credential", Key: "id", Box: s.Box, Place: reseal.ByID(sealedAt)}}
}
