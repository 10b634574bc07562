package job_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// tenant returns a tenant's store.
func tenant(t testing.TB, c *db.Cluster, id scope.TenantID) *db.DB {
	t.Helper()
	d, err := c.Tenant(context.Background(), id)
	errtest.Must(t, err)
	return d
}

// insert inserts jobs, and returns how many are new.
func insert(t testing.TB, d *db.DB, jobs ...job.Job) (added int) {
	t.Helper()
	err := d.Write(context.Background(), func(tx *db.Tx) error {
		added = 0
		for _, j := range jobs {
			ok, err := job.Insert(context.Background(), tx, j)
			if err != nil {
				return err
			}
			if ok {
				added++
			}
		}
		return nil
	})
	errtest.Must(t, err)
	return added
}

// states counts the jobs of a store by state.
func states(t testing.TB, d *db.DB) map[string]int64 {
	t.Helper()
	type row struct {
		State string `db:"state"`
		N     int64  `db:"n"`
	}
	out := map[string]int64{}
	err := d.Read(context.Background(), func(tx *db.Tx) error {
		rows, err := db.All[row](context.Background(), tx, `SELECT state, count(*) AS n FROM jobs GROUP BY state`)
		for _, r := range rows {
			out[r.State] = r.N
		}
		return err
	})
	errtest.Must(t, err)
	return out
}

// start runs a runner until the test ends.
func start(t testing.TB, r *job.Runner) (stop func()) {
	t.Helper()
	if r.Now == nil {
		r.Now = func() time.Time { return time.Now().UTC() }
	}
	r.Logger = quiet
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// get returns the next value of a channel.
func get[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was received within 20 seconds")
		panic("unreachable")
	}
}

// TestRunsEachOnce: three runners together run each job once, whether it was inserted before or after they
// started.
func TestRunsEachOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ran := make(chan string, 100)
		handlers := map[string]job.Handler{"hello": func(_ context.Context, task job.Task) error {
			var n int
			err := task.Decode(&n)
			ran <- fmt.Sprint(task.Tenant, n)
			return err
		}}
		for _, id := range []scope.TenantID{"default", "t2"} { // insert half of them before the runner starts
			for i := range 5 {
				insert(t, tenant(t, c, id), job.Job{Kind: "hello", Payload: i})
			}
		}
		for range 3 {
			start(t, &job.Runner{Cluster: c, Kinds: kinds(handlers, nil)})
		}
		for _, id := range []scope.TenantID{"default", "t2"} {
			for i := 5; i < 10; i++ {
				insert(t, tenant(t, c, id), job.Job{Kind: "hello", Payload: i})
			}
		}
		seen := map[string]int{}
		for range 20 {
			seen[get(t, ran)]++
		}
		timetest.WaitFor(t, "no job in the store", func() bool { return len(states(t, tenant(t, c, "default")))+len(states(t, tenant(t, c, "t2"))) == 0 })
		if len(seen) != 20 || len(ran) != 0 {
			t.Errorf("jobs that ran = %v, and %d more, want 20", seen, len(ran))
		}
	})
}

// TestInsertIsPartOfTheTransaction: a job of a transaction that is rolled back does not exist, and a unique
// key admits one job of its kind.
func TestInsertIsPartOfTheTransaction(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		d := tenant(t, c, "default")
		_ = d.Write(context.Background(), func(tx *db.Tx) error {
			if ok, err := job.Insert(context.Background(), tx, job.Job{Kind: "x"}); !ok || err != nil {
				t.Errorf("Insert = %v, %v, want true", ok, err)
			}
			return errors.New("undo")
		})
		if got := states(t, d); len(got) != 0 {
			t.Errorf("jobs after the rollback = %v, want none", got)
		}
		one := job.Job{Kind: "x", UniqueKey: "k"}
		if n := insert(t, d, one, one, job.Job{Kind: "y", UniqueKey: "k"}, job.Job{Kind: "x"}, job.Job{Kind: "x"}); n != 4 {
			t.Errorf("%d inserted, want 4", n)
		}
	})
}

