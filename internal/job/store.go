package job

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

func insertJob(ctx context.Context, tx *db.Tx, j Job, payload []byte) (int64, error) {
	var key *string
	if j.UniqueKey != "" {
		key = &j.UniqueKey
	}
	now := tx.Now()
	if j.RunAt.IsZero() {
		j.RunAt = now
	}
	return tx.Exec(ctx, `INSERT INTO jobs (kind, payload, unique_key, state, max_attempts, run_at, created_at)
		VALUES ($1, $2, $3, 'pending', $4, $5, $6)
		ON CONFLICT (kind, unique_key) WHERE unique_key IS NOT NULL DO NOTHING`,
		j.Kind, string(payload), key, j.MaxAttempts, j.RunAt, now)
}

// free says that no runner holds a job: it waits, or its lease is over. A lease that ends after
// $2, later than any lease can, was given before the clock was set back.
const free = `(state = 'pending' AND run_at <= $1 OR state = 'running' AND (lease_until < $1 OR lease_until > $2))`

// claimTasks takes up to n due jobs for the time of a lease. The condition stands twice: the outer
// one holds when another runner took a row in between.
func claimTasks(ctx context.Context, tx *db.Tx, now time.Time, lease time.Duration, n int) ([]Task, error) {
	return db.All[Task](ctx, tx, `UPDATE jobs SET state = 'running', attempt = attempt + 1, lease_until = $3
		WHERE id IN (SELECT id FROM jobs WHERE `+free+` ORDER BY run_at, id LIMIT $4) AND `+free+`
		RETURNING id, kind, payload, attempt, max_attempts, created_at`, now, now.Add(2*lease), now.Add(lease), n)
}

// nextDue is when the earliest job becomes due; nil when there is none. A job is due at once
// whose lease ends after latest.
func nextDue(ctx context.Context, tx *db.Tx, latest time.Time) (*time.Time, error) {
	return db.One[*time.Time](ctx, tx, `SELECT min(CASE WHEN state = 'pending' THEN run_at WHEN lease_until > $1 THEN 0 ELSE lease_until END)
		FROM jobs WHERE state IN ('pending', 'running')`, latest)
}

func nextRun(ctx context.Context, tx *db.Tx, kind string) (*time.Time, error) {
	return db.One[*time.Time](ctx, tx, `SELECT min(run_at) FROM jobs WHERE kind = $1 AND state IN ('pending', 'running')`, kind)
}

// The statements below name the attempt: a runner whose lease was over, and whose
// task runs elsewhere since, changes nothing.

func renewTask(ctx context.Context, tx *db.Tx, t Task, until time.Time) (int64, error) {
	return tx.Exec(ctx, `UPDATE jobs SET lease_until = $3 WHERE id = $1 AND attempt = $2 AND state = 'running'`, t.ID, t.Attempt, until)
}

func deleteTask(ctx context.Context, tx *db.Tx, t Task) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM jobs WHERE id = $1 AND attempt = $2 AND state = 'running'`, t.ID, t.Attempt)
}

func retryTask(ctx context.Context, tx *db.Tx, t Task, at time.Time, why string) (int64, error) {
	return tx.Exec(ctx, `UPDATE jobs SET state = 'pending', run_at = $3, lease_until = 0, last_error = $4
		WHERE id = $1 AND attempt = $2 AND state = 'running'`, t.ID, t.Attempt, at, why)
}

// releaseTask gives a task back as if it had not been claimed.
func releaseTask(ctx context.Context, tx *db.Tx, t Task) (int64, error) {
	return tx.Exec(ctx, `UPDATE jobs SET state = 'pending', attempt = attempt - 1, lease_until = 0
		WHERE id = $1 AND attempt = $2 AND state = 'running'`, t.ID, t.Attempt)
}

func killTask(ctx context.Context, tx *db.Tx, t Task, now time.Time, why string) (int64, error) {
	return tx.Exec(ctx, `UPDATE jobs SET state = 'dead', unique_key = NULL, lease_until = 0, last_error = $4, finished_at = $3
		WHERE id = $1 AND attempt = $2 AND state = 'running'`, t.ID, t.Attempt, now, why)
}

// takeLease makes holder the holder of a lease that is free, over, or its own. A lease that ends
// later than any lease can was given before the clock was set back.
func takeLease(ctx context.Context, tx *db.Tx, name, holder string, now time.Time, ttl time.Duration) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO leases (name, holder, until) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
		WHERE leases.until < $4 OR leases.until > $5 OR leases.holder = excluded.holder`, name, holder, now.Add(ttl), now, now.Add(2*ttl))
	return n == 1, err
}

func freeLease(ctx context.Context, tx *db.Tx, name, holder string) error {
	_, err := tx.Exec(ctx, `DELETE FROM leases WHERE name = $1 AND holder = $2`, name, holder)
	return err
}

// holdLane: a lease that ends later than any lease can was given before the clock was
// moved back.
func holdLane(ctx context.Context, tx *db.Tx, table LaneTable, id int64, holder string, now, until time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE `+string(table)+` SET lane_holder = $2, lane_until = $3
		WHERE id = $1 AND enabled AND (lane_until < $4 OR lane_until > $5 OR lane_holder = $2)`, id, holder, until, now, until.Add(LaneTime))
	return n == 1, err
}

func freeLane(ctx context.Context, tx *db.Tx, table LaneTable, id int64, holder string) error {
	_, err := tx.Exec(ctx, `UPDATE `+string(table)+` SET lane_holder = '', lane_until = 0 WHERE id = $1 AND lane_holder = $2`, id, holder)
	return err
}
