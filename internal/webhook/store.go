package webhook

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

// laneColumns are the columns that sending needs. They leave out the counts, which are slow.
const laneColumns = `id, name, url, events, environment, enabled, secret, previous_secret, previous_until, since_seq, until_seq, created_by, created_at,
	updated_at, change_no, failures, last_success_at, last_failure_at, paused_until`

const webhookColumns = laneColumns + `,
	(SELECT COUNT(*) FROM webhook_deliveries d WHERE d.webhook_id = webhooks.id AND d.state = 'pending') AS pending,
	(SELECT COUNT(*) FROM webhook_deliveries d WHERE d.webhook_id = webhooks.id AND d.state = 'dead' AND d.object <> 'test') AS dead`

func countWebhooks(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM webhooks`)
}

func listWebhooks(ctx context.Context, tx *db.Tx, skip, limit int64) ([]Webhook, error) {
	return db.All[Webhook](ctx, tx, `SELECT `+webhookColumns+` FROM webhooks ORDER BY id LIMIT $1 OFFSET $2`, limit, skip)
}

func getWebhook(ctx context.Context, tx *db.Tx, id int64) (Webhook, error) {
	return db.One[Webhook](ctx, tx, `SELECT `+webhookColumns+` FROM webhooks WHERE id = $1`, id)
}

func webhookNamed(ctx context.Context, tx *db.Tx, name string) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT id FROM webhooks WHERE name = $1`, name)
}

func insertWebhook(ctx context.Context, tx *db.Tx, w Webhook) (Webhook, error) {
	return db.One[Webhook](ctx, tx, `INSERT INTO webhooks (name, url, events, environment, enabled, secret, previous_secret, since_seq, created_by,
			created_at, updated_at, change_no)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, $9, $10, $11) RETURNING `+webhookColumns,
		w.Name, w.URL, w.Events, w.Environment, w.Enabled, w.Secret, w.Previous, w.CreatedBy, w.CreatedAt, w.UpdatedAt, w.ChangeNo)
}

// updateWebhook writes the columns that people change, and ends the pause of the receiver. The
// Deliverer writes the others.
func updateWebhook(ctx context.Context, tx *db.Tx, w Webhook) (Webhook, error) {
	return db.One[Webhook](ctx, tx, `UPDATE webhooks SET name = $2, url = $3, events = $4, environment = $5, enabled = $6, secret = $7,
			previous_secret = $8, previous_until = $9, since_seq = $10, updated_at = $11, change_no = $12, until_seq = $13, paused_until = NULL
		WHERE id = $1 RETURNING `+webhookColumns,
		w.ID, w.Name, w.URL, w.Events, w.Environment, w.Enabled, w.Secret, w.Previous, w.PreviousSecretUntil, w.SinceSeq, w.UpdatedAt, w.ChangeNo, w.UntilSeq)
}

func deleteWebhook(ctx context.Context, tx *db.Tx, id int64) error {
	if err := tx.Do(ctx, `DELETE FROM webhook_deliveries WHERE webhook_id = $1`, id); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM webhooks WHERE id = $1`, id)
}

// laneStates returns the enabled subscriptions, and when each has something to send.
func laneStates(ctx context.Context, tx *db.Tx) ([]job.Lane, error) {
	return db.All[job.Lane](ctx, tx, `SELECT id, lane_until, lane_holder, paused_until,
			(SELECT MIN(d.next_at) FROM webhook_deliveries d WHERE d.webhook_id = webhooks.id AND d.state = 'pending') AS due
		FROM webhooks WHERE enabled ORDER BY id`)
}

func getLane(ctx context.Context, tx *db.Tx, id int64) (Webhook, error) {
	return db.One[Webhook](ctx, tx, `SELECT `+laneColumns+` FROM webhooks WHERE id = $1`, id)
}

// changeOf returns the ChangeNo of an enabled subscription; ErrNoRows: it is disabled or deleted.
func changeOf(ctx context.Context, tx *db.Tx, id int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT change_no FROM webhooks WHERE id = $1 AND enabled`, id)
}

// noteOutcome records the result of a batch, and returns how many attempts have failed since the
// last success. It returns ErrNoRows if another replica has taken over the lane.
func noteOutcome(ctx context.Context, tx *db.Tx, id int64, holder string, now time.Time, o outcome) (int64, error) {
	var failed, succeeded *time.Time
	if o.failed > 0 {
		failed = &now
	}
	if o.delivered > 0 {
		succeeded = &now
	}
	return db.One[int64](ctx, tx, `UPDATE webhooks SET failures = CASE WHEN $3 THEN $4 ELSE failures + $4 END,
			paused_until = CASE WHEN $3 THEN NULL ELSE paused_until END,
			last_success_at = COALESCE($5, last_success_at), last_failure_at = COALESCE($6, last_failure_at)
		WHERE id = $1 AND lane_holder = $2 RETURNING failures`, id, holder, o.delivered > 0, o.failedSince, succeeded, failed)
}

// pauseLane stops calls of the receiver until a time.
func pauseLane(ctx context.Context, tx *db.Tx, id int64, until time.Time) error {
	return tx.Do(ctx, `UPDATE webhooks SET paused_until = $2 WHERE id = $1`, id, until)
}

// resumeLane ends the pause of a receiver.
func resumeLane(ctx context.Context, tx *db.Tx, id int64) error {
	return tx.Do(ctx, `UPDATE webhooks SET paused_until = NULL WHERE id = $1`, id)
}

// Secrets declares the secrets of webhooks, for package reseal.
func (s *Service) Secrets() []reseal.Column {
	at := reseal.ByID(place)
	return []reseal.Column{
		{Table: "webhooks", Name: "secret", Key: "id", Box: s.Box, Place: at},
		{Table: "webhooks", Name: "previous_secret", Key: "id", Box: s.Box, Place: at},
	}
}