// TestRetryAndDeath: a job that fails is retried until it has no attempts left, and then reported dead. Jobs
// of an unknown kind wait.
func TestRetryAndDeath(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		d := tenant(t, c, "default")
		var attempts, panics atomic.Int32
		dead := make(chan string, 10)
		start(t, &job.Runner{
			Panics: &fault.Panics{Add: func(where string) {
				if where == "job" {
					panics.Add(1)
				}
			}},
			Cluster: c,
			Backoff: func(string, int) time.Duration { return time.Millisecond },
			Kinds: kinds(map[string]job.Handler{
				"fails":    func(context.Context, job.Task) error { attempts.Add(1); return errors.New("no\x00t yet") },
				"panics":   func(context.Context, job.Task) error { panic("a bug") },
				"hopeless": func(context.Context, job.Task) error { return job.Permanent(errors.New("never")) },
				"later":    func(context.Context, job.Task) error { return job.RetryAfter(time.Hour, errors.New("later")) },
			}, func(_ context.Context, _ *db.Tx, task job.Task, cause error) error {
				dead <- fmt.Sprintf("%s %d", task.Kind, task.Attempt)
				return nil
			}),
		})
		insert(t, d, job.Job{Kind: "fails", MaxAttempts: 3, UniqueKey: "k"}, job.Job{Kind: "panics", MaxAttempts: 2}, job.Job{Kind: "hopeless"},
			job.Job{Kind: "later"}, job.Job{Kind: "unknown"})
		got := map[string]bool{}
		for range 3 {
			got[get(t, dead)] = true
		}
		if !got["fails 3"] || !got["panics 2"] || !got["hopeless 1"] || attempts.Load() != 3 || panics.Load() != 2 {
			t.Errorf("dead jobs = %v after %d attempts and %d panics, want 3 after 3 and 2", got, attempts.Load(), panics.Load())
		}
		timetest.WaitFor(t, "3 dead and 2 pending jobs", func() bool {
			s := states(t, d)
			return s["dead"] == 3 && s["pending"] == 2 && s["running"] == 0
		})
		if insert(t, d, job.Job{Kind: "fails", UniqueKey: "k", RunAt: time.Now().Add(time.Hour)}) != 1 {
			t.Error("a dead job still holds its unique key")
		}
	})
}

// TestLaterJobsWait: a job does not run before its time.
func TestLaterJobsWait(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ran := make(chan time.Time, 1)
		start(t, &job.Runner{Cluster: c, Kinds: kinds(map[string]job.Handler{"x": func(context.Context, job.Task) error {
			ran <- time.Now()
			return nil
		}}, nil)})
		at := time.Now().Add(150 * time.Millisecond)
		insert(t, tenant(t, c, "default"), job.Job{Kind: "x", RunAt: at})
		if got := get(t, ran); got.Before(at.Truncate(time.Microsecond)) {
			t.Errorf("the job runs %v before its time", at.Sub(got))
		}
	})
}

// TestDeadRunner: if a runner does not renew its lease, another one claims the job. The first
// runner can no longer complete it.
func TestDeadRunner(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		d := tenant(t, c, "default")
		var offset atomic.Int64
		now := func() time.Time { return time.Now().UTC().Add(time.Duration(offset.Load())) }
		runs := make(chan job.Task, 10)
		goOn := make(chan struct{})
		var completed atomic.Int32
		handlers := map[string]job.Handler{"x": func(_ context.Context, task job.Task) error {
			runs <- task
			if task.Attempt == 1 {
				<-goOn // ignores its context
			}
			return d.Write(ctx, func(tx *db.Tx) error {
				if err := task.Complete(ctx, tx); err != nil {
					return err
				}
				completed.Add(1)
				return nil
			})
		}}
		start(t, &job.Runner{Cluster: c, Kinds: kinds(handlers, nil), Now: now})
		insert(t, d, job.Job{Kind: "x"})
		if first := get(t, runs); first.Attempt != 1 {
			t.Errorf("first task = %+v, want attempt 1", first)
		}
		offset.Store(int64(2 * time.Minute)) // past the lease
		start(t, &job.Runner{Cluster: c, Kinds: kinds(handlers, nil), Now: now})
		if second := get(t, runs); second.Attempt != 2 {
			t.Errorf("second task = %+v, want attempt 2", second)
		}
		timetest.WaitFor(t, "no job in the store", func() bool { return len(states(t, d)) == 0 })
		close(goOn)
		if n := completed.Load(); n != 1 {
			t.Errorf("the job is completed %d times, want 1", n)
		}
	})
}

