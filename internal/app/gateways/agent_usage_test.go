package gateways_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestAgentUsage checks that an agent's actions through a bouncer, for a person and for itself, and
// with the API, are counted once, with its tools and tokens.
func TestAgentUsage(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, is := s.Admin, apptest.NewIssuer(t)
	app := apptest.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
	bot := a.Do(t, "POST", "/ai-agents", body{"name": "bot", "type": "llm"}).Want(201).ID()
	idle := a.Do(t, "POST", "/ai-agents", body{"name": "idle", "type": "llm"}).Want(201).ID()
	path, subject := fmt.Sprint("/ai-agents/", bot), fmt.Sprint("agent:", bot)
	resource := a.Do(t, "POST", "/resources", body{"name": "ai", "type": "llm", "path": "/**", "environment": "sandbox"}).Want(201).ID()
	apptest.Activate(t, a, "tools", "sandbox", "package tools\n\nallow if input.mcp.tool == \"search\"\n\nallow if input.llm.model\n\nallow if input.resource.path == \"/plain\"\n", body{"resource_id": resource})
	apptest.Enforce(t, a, "sandbox")
	b := s.Bouncer(t, a, body{"name": "ai", "environment": "sandbox", "resource_ids": []int64{resource}, "configuration": body{"identity": is.Identity()}}, app.Addr)
	as := func(token string) *apptest.Client {
		return (&apptest.Client{Base: b.URL}).With("Authorization", "Bearer "+token)
	}
	forAnn := as(is.With(t, "ann", map[string]any{"act": map[string]any{"sub": subject}}))
	call := func(c *apptest.Client, tool string, permitted bool) {
		t.Helper()
		res := c.With("Accept", "application/json, text/event-stream").Do(t, "POST", "/mcp", body{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body{"name": tool, "arguments": body{}}}).Want(200)
		if (res.Get("error") == nil) != permitted {
			t.Errorf("the call of the tool %s = %s, want it permitted: %v", tool, res.Body, permitted)
		}
	}
	for range 3 {
		call(forAnn, "search", true)
	}
	call(forAnn, "drop", false)
	call(as(is.Token(t, "ann")), "search", true)                                                              // the person herself
	call(as(is.With(t, "ann", map[string]any{"act": map[string]any{"sub": "agent:987654"}})), "search", true) // no agent of the tenant
	call(as(is.With(t, "ann", map[string]any{"act": map[string]any{"sub": "some-client"}})), "search", true)  // nor this
	as(is.Token(t, subject)).Do(t, "GET", "/plain", nil).Want(200)                                            // the agent for itself
	forAnn.Do(t, "POST", "/v1/chat/completions", body{"model": "gpt-4o", "messages": []body{{"role": "user", "content": "Say hello to all of us"}}}).Want(200)
	a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": subject}, "resource": body{"type": "api", "path": "/x"}, "action": body{"name": "read"}, "mcp": body{"tool": "ask"}}).Want(200)

	var usage map[string]any
	apptest.Eventually(t, 30*time.Second, func() error {
		usage, _ = a.Do(t, "GET", path, nil).Want(200).Get("usage").(map[string]any)
		if usage["requests"] != 7.0 {
			return fmt.Errorf("the usage is %v, want 7 requests", usage)
		}
		return nil
	})
	calls := map[string]any{}
	for _, tool := range usage["tools"].([]any) {
		calls[tool.(map[string]any)["name"].(string)] = tool.(map[string]any)["calls"]
	}
	if len(calls) != 3 || calls["search"] != 3.0 || calls["drop"] != 1.0 || calls["ask"] != 1.0 || usage["tools"].([]any)[0].(map[string]any)["name"] != "search" {
		t.Errorf("the usage has the tools %v, want search 3 times, drop and ask", usage["tools"])
	}
	if usage["denied"] != 2.0 || usage["estimated_tokens"].(float64) < 5 || usage["other_tool_calls"] != 0.0 {
		t.Errorf("the usage is %v, want 2 denied requests and some tokens", usage)
	}
	// A bouncer that did not hear the answer sends its events again.
	direct := *s.Admin
	direct.Bearer, direct.APIKey = b.Token, ""
	event := []any{body{
		"decision_id": "sent-twice", "timestamp": time.Now().UTC().Format(time.RFC3339), "result": body{"decision": "PERMIT"},
		"custom": body{"agent": body{"id": subject, "tool": "once"}},
	}}
	for range 2 {
		direct.Do(t, "POST", "/bridge/logs", event).Want(200, 202, 204)
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		if res := a.Do(t, "GET", path, nil).Want(200); res.Get("usage", "requests") != 8.0 || !strings.Contains(string(res.Body), `"once","calls":1,`) {
			return fmt.Errorf("the usage after a repeated event = %s, want it counted once", res.Body)
		}
		return nil
	})
	page := a.Do(t, "GET", "/ai-agents", nil).Want(200)
	if list, _ := page.Get("agents").([]any); len(list) != 2 || list[0].(map[string]any)["last_seen_at"] == nil || list[1].(map[string]any)["last_seen_at"] != nil {
		t.Errorf("the list of agents = %s, want one agent that was seen and one that was not", page.Body)
	}
	if res := a.Do(t, "GET", fmt.Sprint("/ai-agents/", idle), nil).Want(200); res.Get("usage", "requests") != 0.0 || res.Get("last_seen_at") != nil {
		t.Errorf("the usage of an idle agent = %s, want none", res.Body)
	}
	logs := a.Do(t, "GET", "/decisions/audit?user_id=ann&limit=100&environment=sandbox", nil).Want(200)
	if got := string(logs.Body); !strings.Contains(got, `"agent":{"id":"`+subject+`","tool":"search",`) {
		t.Errorf("the log lacks the agent: %s", got)
	}
}
