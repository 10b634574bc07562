package webhook

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

const webhookColumns = `id, name, url, events, environment, enabled, secret, previous_secret, previous_until, since_seq, created_by, created_at,
	updated_at, change_no, failures, last_success_at, last_failure_at,
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

// updateWebhook writes what people change. The lane's columns are the Deliverer's.
func updateWebhook(ctx context.Context, tx *db.Tx, w Webhook) (Webhook, error) {
	return db.One[Webhook](ctx, tx, `UPDATE webhooks SET name = $2, url = $3, events = $4, environment = $5, enabled = $6, secret = $7,
			previous_secret = $8, previous_until = $9, since_seq = $10, updated_at = $11, change_no = $12
		WHERE id = $1 RETURNING `+webhookColumns,
		w.ID, w.Name, w.URL, w.Events, w.Environment, w.Enabled, w.Secret, w.Previous, w.PreviousSecretUntil, w.SinceSeq, w.UpdatedAt, w.ChangeNo)
}

func deleteWebhook(ctx context.Context, tx *db.Tx, id int64) error {
	if _, err := tx.Exec(ctx, `DELETE FROM webhook_deliveries WHERE webhook_id = $1`, id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM webhooks WHERE id = $1`, id)
	return err
}

// laneState is one subscription as the Deliverer looks at it.
type laneState struct {
	ID    int64      `db:"id"`
	Due   *time.Time `db:"due"` // nil: nothing waits
	Until time.Time  `db:"lane_until"`
	Owner string     `db:"lane_holder"`
}

// laneStates are the enabled subscriptions and when each has something to send.
func laneStates(ctx context.Context, tx *db.Tx) ([]laneState, error) {
	return db.All[laneState](ctx, tx, `SELECT id, lane_until, lane_holder,
			(SELECT MIN(d.next_at) FROM webhook_deliveries d WHERE d.webhook_id = webhooks.id AND d.state = 'pending') AS due
		FROM webhooks WHERE enabled ORDER BY id`)
}

// holdLane takes the lane of a subscription that is enabled and whose lane is free,
// or prolongs ours.
func holdLane(ctx context.Context, tx *db.Tx, id int64, holder string, now, until time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE webhooks SET lane_holder = $2, lane_until = $3
		WHERE id = $1 AND enabled AND (lane_until < $4 OR lane_holder = $2)`, id, holder, until, now)
	return n == 1, err
}

func freeLane(ctx context.Context, tx *db.Tx, id int64, holder string) error {
	_, err := tx.Exec(ctx, `UPDATE webhooks SET lane_holder = '', lane_until = 0 WHERE id = $1 AND lane_holder = $2`, id, holder)
	return err
}

// noteRound writes how a round went. It gives false where the lane is not ours any more.
func noteRound(ctx context.Context, tx *db.Tx, id int64, holder string, now time.Time, r round) (bool, error) {
	var failed, succeeded *time.Time
	if r.failed > 0 {
		failed = &now
	}
	if r.delivered > 0 {
		succeeded = &now
	}
	n, err := tx.Exec(ctx, `UPDATE webhooks SET failures = CASE WHEN $3 THEN $4 ELSE failures + $4 END,
			last_success_at = COALESCE($5, last_success_at), last_failure_at = COALESCE($6, last_failure_at)
		WHERE id = $1 AND lane_holder = $2`, id, holder, r.delivered > 0, r.failedSince, succeeded, failed)
	return n == 1, err
}
