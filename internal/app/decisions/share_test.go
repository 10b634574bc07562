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
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// slowControl is a legal control that takes some ten milliseconds. No answer comes from the cache.
const slowControl = `package slow

size := 40 if input.user.id == "brief"

else := 250

allow if count([1 | some a in numbers.range(1, size); some b in numbers.range(1, size); a + b == input.context.n]) == 0
`

// slowTenant creates a tenant whose decisions are slow.
func slowTenant(t testing.TB, s *apptest.Server) *apptest.Client {
	made := s.Admin.Do(t, "POST", "/tenants", body{"name": "slow"}).Want(201)
	c := s.Admin.With("X-Tenant-ID", fmt.Sprint(made.Get("id")))
	c.Do(t, "POST", "/policies", body{"name": "slow", "environment": "sandbox", "status": "active", "rego_code": slowControl}).Want(201)
	return c
}

// flood keeps callers busy with requests until it is stopped, and counts the answers by status.
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

// TestShareOfDecisions checks that one tenant still gets decisions while another keeps the processors
// busy with slow controls: with single requests, in bulk, and with OPA's API.
func TestShareOfDecisions(t *testing.T) {
	n := newTwoTenants(t)
	slow := slowTenant(t, n.server)
	statuses := map[int]int{}
	n.decide(t, 100, statuses)
	quiet := p99(n.decide(t, 400, statuses))
	blob := slowRequest(0)
	blob["context"].(body)["list"] = make([]int, 400_000)
	large, err := json.Marshal(blob)
	errtest.Must(t, err)
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
		n.decide(t, 20, statuses) // the flood has started
		took := n.decide(t, 400, statuses)
		f.over.Store(true)
		loud := p99(took)
		t.Logf("%s: p50 %s, p99 %s, quiet p99 %s", tc.name, took[len(took)/2], loud, quiet)
		// On an idle machine the limit is 25 ms or 4 times the quiet value. Without shares it was 430 ms.
		// Other tests run beside this one, so the test allows more.
		if most := max(4*quiet, 100*time.Millisecond); loud > most {
			t.Errorf("%s: the p99 of the other tenant is %s, want at most %s", tc.name, loud, most)
		}
	}
	if len(statuses) != 1 {
		t.Errorf("the statuses of the quiet tenant's decisions = %v, want one", statuses)
	}
	n.server.Kill() // which ends the bulk calls
}

func p99(took []time.Duration) time.Duration { return took[len(took)*99/100] }

// TestBulkEnds checks that a bulk call ends at its deadline, with evaluation_limit for the remaining
// items.
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
			t.Fatalf("the item %d is %+v after %d permitted and %d limited items", i, r, permitted, limited)
		}
	}
	if permitted == 0 || limited == 0 || permitted+limited != 1000 {
		t.Errorf("the call has %d permitted and %d limited items, want some of both and 1000 in all", permitted, limited)
	}
	n := countEvaluations(t, s)
	if n < 1000 {
		t.Errorf("the metrics count %d decisions, want at least 1000", n)
	}
}

// TestBulkEndsWithItsCaller checks that the server stops deciding after the caller has left.
func TestBulkEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_BULK_DEADLINE=1m")
	c := slowTenant(t, s)
	text, err := json.Marshal(slowBulk(0))
	errtest.Must(t, err)
	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", c.Base+"/decisions/evaluate/bulk?environment=sandbox", bytes.NewReader(text))
	errtest.Must(t, err)
	req.Header = c.Header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.Bearer)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
			t.Error("the bulk call got an answer before its caller left")
		}
	}()
	apptest.Eventually(t, 30*time.Second, func() error {
		if countEvaluations(t, s) == 0 {
			return errors.New("the server has made no decision")
		}
		return nil
	})
	leave()
	<-answered
	last := int64(-1)
	apptest.Eventually(t, 30*time.Second, func() error {
		n := countEvaluations(t, s)
		defer func() { last = n }()
		if n != last {
			return fmt.Errorf("the server still decides: %d decisions after %d", n, last)
		}
		return nil
	})
	if last >= 900 {
		t.Errorf("the server made %d of 1000 decisions, want fewer than 900", last)
	}
}

// countEvaluations returns the number of decisions that a server made.
func countEvaluations(t testing.TB, s *apptest.Server) int64 {
	t.Helper()
	total := 0.0
	for connection := range strings.Lines(string(s.Admin.Do(t, "GET", "/metrics", nil).Want(200).Body)) {
		if !strings.HasPrefix(connection, "gatehouse_policy_evaluations_total{") {
			continue
		}
		_, value, _ := strings.Cut(connection, "} ")
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			t.Fatal(connection, err)
		}
		total += n
	}
	return int64(total)
}
