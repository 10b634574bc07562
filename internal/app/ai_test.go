package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/cache/cachetest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/template"
)

// wired is an exchange of a template, sent through a bouncer.
type wired struct {
	name, host string
	x          template.Exchange
	id         string // its X-Request-Id begins so
}

// TestTemplateTraffic: the example traffic of every template through a bouncer:
// in shadow mode the answers are the application's and the log says what would
// have been; in enforce mode it is so.
func TestTemplateTraffic(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	catalogue, err := template.Load()
	if err != nil {
		t.Fatal(err)
	}
	var cases []wired
	app := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.Header.Get("X-Case"))
		if err != nil || n >= len(cases) {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		a := cases[n].x.Answer
		for k, v := range a.Headers {
			w.Header().Set(k, v)
		}
		w.WriteHeader(a.Status)
		_, _ = w.Write(content(a.Body))
	})
	var resources []int64
	for _, id := range catalogue.IDs() {
		tpl, _ := catalogue.Get(id)
		host := strings.ReplaceAll(strings.ToLower(id), "_", "-") + ".example"
		record := body{"original_host": host}
		for k, v := range tpl.Traffic().Resource {
			record[k] = v
		}
		record["audit_level"] = "detailed"
		resource := s.Admin.Do(t, "POST", "/resources", record).Want(201).ID()
		activate(t, s.Admin, id, "sandbox", tpl.Source(), body{"resource_id": resource})
		resources = append(resources, resource)
		for _, x := range tpl.Traffic().Exchanges {
			if x.Request != nil && x.Answer != nil && sendable(x.Input) {
				cases = append(cases, wired{id + ": " + x.Name, host, x, fmt.Sprintf("case-%d", len(cases))})
			}
		}
	}
	if len(cases) < 40 {
		t.Fatalf("only %d exchanges", len(cases))
	}
	b := s.Bouncer(t, s.Admin, body{"name": "ai", "environment": "sandbox", "resource_ids": resources}, app.addr)
	for n, c := range cases {
		status, got := c.send(t, b.URL, n, "shadow")
		if want := string(content(c.x.Answer.Body)); status != c.x.Answer.Status || got != want {
			t.Errorf("%s in shadow: %d %q, want %d %q", c.name, status, got, c.x.Answer.Status, want)
		}
	}
	effects := map[string]string{"ALLOW": "ALLOW", "DENY": "SHADOW_WOULD_DENY", "MASK": "SHADOW_WOULD_MASK"}
	apptest.Eventually(t, 20*time.Second, func() error {
		log := byRequest(decisionLog(t, s.Admin, "sandbox"))
		for _, c := range cases {
			e := log[c.id+"-shadow"]
			if len(e) != 1 {
				return fmt.Errorf("%s is in the log %d times", c.name, len(e))
			}
			if e[0].Effect != effects[c.x.Want.Effect] {
				t.Errorf("%s is in the log as %s (%s), want %s", c.name, e[0].Effect, e[0].Reason, c.x.Want.Effect)
			}
		}
		return nil
	})
	enforce(t, s.Admin, "sandbox")
	first := 0
	for cases[first].x.Want.Effect != "DENY" {
		first++
	}
	apptest.Eventually(t, 10*time.Second, func() error {
		if status, got := cases[first].send(t, b.URL, first, "wait"); status == 403 || strings.Contains(got, "-32001") {
			return nil
		}
		return fmt.Errorf("does not enforce yet")
	})
	for n, c := range cases {
		status, got := c.send(t, b.URL, n, "enforce")
		c.judge(t, status, got)
	}
}

// sendable reports whether one request makes this input: not what was used
// before it, what a stored user has, or a prompt that is only said to be large.
func sendable(input map[string]any) bool {
	text, _ := json.Marshal(input["usage"])
	estimated, _ := object(input["llm"])["estimated_tokens"].(float64)
	return strings.Trim(string(text), `{}":,0requstoknmihdaylcg_`) == "" && len(object(object(input["user"])["attributes"])) == 0 && estimated < 5000
}

