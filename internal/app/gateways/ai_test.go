package gateways_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/cache/cachetest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/template"
)

// TestTokenBudgetRunsOut checks that two bouncers of an application apply the budget of the
// resource's tier, with the usage that the model reports.
func TestTokenBudgetRunsOut(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	catalogue, err := template.Load()
	errtest.Must(t, err)
	var cost atomic.Int64
	cost.Store(4000)
	app := apptest.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":0}}\n\ndata: [DONE]\n\n", cost.Load())
	})
	tpl, _ := catalogue.Get("AI_TOKEN_RATE_LIMIT")
	resource := s.Admin.Do(t, "POST", "/resources", body{"name": "model", "type": "llm", "path": "/v1/**", "resource_kind": "llm_endpoint", "sla_tier": "bronze"}).Want(201).ID()
	apptest.Activate(t, s.Admin, "budget", "sandbox", tpl.Source(), body{"resource_id": resource})
	apptest.Enforce(t, s.Admin, "sandbox")
	b := s.Bouncer(t, s.Admin, body{"name": "ai", "environment": "sandbox", "resource_ids": []int64{resource}}, app.Addr)
	c := b.As("ann", "staff")
	ask := func(c *apptest.Client) *apptest.Response {
		return c.Do(t, "POST", "/v1/chat/completions", body{"model": "gpt-4o", "stream": true, "max_tokens": 10, "messages": []body{{"role": "user", "content": "Hello"}}})
	}
	// 10000 a minute; the clock may strike once in between.
	granted := 0
	var last *apptest.Response
	for granted < 8 {
		if last = ask(c); last.Status != 200 {
			break
		}
		granted++
	}
	if granted < 3 || granted > 6 || last.Status != 429 || !strings.Contains(string(last.Body), "token budget of this minute is used up") {
		t.Errorf("the bouncers granted %d requests of 4000 tokens, then %d %s, want 429 after the budget", granted, last.Status, last.Body)
	}
	if res := ask(b.As("bob", "staff")); res.Status != 200 {
		t.Errorf("the request of another caller = %d %s, want 200", res.Status, res.Body)
	}
	c.Do(t, "POST", "/v1/chat/completions", []byte(`{"model":`)).Expect("a broken body", 400)
}

// TestDestructiveToolIsAudited checks that the audit has the refused call of a tool with its
// arguments.
func TestDestructiveToolIsAudited(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	catalogue, err := template.Load()
	errtest.Must(t, err)
	app := apptest.NewBackend(t, nil)
	tpl, _ := catalogue.Get("MCP_DESTRUCTIVE_ACTION_GUARD")
	resource := s.Admin.Do(t, "POST", "/resources", body{"name": "tools", "type": "mcp", "path": "/mcp", "resource_kind": "mcp_server", "audit_level": "detailed"}).Want(201).ID()
	apptest.Activate(t, s.Admin, "guard", "sandbox", tpl.Source(), body{"resource_id": resource})
	apptest.Enforce(t, s.Admin, "sandbox")
	b := s.Bouncer(t, s.Admin, body{"name": "ai", "environment": "sandbox", "resource_ids": []int64{resource}}, app.Addr)
	res := b.As("agent", "agent").With("X-Request-Id", "destroys").Do(t, "POST", "/mcp", body{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body{"name": "run_query", "arguments": body{"sql": "DROP TABLE users"}}})
	if res.Status != 200 || !strings.Contains(string(res.Body), "-32001") || len(app.Take()) != 0 {
		t.Errorf("the tool call = %d %s, want a refusal", res.Status, res.Body)
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		page := s.Admin.Do(t, "GET", "/decisions/audit?limit=100&environment=sandbox", nil).Want(200)
		if !strings.Contains(string(page.Body), "DROP TABLE users") {
			return fmt.Errorf("the audit lacks the arguments: %s", page.Body)
		}
		return nil
	})
}

// TestBudgetIsShared checks that two bouncers with one Redis share a limit.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	redis := cachetest.Start(t)
	s := apptest.StartServer(t, dbtest.SQLite)
	app := apptest.NewBackend(t, nil)
	resource := s.Admin.Do(t, "POST", "/resources", body{"name": "api", "type": "api", "path": "/**"}).Want(201).ID()
	apptest.Activate(t, s.Admin, "limit", "sandbox", "package limit\n\nallow if input.usage.requests.day < 6\n", body{"resource_id": resource})
	apptest.Enforce(t, s.Admin, "sandbox")
	var both []*apptest.Client
	for i := range 2 {
		b := s.Bouncer(t, s.Admin, body{"name": fmt.Sprint("b", i), "environment": "sandbox", "resource_ids": []int64{resource}}, app.Addr, "GATEHOUSE_BOUNCER_REDIS_URL="+redis.URL())
		both = append(both, b.As("ann", "staff"))
	}
	granted := 0
	for i := range 10 {
		if both[i%2].Do(t, "GET", "/x", nil).Status == 200 {
			granted++
		}
	}
	if granted != 6 {
		t.Errorf("the bouncers granted %d requests, want 6", granted)
	}
	// Another tenant's bouncer on the same Redis, for the same caller and a
	// resource of the same id: a budget of its own.
	s.Admin.Do(t, "POST", "/tenants", body{"name": "t2"}).Want(201)
	there := s.Admin.With("X-Tenant-ID", "t2")
	twin := there.Do(t, "POST", "/resources", body{"name": "api", "type": "api", "path": "/**"}).Want(201).ID()
	if twin != resource {
		t.Fatalf("the resources of the two tenants are %d and %d, want equal ids", resource, twin)
	}
	apptest.Activate(t, there, "limit", "sandbox", "package limit\n\nallow if input.usage.requests.day < 6\n", body{"resource_id": twin})
	apptest.Enforce(t, there, "sandbox")
	theirs := s.Bouncer(t, there, body{"name": "b0", "environment": "sandbox", "resource_ids": []int64{twin}}, app.Addr, "GATEHOUSE_BOUNCER_REDIS_URL="+redis.URL()).As("ann", "staff")
	for granted = 0; granted < 10 && theirs.Do(t, "GET", "/x", nil).Status == 200; granted++ {
	}
	if granted != 6 {
		t.Errorf("the bouncers granted the other tenant %d requests, want 6", granted)
	}
}
