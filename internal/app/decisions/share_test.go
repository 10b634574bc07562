package decisions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// A legal control that takes some ten milliseconds a decision, and no answer of
// which is in the cache.
const slowControl = `package slow

size := 40 if input.user.id == "brief"

else := 250

allow if count([1 | some a in numbers.range(1, size); some b in numbers.range(1, size); a + b == input.context.n]) == 0
`

// slowTenant makes a tenant whose decisions are slow.
func slowTenant(t testing.TB, s *apptest.Server) *apptest.Client {
	made := s.Admin.Do(t, "POST", "/tenants", body{"name": "slow"}).Want(201)
	c := s.Admin.With("X-Tenant-ID", fmt.Sprint(made.Get("id")))
	c.Do(t, "POST", "/policies", body{"name": "slow", "environment": "sandbox", "status": "active", "rego_code": slowControl}).Want(201)
	return c
}

// flood keeps so many callers busy with one kind of request each until it is
// stopped; it counts answers by status.
type flood struct {
	counts answerCounts
	over   atomic.Bool
	n      atomic.Int64
	wg     sync.WaitGroup
}

func (f *flood) start(c *apptest.Client, callers int, path string, request func(n int64) any) {
	for range callers {
		f.wg.Go(func() {
			for !f.over.Load() {
				status := 0
				if res, err := c.Try("POST", path, request(f.n.Add(1))); err == nil {
					status = res.Status
				}
				f.counts.add(status)
			}
		})
	}
}

func slowRequest(n int64) body {
	return body{"user": body{"id": "u"}, "action": body{"name": "read"}, "resource": body{"id": "x"}, "context": body{"n": 1_000_000 + n}}
}

func slowBulk(n int64) body {
	items := make([]body, 1000)
	for i := range items {
		items[i] = slowRequest(n*1000 + int64(i))
	}
	return body{"decisions": items}
}

// TestShareOfDecisions: the decisions of one tenant go on while another keeps the
// processors busy with slow controls, one by one, in bulk, and as OPA's clients ask.
func TestShareOfDecisions(t *testing.T) {
	n := newNeighbours(t)
	slow := slowTenant(t, n.server)
	statuses := map[int]int{}
	n.decide(t, 100, statuses)
	quiet := p99(n.decide(t, 400, statuses))
	blob := slowRequest(0)
	blob["context"].(body)["list"] = make([]int, 400_000)
	large, err := json.Marshal(blob)
	if err != nil {
		t.Fatal(err)
	}
	opa := *slow
	opa.Base = n.server.URL
	opa.Header = slow.Header.Clone()
	for _, tc := range []struct {
		name, path string
		client     *apptest.Client
		callers    int
		request    func(int64) any
	}{
		{"24 callers", "/decisions/evaluate?environment=sandbox", slow, 24, func(n int64) any { return slowRequest(n) }},
		{"4 bulk callers", "/decisions/evaluate/bulk?environment=sandbox", slow, 4, func(n int64) any { return slowBulk(n) }},
		{"24 callers with large requests", "/decisions/evaluate?environment=sandbox", slow, 24, func(int64) any { return large }},
		{"64 callers, half a millisecond each", "/decisions/evaluate?environment=sandbox", slow, 64, func(n int64) any {
			r := slowRequest(n)
			r["user"] = body{"id": "brief"}
			return r
		}},
		{"24 callers of OPA's API", "/v1/data/gatehouse/decision", opa.With("X-Environment", "sandbox"), 24, func(n int64) any { return body{"input": slowRequest(n)} }},
	} {
		var f flood
		f.start(tc.client, tc.callers, tc.path, tc.request)
		n.decide(t, 20, statuses) // the flood is there
		took := n.decide(t, 400, statuses)
		f.over.Store(true)
		loud := p99(took)
		t.Logf("%s: p50 %s, p99 %s, quiet p99 %s", tc.name, took[len(took)/2], loud, quiet)
		// On a machine with nothing else to do the bound is 25 ms or 4 times the quiet
		// value; without a share it was 430 ms. Other tests run beside this one.
		if most := max(4*quiet, 100*time.Millisecond); loud > most {
			t.Errorf("%s: p99 of another tenant %s, at most %s", tc.name, loud, most)
		}
	}
	if len(statuses) != 1 {
		t.Errorf("the quiet tenant's decisions were answered %v", statuses)
	}
	n.server.Kill() // nobody waits for the bulk calls
}

func p99(took []time.Duration) time.Duration { return took[len(took)*99/100] }

// TestBulkEnds: a bulk call ends at its deadline, with evaluation_limit for what is
// left, and soon after its caller left.
func TestBulkEnds(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_BULK_DEADLINE=400ms")
	c := slowTenant(t, s)
	res := c.Do(t, "POST", "/decisions/evaluate/bulk?environment=sandbox", slowBulk(0)).Want(200)
	var out struct {
		Results []struct{ Decision, Reason string }
	}
	res.Into(&out)
	permitted, limited := 0, 0
	for i, r := range out.Results {
		switch {
		case r.Decision == "PERMIT" && limited == 0:
			permitted++
		case r.Decision == "DENY" && r.Reason == "evaluation_limit":
			limited++
		default:
			t.Fatalf("item %d: %+v after %d that were permitted and %d that were limited", i, r, permitted, limited)
		}
	}
	if permitted == 0 || limited == 0 || permitted+limited != 1000 {
		t.Errorf("%d permitted, %d limited", permitted, limited)
	}
	n := evaluations(t, s)
	if n < 1000 {
		t.Errorf("%d decisions of 1000 are counted", n)
	}
}

// TestBulkEndsWithItsCaller: what nobody waits for any more is not decided.
func TestBulkEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_BULK_DEADLINE=1m")
	c := slowTenant(t, s)
	text, err := json.Marshal(slowBulk(0))
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", c.Base+"/decisions/evaluate/bulk?environment=sandbox", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = c.Header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.Bearer)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
			t.Error("the call was answered")
		}
	}()
	apptest.Eventually(t, 30*time.Second, func() error {
		if evaluations(t, s) == 0 {
			return errors.New("nothing is decided yet")
		}
		return nil
	})
	leave()
	<-answered
	last := int64(-1)
	apptest.Eventually(t, 30*time.Second, func() error {
		n := evaluations(t, s)
		defer func() { last = n }()
		if n != last {
			return fmt.Errorf("%d decisions, %d a moment ago", n, last)
		}
		return nil
	})
	if last >= 900 {
		t.Errorf("%d of 1000 were decided", last)
	}
}

// evaluations is how many decisions a server made.
func evaluations(t testing.TB, s *apptest.Server) int64 {
	t.Helper()
	total := 0.0
	for line := range strings.Lines(string(s.Admin.Do(t, "GET", "/metrics", nil).Want(200).Body)) {
		if !strings.HasPrefix(line, "gatehouse_policy_evaluations_total{") {
			continue
		}
		_, value, _ := strings.Cut(line, "} ")
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			t.Fatal(line, err)
		}
		total += n
	}
	return int64(total)
}
