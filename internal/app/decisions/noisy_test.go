package decisions_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// A program that an author may try out and that never ends of itself.
const neverEnding = `package endless

allow if count([1 | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); some c in numbers.range(1, 3000); a + b + c < 0]) > 0
`

// neighbours are a server with two tenants: one that will be noisy, with an
// endless control, and one whose decisions are watched.
type neighbours struct {
	server       *apptest.Server
	noisy, quiet *apptest.Client
	control      int64
}

func newNeighbours(t testing.TB) *neighbours {
	s := apptest.StartServer(t, dbtest.SQLite)
	n := &neighbours{server: s, quiet: s.Admin}
	made := s.Admin.Do(t, "POST", "/tenants", body{"name": "noisy"}).Want(201)
	n.noisy = s.Admin.With("X-Tenant-ID", fmt.Sprint(made.Get("id")))
	n.control = n.noisy.Do(t, "POST", "/policies", body{"name": "endless", "environment": "sandbox", "rego_code": neverEnding}).Want(201).ID()
	n.quiet.Do(t, "POST", "/policies", body{"name": "quiet", "environment": "sandbox", "status": "active", "rego_code": "package quiet\n\nallow if input.user.role == \"admin\"\n"}).Want(201)
	return n
}

// burst starts 50 hostile programs at once; counts is told of each answer.
func (n *neighbours) burst(counts *answerCounts) (wait func()) {
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

// answerCounts counts answers by status; 0 is none.
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

// decide asks for decisions of the quiet tenant and gives how long each took.
func (n *neighbours) decide(t testing.TB, count int, statuses map[int]int) []time.Duration {
	took := make([]time.Duration, 0, count)
	for i := range count {
		began := time.Now()
		res, err := n.quiet.Try("POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": fmt.Sprint("u", i), "role": "admin"}, "action": body{"name": "read"}, "resource": body{"id": "x"}})
		took = append(took, time.Since(began))
		if err != nil {
			t.Fatal(err)
		}
		statuses[res.Status]++
	}
	slices.Sort(took)
	return took
}

// TestNoisyNeighbour (R8): of a burst of hostile programs a part is refused with
// 429, and nothing of another tenant's is: neither decisions nor validations.
func TestNoisyNeighbour(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	var counts answerCounts
	n.burst(&counts)
	defer n.server.Kill() // nobody waits for what is left of the burst
	statuses := map[int]int{}
	n.decide(t, 200, statuses)
	if statuses[200] != 200 {
		t.Errorf("the quiet tenant's decisions were answered %v", statuses)
	}
	n.quiet.Do(t, "POST", "/policies/validate", body{"rego_code": "package q\n\nallow if true\n"}).Want(200)
	// Two run at most, sixteen may wait: the others are refused at once.
	apptest.Eventually(t, 30*time.Second, func() error {
		if got := counts.of(429); got < 50-2-16 {
			return fmt.Errorf("%d of the burst of 50 were refused", got)
		}
		return nil
	})
	if counts.of(500)+counts.of(503) > 0 {
		t.Errorf("the burst was answered %v", counts.by)
	}
}

// BenchmarkNoisyNeighbour prints how many times its quiet value the 99th
// percentile of a tenant's decisions is while another one's hostile programs run: at most
// 2 on a machine with nothing else to do.
func BenchmarkNoisyNeighbour(b *testing.B) {
	n := newNeighbours(b)
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
