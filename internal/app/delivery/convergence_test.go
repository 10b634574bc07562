package delivery_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// fleet is many bouncers that only fetch their bundles.
type fleet struct {
	s       *apptest.Server
	client  *http.Client
	pollers []*poller
}

// newFleet registers n bouncers.
func newFleet(t testing.TB, s *apptest.Server, n int) *fleet {
	t.Helper()
	f := &fleet{s: s, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}, pollers: make([]*poller, n)}
	t.Cleanup(f.client.CloseIdleConnections)
	for i := range f.pollers {
		b := s.Register(t, s.Admin, body{"name": fmt.Sprint("edge-", i), "environment": "production"}, "127.0.0.1:9")
		f.pollers[i] = &poller{id: b.ID, token: b.Token}
	}
	return f
}

// fetch lets each bouncer get its first bundle.
func (f *fleet) fetch(t testing.TB) {
	t.Helper()
	var all sync.WaitGroup
	for _, p := range f.pollers {
		all.Go(func() {
			if code, err := p.poll(f.client, f.s.URL, 0, func() {}); err != nil || code != 200 {
				t.Errorf("the first poll = %d, %v, want 200", code, err)
			}
		})
	}
	all.Wait()
}

// park starts a poll of each bouncer with its tag. When it returns, all requests are sent. The
// polls end with a new bundle or with the server.
func (f *fleet) park(t testing.TB, wait int) *sync.WaitGroup {
	t.Helper()
	var sent atomic.Int64
	var all sync.WaitGroup
	for _, p := range f.pollers {
		all.Go(func() { _, _ = p.poll(f.client, f.s.URL, wait, func() { sent.Add(1) }) })
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		if n := sent.Load(); n < int64(len(f.pollers)) {
			return fmt.Errorf("%d of %d polls are sent", n, len(f.pollers))
		}
		return nil
	})
	return &all
}

// arrival is a revision that reached a bouncer.
type arrival struct {
	tag string
	at  time.Time
}

// follow lets each bouncer poll again after each answer, as bouncers do, until the context ends.
func (f *fleet) follow(ctx context.Context) (arrivals <-chan arrival, done *sync.WaitGroup) {
	out := make(chan arrival, 16*len(f.pollers))
	done = &sync.WaitGroup{}
	for _, p := range f.pollers {
		done.Go(func() {
			for ctx.Err() == nil {
				before := p.tag
				if _, err := p.poll(f.client, f.s.URL, 30, func() {}); err != nil {
					return // the server has ended
				}
				if p.tag != before {
					out <- arrival{p.tag, time.Now()}
				}
			}
		})
	}
	return out, done
}

// waitForConvergence waits until the control plane shows that all bouncers run the current
// revision.
func (f *fleet) waitForConvergence(t testing.TB) {
	t.Helper()
	apptest.Eventually(t, 30*time.Second, func() error {
		if v := f.s.Admin.Do(t, "GET", "/deployments/revisions/production", nil).Want(200).Get("converged"); v != true {
			return fmt.Errorf("converged is %v, want true", v)
		}
		return nil
	})
}

// spread is how long after its request a change reached the middle and the last bouncer.
type spread struct{ middle, last time.Duration }

// changes makes n changes, one after the other. It returns the worst times.
func (f *fleet) changes(t testing.TB, policy int64, n int, arrivals <-chan arrival) (worst spread) {
	t.Helper()
	for i := range n {
		f.waitForConvergence(t)
		began := time.Now()
		f.s.Admin.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": fmt.Sprintf("package all\n\nallow := input.n == %d\n", i)}).Want(200)
		late := make([]time.Duration, 0, len(f.pollers))
		over := time.After(20 * time.Second)
		for len(late) < len(f.pollers) {
			select {
			case a := <-arrivals:
				late = append(late, a.at.Sub(began))
			case <-over:
				t.Fatalf("the change %d reached %d bouncers, want %d", i, len(late), len(f.pollers))
			}
		}
		slices.Sort(late)
		worst = spread{max(worst.middle, late[len(late)/2]), max(worst.last, late[len(late)-1])}
	}
	f.waitForConvergence(t)
	return worst
}