// TestClockAhead checks that a runner stops its run of a job that a replica whose clock is ahead has
// claimed.
func TestClockAhead(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		d := tenant(t, c, "default")
		runs, stopped := make(chan int, 10), make(chan error, 10)
		handlers := map[string]job.Handler{"x": func(ctx context.Context, task job.Task) error {
			runs <- task.Attempt
			if task.Attempt == 1 {
				<-ctx.Done()
				stopped <- context.Cause(ctx)
				return ctx.Err()
			}
			return nil
		}}
		start(t, &job.Runner{Cluster: c, Kinds: kinds(handlers, nil), Lease: time.Second, Now: func() time.Time { return time.Now().UTC() }})
		insert(t, d, job.Job{Kind: "x"})
		if first := get(t, runs); first != 1 {
			t.Fatalf("the first run is attempt %d", first)
		}
		start(t, &job.Runner{Cluster: c, Kinds: kinds(handlers, nil), Lease: time.Second, Now: func() time.Time { return time.Now().UTC().Add(5 * time.Minute) }})
		if second := get(t, runs); second != 2 {
			t.Errorf("the second run is attempt %d", second)
		}
		if err := get(t, stopped); !errors.Is(err, job.ErrLost) {
			t.Errorf("the first run ended with %v, want %v", err, job.ErrLost)
		}
		timetest.WaitFor(t, "the job is done", func() bool { return len(states(t, d)) == 0 })
	})
}

// TestStopGivesBack: a runner that stops gives its job back, without counting the attempt.
func TestStopGivesBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		d := tenant(t, c, "default")
		running := make(chan struct{}, 1)
		stop := start(t, &job.Runner{Cluster: c, Kinds: kinds(map[string]job.Handler{"x": func(ctx context.Context, _ job.Task) error {
			running <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}}, nil)})
		insert(t, d, job.Job{Kind: "x", MaxAttempts: 1})
		get(t, running)
		stop()
		if s := states(t, d); s["pending"] != 1 {
			t.Errorf("jobs after the stop = %v, want one pending", s)
		}
		again := make(chan int, 1)
		start(t, &job.Runner{Cluster: c, Kinds: kinds(map[string]job.Handler{"x": func(_ context.Context, task job.Task) error {
			again <- task.Attempt
			return nil
		}}, nil)})
		if n := get(t, again); n != 1 {
			t.Errorf("attempt = %d, want 1", n)
		}
	})
}

// TestLeases: one holder has a lease at a time, until it ends or is released. A lease that ends too far in
// the future does not count.
func TestLeases(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		var offset atomic.Int64
		now := func() time.Time { return time.Now().UTC().Add(time.Duration(offset.Load())) }
		a := &job.Leases{System: c.System(), Holder: "a", Now: now, Logger: quiet}
		b := &job.Leases{System: c.System(), Holder: "b", Now: now, Logger: quiet}
		take := func(l *job.Leases, want bool) {
			t.Helper()
			if got, err := l.Acquire(ctx, "work", time.Minute); err != nil || got != want {
				t.Errorf("Acquire by %s = %v, %v, want %v", l.Holder, got, err, want)
			}
		}
		take(a, true)
		take(b, false)
		take(a, true)
		offset.Store(int64(2 * time.Minute))
		take(b, true)
		take(a, false)
		errtest.Must(t, b.Release(ctx, "work"))
		take(a, true)
		offset.Store(int64(-10 * time.Minute)) // the clock of this replica is behind: the lease holds
		take(b, false)
		offset.Store(int64(-365 * 24 * time.Hour)) // the clock was ahead
		take(b, true)
		take(a, false)
	})
}

// TestClockGoesBack: when the clock is set back by a year, claimed jobs and scheduled checks do not
// wait for a year.
func TestClockGoesBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		d := tenant(t, c, "default")
		var offset atomic.Int64
		offset.Store(int64(365 * 24 * time.Hour))
		now := func() time.Time { return time.Now().UTC().Add(time.Duration(offset.Load())) }
		runs, hang := make(chan int, 10), make(chan struct{})
		handlers := map[string]job.Handler{"hangs": func(_ context.Context, task job.Task) error {
			runs <- task.Attempt
			if task.Attempt == 1 {
				<-hang
			}
			return nil
		}, "later": func(context.Context, job.Task) error {
			runs <- 100
			return nil
		}}
		start(t, &job.Runner{Cluster: c, Kinds: kinds(handlers, nil), Now: now, Poll: 20 * time.Millisecond})
		release := sync.OnceFunc(func() { close(hang) })
		t.Cleanup(release)
		insert(t, d, job.Job{Kind: "hangs"})
		if got := get(t, runs); got != 1 {
			t.Fatalf("first attempt = %d, want 1", got)
		}
		offset.Store(0)
		if got := get(t, runs); got != 2 {
			t.Errorf("attempt after the clock went back = %d, want 2", got)
		}
		release()
		insert(t, d, job.Job{Kind: "later", RunAt: now().Add(time.Hour)})
		timetest.WaitFor(t, "only the later job", func() bool { return len(states(t, d)) == 1 })
		offset.Store(int64(2 * time.Hour)) // without a notification
		if got := get(t, runs); got != 100 {
			t.Errorf("job = %d, want the later one", got)
		}
	})
}

