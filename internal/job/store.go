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

// claimable is the condition for a job that no runner owns: it is waiting and due, or its lease has
// expired. $2 is the latest end of a lease (db.MaxLeaseEnd).
const claimable = `(state = 'pending' AND run_at <= $1 OR state = 'running' AND (lease_until < $1 OR lease_until > $2))`

// claimTasks claims up to n due jobs. The outer condition repeats the inner one, because another
// runner may have claimed a row in between.
func claimTasks(ctx context.Context, tx *db.Tx, now time.Time, lease time.Duration, n int) ([]Task, error) {
	return db.All[Task](ctx, tx, `UPDATE jobs SET state = 'running', attempt = attempt + 1, lease_until = $3
		WHERE id IN (SELECT id FROM jobs WHERE `+claimable+` ORDER BY run_at, id LIMIT $4) AND `+claimable+`
		RETURNING id, kind, payload, attempt, max_attempts, created_at`, now, db.MaxLeaseEnd(now, lease), now.Add(lease), n)
}

// nextDue returns when the earliest job is due, or nil if there is none. A job whose lease ends
// after latest is due at once.
func nextDue(ctx context.Context, tx *db.Tx, latest time.Time) (*time.Time, error) {
	return db.One[*time.Time](ctx, tx, `SELECT min(CASE WHEN state = 'pending' THEN run_at WHEN lease_until > $1 THEN 0 ELSE lease_until END)
		FROM jobs WHERE state IN ('pending', 'running')`, latest)
}

// NextRun returns the earliest start time of the waiting and running jobs of a kind, or nil if
// there are none.
func NextRun(ctx context.Context, tx *db.Tx, kind string) (*time.Time, error) {
	return db.One[*time.Time](ctx, tx, `SELECT min(run_at) FROM jobs WHERE kind = $1 AND state IN ('pending', 'running')`, kind)
}

// The statements below match the attempt. If the lease of a runner has expired and another one runs
// the task, they change nothing.

func renewTask(ctx context.Context, tx *db.Tx, t Task, until time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE jobs SET lease_until = $3 WHERE id = $1 AND attempt = $2 AND state = 'running'`, t.ID, t.Attempt, until)
	return n == 1, err
}

func deleteTask(ctx context.Context, tx *db.Tx, t Task) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM jobs WHERE id = $1 AND attempt = $2 AND state = 'running'`, t.ID, t.Attempt)
}

func retryTask(ctx context.Context, tx *db.Tx, t Task, at time.Time, why string) (int64, error) {
	return tx.Exec(ctx, `UPDATE jobs SET state = 'pending', run_at = $3, lease_until = 0, last_error = $4
		WHERE id = $1 AND attempt = $2 AND state = 'running'`, t.ID, t.Attempt, at, why)
}

// releaseTask returns a task to the queue. The attempt does not count.
func releaseTask(ctx context.Context, tx *db.Tx, t Task) (int64, error) {
	return tx.Exec(ctx, `UPDATE jobs SET state = 'pending', attempt = attempt - 1, lease_until = 0
		WHERE id = $1 AND attempt = $2 AND state = 'running'`, t.ID, t.Attempt)
}

func killTask(ctx context.Context, tx *db.Tx, t Task, now time.Time, why string) (int64, error) {
	return tx.Exec(ctx, `UPDATE jobs SET state = 'dead', unique_key = NULL, lease_until = 0, last_error = $4, finished_at = $3
		WHERE id = $1 AND attempt = $2 AND state = 'running'`, t.ID, t.Attempt, now, why)
}

// takeLease gives holder a lease that is free, expired (db.MaxLeaseEnd), or already its own.
func takeLease(ctx context.Context, tx *db.Tx, name, holder string, now time.Time, ttl time.Duration) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO leases (name, holder, until) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
		WHERE leases.until < $4 OR leases.until > $5 OR leases.holder = excluded.holder`, name, holder, now.Add(ttl), now, db.MaxLeaseEnd(now, ttl))
	return n == 1, err
}

func freeLease(ctx context.Context, tx *db.Tx, name, holder string) error {
	return tx.Do(ctx, `DELETE FROM leases WHERE name = $1 AND holder = $2`, name, holder)
}

// holdLane acquires a lane that is free or whose lease has expired (db.MaxLeaseEnd), or renews it.
func holdLane(ctx context.Context, tx *db.Tx, table LaneTable, id int64, holder string, now, until time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE `+string(table)+` SET lane_holder = $2, lane_until = $3
		WHERE id = $1 AND enabled AND (lane_until < $4 OR lane_until > $5 OR lane_holder = $2)`, id, holder, until, now, db.MaxLeaseEnd(now, LaneTime))
	return n == 1, err
}

// ReleaseLane releases a lane if holder still owns it.
func ReleaseLane(ctx context.Context, tx *db.Tx, table LaneTable, id int64, holder string) error {
	return tx.Do(ctx, `UPDATE `+string(table)+` SET lane_holder = '', lane_until = 0 WHERE id = $1 AND lane_holder = $2`, id, holder)
}