// content is a message's body: a JSON string is a text as it stands.
func content(raw json.RawMessage) []byte {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []byte(text)
	}
	return raw
}

func (c wired) send(t *testing.T, url string, n int, run string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(c.x.Request.Method, url+c.x.Request.Path, strings.NewReader(string(content(c.x.Request.Body))))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = c.host
	for k, v := range c.x.Request.Headers {
		r.Header.Set(k, v)
	}
	r.Header.Set("X-Case", strconv.Itoa(n))
	r.Header.Set("X-Request-Id", c.id+"-"+run)
	r.Header.Set("Accept-Encoding", "identity")
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s: %v", c.name, err)
	}
	return res.StatusCode, string(got)
}

func (c wired) judge(t *testing.T, status int, got string) {
	t.Helper()
	answer := string(content(c.x.Answer.Body))
	switch c.x.Want.Effect {
	case "DENY":
		if refused := status == 403 || status == 429 || status == 200 && strings.Contains(got, `"code":-32001`); !refused || got == answer {
			t.Errorf("%s: %d %s", c.name, status, got)
		}
		var said struct{ Message string }
		var rpc struct{ Error struct{ Message string } }
		_ = json.Unmarshal([]byte(got), &said)
		_ = json.Unmarshal([]byte(got), &rpc)
		if !strings.Contains(said.Message+rpc.Error.Message, c.x.Want.Reason) {
			t.Errorf("%s: %s, want %q", c.name, got, c.x.Want.Reason)
		}
	case "ALLOW":
		if status != c.x.Answer.Status || got != answer {
			t.Errorf("%s: %d %q, want %q", c.name, status, got, answer)
		}
	case "MASK":
		if status != c.x.Answer.Status {
			t.Errorf("%s: %d %s", c.name, status, got)
		}
		for path, clear := range map[string]string{"pii:emails": "@example.com", "pii:card_numbers": "4111 1111 1111", "pii:ssn": "078-05-1120"} {
			if c.x.Want.Mask[path] != "" && strings.Contains(got, clear) {
				t.Errorf("%s: in clear: %s", c.name, got)
			}
		}
	}
}

// TestTokenBudgetRunsOut: a budget by the resource's tier, two bouncers of one
// application, and what the model said it used.
func TestTokenBudgetRunsOut(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	catalogue, err := template.Load()
	if err != nil {
		t.Fatal(err)
	}
	var cost atomic.Int64
	cost.Store(4000)
	app := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":0}}\n\ndata: [DONE]\n\n", cost.Load())
	})
	tpl, _ := catalogue.Get("AI_TOKEN_RATE_LIMIT")
	resource := s.Admin.Do(t, "POST", "/resources", body{"name": "model", "type": "llm", "path": "/v1/**", "resource_kind": "llm_endpoint", "sla_tier": "bronze"}).Want(201).ID()
	activate(t, s.Admin, "budget", "sandbox", tpl.Source(), body{"resource_id": resource})
	enforce(t, s.Admin, "sandbox")
	b := s.Bouncer(t, s.Admin, body{"name": "ai", "environment": "sandbox", "resource_ids": []int64{resource}}, app.addr)
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
		t.Errorf("%d requests of 4000 tokens passed, then %d %s", granted, last.Status, last.Body)
	}
	if res := ask(b.As("bob", "staff")); res.Status != 200 {
		t.Errorf("another caller: %d %s", res.Status, res.Body)
	}
	if res := c.Do(t, "POST", "/v1/chat/completions", []byte(`{"model":`)); res.Status != 400 {
		t.Errorf("a broken body: %d", res.Status)
	}
}