// TestLead: one of three holders leads at a time, and each of them in the end.
func TestLead(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		var leaders, most atomic.Int32
		began := make(chan string, 10)
		var wg sync.WaitGroup
		cancels := map[string]context.CancelFunc{}
		for _, holder := range []string{"a", "b", "c"} {
			l := &job.Leases{System: c.System(), Holder: holder, Now: func() time.Time { return time.Now().UTC() }, Logger: quiet}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			cancels[holder] = cancel
			wg.Go(func() {
				l.Lead(ctx, "work", 600*time.Millisecond, func(ctx context.Context) {
					if n := leaders.Add(1); n > most.Load() {
						most.Store(n)
					}
					began <- holder
					<-ctx.Done()
					leaders.Add(-1)
				})
			})
		}
		for range 3 { // three leaders, one after the other
			cancels[get(t, began)]()
		}
		wg.Wait()
		if most.Load() != 1 {
			t.Errorf("%d leaders at a time, want 1", most.Load())
		}
	})
}

func BenchmarkJobs(b *testing.B) {
	for _, backend := range dbtest.Backends() {
		b.Run(backend, func(b *testing.B) {
			c := dbtest.Open(b, backend)
			d := tenant(b, c, "default")
			jobs := make([]job.Job, 500)
			for i := range jobs {
				jobs[i] = job.Job{Kind: "x", Payload: i}
			}
			for left := b.N; left > 0; left -= len(jobs) {
				insert(b, d, jobs[:min(left, len(jobs))]...)
			}
			var done atomic.Int64
			all := make(chan struct{})
			b.ResetTimer()
			stop := start(b, &job.Runner{Cluster: c, Kinds: kinds(map[string]job.Handler{"x": func(context.Context, job.Task) error {
				if done.Add(1) == int64(b.N) {
					close(all)
				}
				return nil
			}}, nil)})
			<-all
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.StopTimer()
			stop()
		})
	}
}

// TestKillsItsRunners: a job that stops every runner is dead after its last attempt.
func TestKillsItsRunners(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		d := tenant(t, c, "default")
		var offset atomic.Int64
		now := func() time.Time { return time.Now().UTC().Add(time.Duration(offset.Load())) }
		goOn := make(chan struct{})
		defer close(goOn) // before the test waits for the runners
		runs := make(chan job.Task, 10)
		handlers := map[string]job.Handler{"x": func(_ context.Context, task job.Task) error {
			runs <- task
			<-goOn // like a runner that was killed
			return nil
		}}
		dead := make(chan error, 1)
		insert(t, d, job.Job{Kind: "x", MaxAttempts: 2})
		for attempt := range 3 {
			start(t, &job.Runner{Cluster: c, Now: now, Kinds: kinds(handlers, func(_ context.Context, _ *db.Tx, _ job.Task, cause error) error {
				dead <- cause
				return nil
			})})
			if attempt < 2 {
				if task := get(t, runs); task.Attempt != attempt+1 {
					t.Errorf("attempt %d, want %d", task.Attempt, attempt+1)
				}
				offset.Add(int64(2 * time.Minute)) // past the lease
			}
		}
		if cause := get(t, dead); cause == nil {
			t.Error("the dead job has no cause")
		}
		timetest.WaitFor(t, "one dead job", func() bool { return states(t, d)["dead"] == 1 })
		if len(runs) != 0 {
			t.Errorf("the job runs %d times more, want none", len(runs))
		}
	})
}

// kinds returns a kind for each handler. All of them use dead.
func kinds(handlers map[string]job.Handler, dead func(context.Context, *db.Tx, job.Task, error) error) []job.Kind {
	var out []job.Kind
	for name, h := range handlers {
		out = append(out, job.Kind{Name: name, Work: h, Dead: dead})
	}
	return out
}
