package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Kind is one kind of job: who does it, and who ends what waits for it.
type Kind struct {
	Name string
	// Work does a job.
	Work Handler
	// Dead, if set, is called in the transaction that buries a job of this kind after
	// its last attempt.
	Dead func(ctx context.Context, tx *db.Tx, t Task, cause error) error
}

// Runner runs the jobs of all tenants. Replicas each have one; the store keeps
// them from running a job twice at a time.
type Runner struct {
	Cluster *db.Cluster
	// Kinds are the kinds of job that packages declare, each in its jobs.go.
	Kinds  []Kind
	Now    func() time.Time
	Logger *slog.Logger
	// Panics counts the panics of handlers.
	Panics *fault.Panics
	// Concurrency is how many jobs run at a time (8).
	Concurrency int
	// Lease is how long a job stays with a runner that gives no sign of life (1 min).
	Lease time.Duration
	// Poll is how often all tenants are looked at, in case that a wake was missed
	// (5 min).
	Poll time.Duration
	// Backoff is the pause after a failed attempt; nil means the package's.
	Backoff func(kind string, attempt int) time.Duration

	agenda *Agenda
	slots  chan struct{}
	tasks  sync.WaitGroup
}

// perClaim bounds how many jobs one tenant gets before the next has its turn.
const perClaim = 8

// Run runs jobs until ctx ends, and returns when the last one has stopped. Jobs
// that had to stop go back without a lost attempt.
func (r *Runner) Run(ctx context.Context) error {
	if r.Concurrency <= 0 {
		r.Concurrency = 8
	}
	if r.Lease <= 0 {
		r.Lease = time.Minute
	}
	if r.Poll <= 0 {
		r.Poll = 5 * time.Minute
	}
	if r.Backoff == nil {
		r.Backoff = func(_ string, attempt int) time.Duration { return Backoff(attempt) }
	}
	r.slots = make(chan struct{}, r.Concurrency)
	r.agenda = &Agenda{Cluster: r.Cluster, Topic: wakeName, Now: r.Now, Poll: r.Poll, Logger: r.Logger}
	defer r.agenda.Begin()()
	defer r.tasks.Wait()
	for {
		tenant, ok := r.agenda.Next(ctx)
		if !ok {
			return nil
		}
		select {
		case <-ctx.Done():
		case r.slots <- struct{}{}:
			r.serve(ctx, tenant)
		}
	}
}

// serve claims jobs of one tenant, starts them, and notes when to come back. The
// caller has taken one slot.
func (r *Runner) serve(ctx context.Context, tenant scope.TenantID) {
	n := 1
	for n < perClaim {
		select {
		case r.slots <- struct{}{}:
			n++
			continue
		default:
		}
		break
	}
	tasks, again, err := r.claim(ctx, tenant, n)
	if err != nil && ctx.Err() == nil && !fault.Is(err, fault.NotFound) {
		r.Logger.Warn("jobs: cannot be claimed", "tenant", tenant, "error", err)
		soon := r.Now().Add(2 * time.Second)
		again = &soon
	}
	for range n - len(tasks) {
		<-r.slots
	}
	if again != nil {
		r.agenda.Schedule(tenant, *again)
	}
	for _, t := range tasks {
		t.Tenant = tenant
		r.tasks.Go(func() {
			defer func() { <-r.slots }()
			r.run(ctx, t)
		})
	}
}

// claim takes up to n due jobs, and tells when to look again; nil is never.
func (r *Runner) claim(ctx context.Context, tenant scope.TenantID, n int) (tasks []Task, again *time.Time, err error) {
	store, err := r.Cluster.Tenant(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	now := r.Now()
	latest := now.Add(2 * r.Lease)
	// Most looks find nothing; they should not take the writer's turn.
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		again, err = nextDue(ctx, tx, latest)
		return err
	})
	if err != nil || again == nil || again.After(now) {
		return nil, again, err
	}
	err = store.Write(ctx, func(tx *db.Tx) (err error) {
		if tasks, err = claimTasks(ctx, tx, now, r.Lease, n); err != nil {
			return err
		}
		again, err = nextDue(ctx, tx, latest)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return tasks, again, nil
}

// run runs one task and settles it.
func (r *Runner) run(ctx context.Context, t Task) {
	inner, cancel := context.WithCancelCause(ctx)
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		r.renew(inner, t, cancel)
	}()
	err := r.call(inner, t)
	lost := context.Cause(inner)
	cancel(nil)
	<-renewing
	if errors.Is(lost, ErrLost) {
		r.Logger.Warn("a job's lease was lost", "tenant", t.Tenant, "kind", t.Kind, "id", t.ID)
		return
	}
	settle, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	if err := r.finish(settle, ctx.Err() != nil, t, err); err != nil {
		r.Logger.Warn("the result of a job cannot be stored; the job will run again", "tenant", t.Tenant, "kind", t.Kind, "id", t.ID, "error", err)
	}
}