// measureChanges starts a server with bouncers that poll, and makes changes. It returns the worst
// times.
func measureChanges(t testing.TB, bouncers, changes int) spread {
	s := apptest.StartServer(t, dbtest.SQLite)
	policy := apptest.Activate(t, s.Admin, "all", "production", "package all\n\nallow := true\n", nil)
	f := newFleet(t, s, bouncers)
	f.fetch(t)
	ctx, cancel := context.WithCancel(t.Context())
	arrivals, done := f.follow(ctx)
	got := f.changes(t, policy, changes, arrivals)
	cancel()
	s.Stop() // which ends the waiting polls
	done.Wait()
	return got
}

// TestConvergence checks that each change reaches every connected bouncer once, within five seconds, and
// that the control plane shows when all run it.
func TestConvergence(t *testing.T) {
	// The goal is a second for the last bouncer. Here other tests use the processors too.
	if got := measureChanges(t, 50, 5); got.last > 5*time.Second {
		t.Errorf("a change reached the last bouncer after %s, want at most 5 s", got.last)
	}
}

// BenchmarkConvergence measures 500 bouncers. The goal is 200 ms for the middle one and a second for the
// last.
func BenchmarkConvergence(b *testing.B) {
	for b.Loop() {
		got := measureChanges(b, 500, 10)
		b.ReportMetric(float64(got.middle)/1e6, "ms/middle")
		b.ReportMetric(float64(got.last)/1e6, "ms/last")
	}
}

// BenchmarkParkedPolls measures the memory of a thousand waiting polls. The goal is 64 MiB.
func BenchmarkParkedPolls(b *testing.B) {
	for b.Loop() {
		s := apptest.StartServer(b, dbtest.SQLite)
		apptest.Activate(b, s.Admin, "all", "production", "package all\n\nallow := true\n", nil)
		f := newFleet(b, s, 1000)
		f.fetch(b)
		before := residentMiB(b, s.Pid())
		f.client.CloseIdleConnections()
		polls := f.park(b, 60)
		f.waitForConvergence(b)
		b.ReportMetric(residentMiB(b, s.Pid())-before, "MiB/1000polls")
		b.ReportMetric(residentMiB(b, s.Pid()), "MiB/server")
		s.Stop()
		polls.Wait()
	}
}

// BenchmarkFootprint measures an idle server (goal 120 MiB), an idle bouncer (60 MiB), and the time from
// the start of a server with data until it is ready (1 s).
func BenchmarkFootprint(b *testing.B) {
	for b.Loop() {
		s := apptest.StartServer(b, dbtest.SQLite)
		app := apptest.NewBackend(b, nil)
		var resources []int64
		for i := range 100 {
			id := s.Admin.Do(b, "POST", "/resources", body{"name": fmt.Sprint("r", i), "type": "api", "path": fmt.Sprintf("/r%d/**", i), "environment": "production"}).Want(201).ID()
			apptest.Activate(b, s.Admin, fmt.Sprint("control-", i), "production", apptest.Payroll, body{"resource_id": id})
			resources = append(resources, id)
		}
		s.Stop()
		began := time.Now()
		s.Start()
		b.ReportMetric(float64(time.Since(began))/1e6, "ms/server-ready")
		s.Admin = s.Login(b, "admin", apptest.Password)
		p := s.Bouncer(b, s.Admin, body{"name": "idle", "environment": "production", "resource_ids": resources}, app.Addr)
		p.Stop()
		began = time.Now()
		p.Start()
		b.ReportMetric(float64(time.Since(began))/1e6, "ms/bouncer-ready")
		b.ReportMetric(residentMiB(b, s.Pid()), "MiB/server")
		b.ReportMetric(residentMiB(b, p.Pid()), "MiB/bouncer")
		p.Stop()
		s.Stop()
	}
}
