package decisions_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// twoTenants is a server with a noisy tenant, which has an endless control, and a quiet one.
type twoTenants struct {
	server       *apptest.Server
	noisy, quiet *apptest.Client
	control      int64
}

func newTwoTenants(t testing.TB) *twoTenants {
	s := apptest.StartServer(t, dbtest.SQLite)
	n := &twoTenants{server: s, quiet: s.Admin}
	made := s.Admin.Do(t, "POST", "/tenants", body{"name": "noisy"}).Want(201)
	n.noisy = s.Admin.With("X-Tenant-ID", fmt.Sprint(made.Get("id")))
	n.control = n.noisy.Do(t, "POST", "/policies", body{"name": "endless", "environment": "sandbox", "rego_code": endlessControl}).Want(201).ID()
	n.quiet.Do(t, "POST", "/policies", body{"name": "quiet", "environment": "sandbox", "status": "active", "rego_code": "package quiet\n\nallow if input.user.role == \"admin\"\n"}).Want(201)
	return n
}

// burst starts 50 hostile programs in parallel. counts counts the answers.
func (n *twoTenants) burst(counts *answerCounts) (wait func()) {
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			status := 0
			if res, err := n.noisy.Try("POST", fmt.Sprintf("/policies/%d/test", n.control), body{
				"test_cases": []body{{"name": "a", "input": body{"n": i}, "expected": true}},
			}); err == nil {
				status = res.Status
			}
			counts.add(status)
		})
	}
	return wg.Wait
}

// answerCounts counts answers by status; 0 for no answer.
type answerCounts struct {
	mu sync.Mutex
	by map[int]int
}

func (c *answerCounts) add(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[int]int{}
	}
	c.by[status]++
}

func (c *answerCounts) of(status int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[status]
}

// decide makes decisions in the quiet tenant and returns how long each took, sorted.
func (n *twoTenants) decide(t testing.TB, count int, statuses map[int]int) []time.Duration {
	took := make([]time.Duration, 0, count)
	for i := range count {
		began := time.Now()
		res, err := n.quiet.Try("POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": fmt.Sprint("u", i), "role": "admin"}, "action": body{"name": "read"}, "resource": body{"id": "x"}})
		took = append(took, time.Since(began))
		errtest.Must(t, err)
		statuses[res.Status]++
	}
	slices.Sort(took)
	return took
}

// TestNoisyNeighbour (R8) checks that a part of a burst of hostile programs is refused with 429, and that
// another tenant's decisions and validations are not.
func TestNoisyNeighbour(t *testing.T) {
	t.Parallel()
	n := newTwoTenants(t)
	var counts answerCounts
	n.burst(&counts)
	defer n.server.Kill() // which ends the rest of the burst
	statuses := map[int]int{}
	n.decide(t, 200, statuses)
	if statuses[200] != 200 {
		t.Errorf("the statuses of the quiet tenant's decisions = %v, want 200 only", statuses)
	}
	n.quiet.Do(t, "POST", "/policies/validate", body{"rego_code": "package q\n\nallow if true\n"}).Want(200)
	// At most two run and sixteen wait. The server refuses the others at once.
	apptest.Eventually(t, 30*time.Second, func() error {
		if got := counts.of(429); got < 50-2-16 {
			return fmt.Errorf("the server refused %d of 50 requests, want at least 32", got)
		}
		return nil
	})
	if counts.of(500)+counts.of(503) > 0 {
		t.Errorf("the statuses of the burst = %v, want no 500 or 503", counts.by)
	}
}

// BenchmarkNoisyNeighbour compares the 99th percentile of a tenant's decisions during another tenant's
// hostile programs with that of a quiet server. The goal is a ratio of at most 2 on an idle machine.
func BenchmarkNoisyNeighbour(b *testing.B) {
	n := newTwoTenants(b)
	for b.Loop() {
		statuses := map[int]int{}
		n.decide(b, 500, statuses)
		quiet := p99(n.decide(b, 2000, statuses))
		var counts answerCounts
		wait := n.burst(&counts)
		loud := p99(n.decide(b, 2000, statuses))
		wait()
		b.ReportMetric(float64(quiet.Microseconds()), "quiet-p99-us")
		b.ReportMetric(float64(loud.Microseconds()), "loud-p99-us")
		b.ReportMetric(float64(loud)/float64(quiet), "ratio")
	}
}