// renew prolongs the lease of a task while it runs, and ends its context when
// that is no longer possible.
func (r *Runner) renew(ctx context.Context, t Task, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(r.Lease / 3)
	defer tick.Stop()
	over := time.NewTimer(r.Lease)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			cancel(ErrLost)
			return
		case <-tick.C:
		}
		began := r.Now()
		var n int64
		err := r.write(ctx, t.Tenant, func(ctx context.Context, tx *db.Tx) (err error) {
			n, err = renewTask(ctx, tx, t, r.Now().Add(r.Lease))
			return err
		})
		if err == nil && n == 0 { // completed by its handler, or taken by another runner
			return
		}
		if err == nil {
			over.Reset(r.Lease - r.Now().Sub(began))
		}
	}
}

// errKilled buries a job whose runners all died: it may be what kills them.
var errKilled = errors.New("its server stopped during every attempt")

// call runs the handler; its panic is an error.
func (r *Runner) call(ctx context.Context, t Task) (err error) {
	if t.Attempt > t.MaxAttempts {
		return Permanent(errKilled)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %s", fault.DescribePanic(p))
			r.Panics.Count("job")
			r.Logger.Error("a job panicked", "tenant", t.Tenant, "kind", t.Kind, "id", t.ID, "panic", fault.DescribePanic(p), "stack", string(debug.Stack()))
		}
	}()
	k, known := r.kind(t.Kind)
	if !known {
		return RetryAfter(time.Hour, fmt.Errorf("no handler for jobs of kind %q in this version", t.Kind))
	}
	return k.Work(ctx, t)
}

func (r *Runner) kind(name string) (Kind, bool) {
	for _, k := range r.Kinds {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// finish writes down how a task went.
func (r *Runner) finish(ctx context.Context, stopping bool, t Task, cause error) error {
	var forGood permanent
	var delayed later
	return r.write(ctx, t.Tenant, func(ctx context.Context, tx *db.Tx) error {
		switch {
		case cause == nil:
			_, err := deleteTask(ctx, tx, t)
			return err
		case stopping:
			_, err := releaseTask(ctx, tx, t)
			return err
		case errors.As(cause, &forGood) || t.Attempt >= t.MaxAttempts:
			n, err := killTask(ctx, tx, t, r.Now(), reason(cause))
			if err != nil || n == 0 {
				return err
			}
			k, known := r.kind(t.Kind)
			switch {
			case !known: // of another version: nobody here knows what waits for it
				r.Logger.WarnContext(ctx, "a job of an unknown kind was abandoned", "tenant", t.Tenant, "kind", t.Kind, "id", t.ID, "error", cause)
			case k.Dead != nil:
				return k.Dead(ctx, tx, t, cause)
			}
			return nil
		}
		delay := r.Backoff(t.Kind, t.Attempt)
		if errors.As(cause, &delayed) {
			delay = delayed.delay
		}
		_, err := retryTask(ctx, tx, t, r.Now().Add(delay), reason(cause))
		if err != nil {
			return err
		}
		return tx.Notify(ctx, wakeName)
	})
}

// reason is an error's text, short enough to keep.
func reason(err error) string {
	text := err.Error()
	if len(text) > 1000 {
		text = text[:1000]
	}
	clean := []rune(text) // what is no UTF-8 becomes a replacement character
	for i, c := range clean {
		if c == 0 {
			clean[i] = ' '
		}
	}
	return string(clean)
}

func (r *Runner) write(ctx context.Context, tenant scope.TenantID, f func(context.Context, *db.Tx) error) error {
	return r.Cluster.Write(ctx, tenant, func(tx *db.Tx) error { return f(ctx, tx) })
}
