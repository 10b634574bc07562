// Package job is durable work, kept in the tenant's own store. Whoever changes
// something inserts the work that follows in the same transaction, so one is
// never there without the other.
//
//	           claim            handler returned nil
//	pending ─────────► running ───────────────────────► (row deleted)
//	   ▲                 │  │ lease over: whoever comes first claims it again
//	   └── later ────────┘  └──► dead, after the last attempt
//	      (an error)
//
// A job runs at least once: a runner that dies, or loses its lease, leaves it to
// another. A handler that changes only the tenant's store makes that exactly once
// by calling Task.Complete in its own transaction.
//
// Leases elect one replica for work that only one should do.
package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// DefaultMaxAttempts is how often a job runs whose Job says nothing.
const DefaultMaxAttempts = 10

// wakeName is what the store tells runners with.
const wakeName = "jobs"

// ErrLost says that a task is no longer this runner's: its lease was over, or it
// was completed already.
var ErrLost = errors.New("job: the task belongs to another runner now")

// Job is work to insert.
type Job struct {
	// Kind names the handler.
	Kind string
	// Payload is what the handler gets, as JSON.
	Payload any
	// RunAt is when to run it first; zero means now.
	RunAt time.Time
	// UniqueKey, if set, makes the job one with any of its kind that has the same
	// key and waits or runs: a second is not inserted.
	UniqueKey string
	// MaxAttempts bounds the runs (DefaultMaxAttempts).
	MaxAttempts int
}

// Task is one run of a job.
type Task struct {
	Tenant      scope.TenantID  `db:"-"`
	ID          int64           `db:"id"`
	Kind        string          `db:"kind"`
	Payload     json.RawMessage `db:"payload"`
	Attempt     int             `db:"attempt"` // 1 at the first run
	MaxAttempts int             `db:"max_attempts"`
	CreatedAt   time.Time       `db:"created_at"`
}

// Decode reads the payload.
func (t Task) Decode(into any) error {
	if err := json.Unmarshal(t.Payload, into); err != nil {
		return Permanent(fmt.Errorf("job: payload of %s: %w", t.Kind, err))
	}
	return nil
}

// Complete ends the job in the transaction that does its work, so that both
// happen or neither. ErrLost means that the work is not to be done.
func (t Task) Complete(ctx context.Context, tx *db.Tx) error {
	n, err := deleteTask(ctx, tx, t)
	if err == nil && n == 0 {
		err = ErrLost
	}
	return err
}

// Handler does the work of one kind. Its context ends when the runner stops or
// the lease is lost. An error means another attempt, later.
type Handler func(ctx context.Context, t Task) error

// Insert adds a job in the caller's transaction, and wakes a runner once that has
// committed. It reports whether the job is new: one with a UniqueKey may be there.
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

// permanent is an error that no further attempt will mend.
type permanent struct{ err error }

func (p permanent) Error() string { return p.err.Error() }
func (p permanent) Unwrap() error { return p.err }

// Permanent makes the job dead at once.
func Permanent(err error) error { return permanent{err} }

// later is an error that says when to try again.
type later struct {
	err   error
	delay time.Duration
}

func (l later) Error() string { return l.err.Error() }
func (l later) Unwrap() error { return l.err }

// RetryAfter is an error that has the job tried again after d.
func RetryAfter(d time.Duration, err error) error { return later{err, d} }

// Backoff is the pause after a failed attempt: 5 s, doubled each time, at most
// an hour.
func Backoff(attempt int) time.Duration {
	const most = time.Hour
	if attempt > 12 {
		return most
	}
	return min(5*time.Second<<max(0, attempt-1), most)
}

// NextRun is when the next job of a kind is due, or was when it runs now; nil where
// none waits or runs.
func NextRun(ctx context.Context, tx *db.Tx, kind string) (*time.Time, error) {
	return nextRun(ctx, tx, kind)
}