// TestDestructiveToolIsAudited: the refused call of a tool stands in the audit
// with its arguments.
func TestDestructiveToolIsAudited(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	catalogue, err := template.Load()
	if err != nil {
		t.Fatal(err)
	}
	app := newBackend(t, nil)
	tpl, _ := catalogue.Get("MCP_DESTRUCTIVE_ACTION_GUARD")
	resource := s.Admin.Do(t, "POST", "/resources", body{"name": "tools", "type": "mcp", "path": "/mcp", "resource_kind": "mcp_server", "audit_level": "detailed"}).Want(201).ID()
	activate(t, s.Admin, "guard", "sandbox", tpl.Source(), body{"resource_id": resource})
	enforce(t, s.Admin, "sandbox")
	b := s.Bouncer(t, s.Admin, body{"name": "ai", "environment": "sandbox", "resource_ids": []int64{resource}}, app.addr)
	res := b.As("agent", "agent").With("X-Request-Id", "destroys").Do(t, "POST", "/mcp", body{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body{"name": "run_query", "arguments": body{"sql": "DROP TABLE users"}}})
	if res.Status != 200 || !strings.Contains(string(res.Body), "-32001") || len(app.take()) != 0 {
		t.Errorf("%d %s", res.Status, res.Body)
	}
	apptest.Eventually(t, 15*time.Second, func() error {
		page := s.Admin.Do(t, "GET", "/decisions/audit?limit=100&environment=sandbox", nil).Want(200)
		if !strings.Contains(string(page.Body), "DROP TABLE users") {
			return fmt.Errorf("the arguments are not in the audit: %s", page.Body)
		}
		return nil
	})
}

// TestBudgetIsShared: two bouncers with one Redis hold a limit together.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	redis := cachetest.Start(t)
	s := apptest.StartServer(t, dbtest.SQLite)
	app := newBackend(t, nil)
	resource := s.Admin.Do(t, "POST", "/resources", body{"name": "api", "type": "api", "path": "/**"}).Want(201).ID()
	activate(t, s.Admin, "limit", "sandbox", "package limit\n\nallow if input.usage.requests.day < 6\n", body{"resource_id": resource})
	enforce(t, s.Admin, "sandbox")
	var both []*apptest.Client
	for i := range 2 {
		b := s.Bouncer(t, s.Admin, body{"name": fmt.Sprint("b", i), "environment": "sandbox", "resource_ids": []int64{resource}}, app.addr, "GATEHOUSE_BOUNCER_REDIS_URL="+redis.URL())
		both = append(both, b.As("ann", "staff"))
	}
	granted := 0
	for i := range 10 {
		if both[i%2].Do(t, "GET", "/x", nil).Status == 200 {
			granted++
		}
	}
	if granted != 6 {
		t.Errorf("%d requests were granted, want 6", granted)
	}
	// Another tenant's bouncer on the same Redis, for the same caller and a
	// resource of the same id: a budget of its own.
	s.Admin.Do(t, "POST", "/tenants", body{"name": "t2"}).Want(201)
	there := s.Admin.With("X-Tenant-ID", "t2")
	twin := there.Do(t, "POST", "/resources", body{"name": "api", "type": "api", "path": "/**"}).Want(201).ID()
	if twin != resource {
		t.Fatalf("the resources are %d and %d", resource, twin)
	}
	activate(t, there, "limit", "sandbox", "package limit\n\nallow if input.usage.requests.day < 6\n", body{"resource_id": twin})
	enforce(t, there, "sandbox")
	theirs := s.Bouncer(t, there, body{"name": "b0", "environment": "sandbox", "resource_ids": []int64{twin}}, app.addr, "GATEHOUSE_BOUNCER_REDIS_URL="+redis.URL()).As("ann", "staff")
	for granted = 0; granted < 10 && theirs.Do(t, "GET", "/x", nil).Status == 200; granted++ {
	}
	if granted != 6 {
		t.Errorf("the other tenant was granted %d requests, want 6", granted)
	}
}
