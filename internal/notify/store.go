package notify

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

// laneColumns are the columns that sending needs. They leave out the counts, which are slow.
const laneColumns = `id, name, type, endpoint, environment, severity_threshold, max_attempts, enabled, settings, credential, created_by,
	created_at, updated_at, change_no, last_success_at, last_failure_at, quiet_hours, digest_window, digest_until`

const channelColumns = laneColumns + `,
	(SELECT COUNT(*) FROM notification_deliveries d WHERE d.channel_id = notification_channels.id AND d.next_at IS NOT NULL) AS pending,
	(SELECT COUNT(*) FROM notification_deliveries d WHERE d.channel_id = notification_channels.id AND d.next_at IS NOT NULL AND d.status = 'held') AS held,
	(SELECT COUNT(*) FROM notification_deliveries d WHERE d.channel_id = notification_channels.id AND d.status = 'dlq') AS dead`

const inEnv = ` WHERE ($1 = '' OR environment = $1)`

func countChannels(ctx context.Context, tx *db.Tx, env scope.Env) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM notification_channels`+inEnv, string(env))
}

func listChannels(ctx context.Context, tx *db.Tx, env scope.Env, skip, limit int64) ([]Channel, error) {
	return db.All[Channel](ctx, tx, `SELECT `+channelColumns+` FROM notification_channels`+inEnv+` ORDER BY id LIMIT $2 OFFSET $3`, string(env), limit, skip)
}

func getChannel(ctx context.Context, tx *db.Tx, id int64) (Channel, error) {
	return db.One[Channel](ctx, tx, `SELECT `+channelColumns+` FROM notification_channels WHERE id = $1`, id)
}

func getLane(ctx context.Context, tx *db.Tx, id int64) (Channel, error) {
	return db.One[Channel](ctx, tx, `SELECT `+laneColumns+` FROM notification_channels WHERE id = $1`, id)
}

func channelNamed(ctx context.Context, tx *db.Tx, name string) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT id FROM notification_channels WHERE name = $1`, name)
}

// channelsAmong returns those ids that channels of an environment have.
func channelsAmong(ctx context.Context, tx *db.Tx, env scope.Env, ids []int64) ([]int64, error) {
	return db.AllIn[int64](ctx, tx, `SELECT id FROM notification_channels WHERE environment = $1 AND id IN ($in)`, ids, string(env))
}

func insertChannel(ctx context.Context, tx *db.Tx, c Channel) (Channel, error) {
	return db.One[Channel](ctx, tx, `INSERT INTO notification_channels (name, type, endpoint, environment, severity_threshold, severity_rank, max_attempts,
			enabled, settings, credential, created_by, created_at, updated_at, change_no, quiet_hours, digest_window)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING `+channelColumns,
		c.Name, c.Type, c.Endpoint, string(c.Environment), c.SeverityThreshold, severityRank(c.SeverityThreshold), c.MaxAttempts,
		c.Enabled, c.Settings, c.Credential, c.CreatedBy, c.CreatedAt, c.UpdatedAt, c.ChangeNo, c.QuietHours, c.DigestWindow)
}

// updateChannel writes the columns that people change. The Deliverer writes the others.
func updateChannel(ctx context.Context, tx *db.Tx, c Channel) (Channel, error) {
	return db.One[Channel](ctx, tx, `UPDATE notification_channels SET name = $2, endpoint = $3, severity_threshold = $4, severity_rank = $5,
			max_attempts = $6, enabled = $7, settings = $8, credential = $9, updated_at = $10, change_no = $11,
			quiet_hours = $12, digest_window = $13
		WHERE id = $1 RETURNING `+channelColumns,
		c.ID, c.Name, c.Endpoint, c.SeverityThreshold, severityRank(c.SeverityThreshold), c.MaxAttempts, c.Enabled, c.Settings, c.Credential, c.UpdatedAt, c.ChangeNo,
		c.QuietHours, c.DigestWindow)
}

func deleteChannel(ctx context.Context, tx *db.Tx, id int64) error {
	for _, sql := range []string{
		`DELETE FROM notification_deliveries WHERE channel_id = $1`,
		`DELETE FROM notification_faults WHERE channel_id = $1`,
		`DELETE FROM notification_channels WHERE id = $1`,
	} {
		if err := tx.Do(ctx, sql, id); err != nil {
			return err
		}
	}
	return nil
}

// channelLanes returns the enabled channels, and when each has something to send.
func channelLanes(ctx context.Context, tx *db.Tx) ([]job.Lane, error) {
	return db.All[job.Lane](ctx, tx, `SELECT id, lane_until, lane_holder,
			(SELECT MIN(d.next_at) FROM notification_deliveries d WHERE d.channel_id = notification_channels.id AND d.next_at IS NOT NULL) AS due
		FROM notification_channels WHERE enabled ORDER BY id`)
}

// noteAttempt records when an attempt succeeded or failed. It returns false if another replica has
// taken over the lane.
func noteAttempt(ctx context.Context, tx *db.Tx, id int64, holder string, now time.Time, ok bool) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE notification_channels SET last_success_at = CASE WHEN $4 THEN $3 ELSE last_success_at END,
			last_failure_at = CASE WHEN $4 THEN last_failure_at ELSE $3 END
		WHERE id = $1 AND lane_holder = $2`, id, holder, now, ok)
	return n == 1, err
}

// Secrets declares the credentials of channels, for package reseal.
func (s *Service) Secrets() []reseal.Column {
	return []reseal.Column{{Table: "notification_channels", Name: "credential", Key: "id", Box: s.Box, Place: reseal.ByID(place)}}
}
