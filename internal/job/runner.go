package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Kind is a kind of job, with its handlers.
type Kind struct {
	Name string
	// Work runs a job.
	Work Handler
	// Dead, if set, is called when a job has failed for good, in the transaction that marks it as
	// dead.
	Dead func(ctx context.Context, tx *db.Tx, t Task, cause error) error
}

// Runner runs the jobs of all tenants. Each replica has one. Leases in the store prevent two
// runners from running the same job at once. If the clocks of two replicas differ by more than
// Lease, the one that is ahead may claim a running job. The other one then stops its run within a
// third of Lease, and stores no result.
type Runner struct {
	Cluster *db.Cluster
	// Kinds are the kinds of jobs. Each package declares its own in jobs.go.
	Kinds  []Kind
	Now    func() time.Time
	Logger *slog.Logger
	// Panics counts panics of handlers.
	Panics *fault.Panics
	// Concurrency is the maximum number of jobs that run at once (default 8). One tenant gets three
	// quarters of them, also if it is the only one. Jobs that are away (Task.Away) take no slot, up to
	// awayFactor times as many, but they count for their tenant.
	Concurrency int
	// Lease is how long a runner owns a job without renewing the lease (default 1 min).
	Lease time.Duration
	// Poll is the interval at which all tenants are checked, in case a notification was lost
	// (default 5 min).
	Poll time.Duration
	// Backoff returns the delay after a failed attempt (default: the function Backoff).
	Backoff func(kind string, attempt int) time.Duration

	agenda *Agenda
	slots  chan struct{}
	away   chan struct{}
	shares shares
	tasks  sync.WaitGroup
}

// perClaim is the maximum number of jobs that one tenant gets before the next tenant is served.
const perClaim = 8

// awayFactor is how many jobs may be away for each slot.
const awayFactor = 8

// Run runs jobs until ctx ends. It returns when the last job has stopped. Interrupted jobs are
// released, and the attempt does not count.
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
	r.slots, r.away = make(chan struct{}, r.Concurrency), make(chan struct{}, awayFactor*r.Concurrency)
	r.shares = shares{perTenant: max(1, r.Concurrency*3/4), running: map[scope.TenantID]int{}, refused: map[scope.TenantID]bool{}}
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

// serve claims jobs of one tenant, starts them, and schedules the next check. The caller has taken
// one slot.
func (r *Runner) serve(ctx context.Context, tenant scope.TenantID) {
	share := r.shares.take(tenant, perClaim)
	if share == 0 {
		<-r.slots
		return
	}
	n := 1 + r.takeSlots(share-1)
	tasks, again, err := r.claim(ctx, tenant, n)
	if err != nil && ctx.Err() == nil && !fault.Is(err, fault.NotFound) {
		r.Logger.Warn("jobs could not be claimed", "tenant", tenant, "error", err)
		retry := r.Now().Add(2 * time.Second)
		again = &retry
	}
	for range n - len(tasks) {
		<-r.slots
	}
	r.giveBack(tenant, share-len(tasks))
	if again != nil {
		r.agenda.Schedule(tenant, *again)
	}
	for _, t := range tasks {
		t.Tenant, t.completing, t.leave = tenant, new(atomic.Bool), r.leave
		r.tasks.Go(func() {
			defer r.giveBack(tenant, 1)
			defer func() { <-r.slots }()
			r.run(ctx, t)
		})
	}
}

// giveBack returns the shares of n jobs of a tenant.
func (r *Runner) giveBack(tenant scope.TenantID, n int) {
	if r.shares.giveBack(tenant, n) {
		r.agenda.Schedule(tenant, time.Time{})
	}
}

// takeSlots takes up to limit free slots, and returns how many.
func (r *Runner) takeSlots(limit int) int {
	for n := range limit {
		select {
		case r.slots <- struct{}{}:
		default:
			return n
		}
	}
	return limit
}

// claim claims up to n due jobs. It returns when to check again; nil means never.
func (r *Runner) claim(ctx context.Context, tenant scope.TenantID, n int) (tasks []Task, again *time.Time, err error) {
	store, err := r.Cluster.Tenant(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	now := r.Now()
	latest := db.MaxLeaseEnd(now, r.Lease)
	// Most checks find nothing, so they must not wait for the write lock.
	again, err = db.ReadStore(ctx, store, func(tx *db.Tx) (*time.Time, error) { return nextDue(ctx, tx, latest) })
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

// run runs a task and stores its result.
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
	finishing, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	if err := r.storeResult(finishing, ctx.Err() != nil, t, err); err != nil {
		r.Logger.Warn("the result of a job cannot be stored; the job will run again", "tenant", t.Tenant, "kind", t.Kind, "id", t.ID, "error", err)
	}
}

// renew renews the lease of a task while it runs. If the lease expires, or another runner has
// claimed the task because its clock is ahead, it cancels the task's context.
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
		var owned bool
		err := r.write(ctx, t.Tenant, func(ctx context.Context, tx *db.Tx) (err error) {
			owned, err = renewTask(ctx, tx, t, r.Now().Add(r.Lease))
			return err
		})
		switch {
		case err != nil:
		case owned:
			over.Reset(r.Lease - r.Now().Sub(began))
		case t.completing.Load():
			return
		default:
			cancel(ErrLost)
			return
		}
	}
}

// errKilled is the error of a job that stopped its server during every attempt. The job may be the
// cause.
var errKilled = errors.New("its server stopped during every attempt")

// call runs the handler. It returns a panic as an error.
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

// storeResult stores the result of a task.
func (r *Runner) storeResult(ctx context.Context, stopping bool, t Task, cause error) error {
	_, permanent := errors.AsType[permanentError](cause)
	return r.write(ctx, t.Tenant, func(ctx context.Context, tx *db.Tx) error {
		switch {
		case cause == nil:
			_, err := deleteTask(ctx, tx, t)
			return err
		case stopping:
			_, err := releaseTask(ctx, tx, t)
			return err
		case permanent || t.Attempt >= t.MaxAttempts:
			n, err := killTask(ctx, tx, t, r.Now(), reason(cause))
			if err != nil || n == 0 {
				return err
			}
			k, known := r.kind(t.Kind)
			switch {
			case !known: // declared by another version, so Dead is unknown here
				r.Logger.WarnContext(ctx, "a job of an unknown kind was abandoned", "tenant", t.Tenant, "kind", t.Kind, "id", t.ID, "error", cause)
			case k.Dead != nil:
				return k.Dead(ctx, tx, t, cause)
			}
			return nil
		}
		delay := r.Backoff(t.Kind, t.Attempt)
		if delayed, ok := errors.AsType[retryError](cause); ok {
			delay = delayed.delay
		}
		_, err := retryTask(ctx, tx, t, r.Now().Add(delay), reason(cause))
		if err != nil {
			return err
		}
		return tx.Notify(ctx, wakeName)
	})
}

// reason returns the text of an error, shortened for the store.
func reason(err error) string {
	text := err.Error()
	if len(text) > 1000 {
		text = text[:1000]
	}
	clean := []rune(text) // invalid UTF-8 becomes the replacement character
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
