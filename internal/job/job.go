// Package job runs durable background work, which is stored in the tenant's own store. A caller
// inserts a job in the transaction of the change that causes it, so that both are committed or
// neither.
//
//	           claim            handler returned nil
//	pending ─────────► running ───────────────────────► (row deleted)
//	   ▲                 │  │ lease expired: the next runner claims it again
//	   └── later ────────┘  └──► dead, after the last attempt
//	      (an error)
//
// A job runs at least once: if a runner stops or loses its lease, another one runs the job again. A
// handler that changes only the tenant's store can run exactly once: it calls Task.Complete in its
// own transaction.
//
// Leases elect one replica for work that only one replica may do.
package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// DefaultMaxAttempts is the number of attempts if Job.MaxAttempts is not set.
const DefaultMaxAttempts = 10

// wakeName is the name of the notification about new jobs.
const wakeName = "jobs"

// ErrLost means that this runner no longer owns the task: its lease has expired, or the task is
// complete.
var ErrLost = errors.New("job: the task belongs to another runner now")

// Job is a job to insert.
type Job struct {
	// Kind selects the handler.
	Kind string
	// Payload is passed to the handler as JSON.
	Payload any
	// RunAt is the time of the first attempt; zero means now.
	RunAt time.Time
	// UniqueKey, if set, prevents duplicates: Insert does nothing if a job of this kind with this
	// key is waiting or running.
	UniqueKey string
	// MaxAttempts is the maximum number of attempts (default DefaultMaxAttempts).
	MaxAttempts int
}

// Task is one attempt to run a job.
type Task struct {
	Tenant      scope.TenantID  `db:"-"`
	ID          int64           `db:"id"`
	Kind        string          `db:"kind"`
	Payload     json.RawMessage `db:"payload"`
	Attempt     int             `db:"attempt"` // 1 for the first attempt
	MaxAttempts int             `db:"max_attempts"`
	CreatedAt   time.Time       `db:"created_at"`
	// completing is set once the handler has called Complete. A job that is gone then was not
	// ended by another runner.
	completing *atomic.Bool
	// leave frees the slot of the task until the function that it returns is called.
	leave func() (comeBack func())
}

// Decode decodes the payload into into. An error is Permanent.
func (t Task) Decode(into any) error {
	if err := json.Unmarshal(t.Payload, into); err != nil {
		return Permanent(fmt.Errorf("job: payload of %s: %w", t.Kind, err))
	}
	return nil
}

// Complete deletes the job in the transaction that does its work, so that both are committed or
// neither. If the error is ErrLost, roll the work back.
func (t Task) Complete(ctx context.Context, tx *db.Tx) error {
	if t.completing != nil { // the runner claimed the task
		t.completing.Store(true)
	}
	n, err := deleteTask(ctx, tx, t)
	if err == nil && n == 0 {
		err = ErrLost
	}
	return err
}

// Handler runs the jobs of one kind. Its context ends when the runner stops or loses the lease. If
// it returns an error, the job is retried later.
type Handler func(ctx context.Context, t Task) error

// Insert adds a job in the caller's transaction. A runner is woken after the commit. It returns
// false if Job.UniqueKey prevented the insert.
func Insert(ctx context.Context, tx *db.Tx, j Job) (bool, error) {
	if j.Kind == "" {
		return false, fault.Wrap(errors.New("job: no kind"), "job")
	}
	if j.MaxAttempts <= 0 {
		j.MaxAttempts = DefaultMaxAttempts
	}
	payload, err := json.Marshal(j.Payload)
	if err != nil {
		return false, fault.Wrap(err, "job payload")
	}
	n, err := insertJob(ctx, tx, j, payload)
	if err != nil || n == 0 {
		return false, err
	}
	return true, tx.Notify(ctx, wakeName)
}

// permanentError is an error for which a retry is pointless.
type permanentError struct{ err error }

func (p permanentError) Error() string { return p.err.Error() }
func (p permanentError) Unwrap() error { return p.err }

// Permanent wraps an error of a handler, so that the job becomes dead without another attempt.
func Permanent(err error) error { return permanentError{err} }

// retryError is an error with the delay before the next attempt.
type retryError struct {
	err   error
	delay time.Duration
}

func (l retryError) Error() string { return l.err.Error() }
func (l retryError) Unwrap() error { return l.err }

// RetryAfter wraps an error of a handler, so that the next attempt starts after d.
func RetryAfter(d time.Duration, err error) error { return retryError{err, d} }

// Backoff returns the delay after a failed attempt: 5 s, doubled for each further attempt, at most
// 1 h.
func Backoff(attempt int) time.Duration {
	const most = time.Hour
	if attempt > 12 {
		return most
	}
	return min(5*time.Second<<max(0, attempt-1), most)
}
