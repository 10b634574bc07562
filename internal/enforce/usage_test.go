package enforce

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/usage"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// post sends a body and returns the complete answer.
func post(t testing.TB, url, contentType, body string, edit func(*http.Request)) reply {
	t.Helper()
	return fetch(t, "POST", url, func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Type", contentType)
		if edit != nil {
			edit(r)
		}
	})
}

const budget = `package budget

allow if count(deny) == 0

deny contains sprintf("the budget is used up: %d", [input.usage.tokens.minute]) if input.usage.tokens.minute + input.llm.estimated_tokens > 100

deny contains "too many" if input.usage.requests.minute >= 20

deny contains "no model" if not input.llm.model
`

const chat = `{"model":"gpt-4","messages":[{"role":"user","content":"Hi"}],"max_tokens":10}`

// model answers as a model does, with the usage.
func model(cost *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"choices":[{"message":{"content":"Hello"}}],"usage":{"prompt_tokens":%d,"completion_tokens":1}}`, cost.Load()-1)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n", cost.Load()-1)
	}
}

// The budget is corrected by the usage in the answer, streamed or not. Each caller has its own, and
// it starts again with the next window.
func TestTokenBudget(t *testing.T) {
	t.Parallel()
	var cost, clock atomic.Int64
	clock.Store(time.Date(2026, 5, 1, 12, 0, 1, 0, time.UTC).UnixNano())
	app := newApplication(t, model(&cost))
	_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: budget}}, config: loopbackProxies()}, func(c *Config) { c.Count = usage.NewTally(func() time.Time { return time.Unix(0, clock.Load()) }).Add })
	ask := func(user, body string) reply {
		return post(t, b.url+"/v1/chat/completions", "application/json", body, asUser(user, ""))
	}
	cost.Store(60)
	for i, want := range []int{200, 200, 429} {
		got := ask("ann", chat)
		wantAnswer(t, fmt.Sprintf("request %d", i), got, want)
		// The error has the form of the provider, and says when to retry.
		if want == 429 && (!strings.Contains(got.body, `"error":{"message":"the budget is used up: 120","type":"rate_limit_error","param":null,"code":"budget_exhausted"}`) || got.header.Get("Retry-After") == "") {
			t.Errorf("request %d: %s %v, want the error of the provider and Retry-After", i, got, got.header)
		}
	}
	wantAnswer(t, "a request that is denied for another reason", ask("ann", strings.Replace(chat, `"gpt-4"`, `""`, 1)), 403, `"code":"access_denied"`)
	stream := strings.Replace(chat, `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
	for i, want := range []int{200, 200, 429} {
		if got := ask("bob", stream); got.status != want || want == 200 && !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
			t.Errorf("streamed request %d: %s, want %d", i, got, want)
		}
	}
	clock.Add(int64(time.Minute))
	wantAnswer(t, "in the next minute", ask("ann", chat), 200)
	app.Close()
	for range 3 { // a request without an answer costs nothing
		wantAnswer(t, "without an application", ask("cid", chat), 502)
	}
}

// A stream is counted at its last event, because the caller may send its next request while the
// stream is still open.
func TestStreamIsCountedAtItsLastEvent(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":90,\"completion_tokens\":30}}\n\ndata: [DONE]\n\n")
		w.(http.Flusher).Flush()
		<-over
	})
	_, b := startPublished(t, app.URL, enforcing(budget), nil)
	defer close(over)
	res, err := http.Post(b.url+"/v1/chat/completions", "application/json", strings.NewReader(strings.Replace(chat, `"max_tokens"`, `"stream":true,"max_tokens"`, 1)))
	errtest.Must(t, err)
	defer res.Body.Close()
	var got []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(got), "data: [DONE]\n\n"); got = append(got, one[0]) {
		if _, err := res.Body.Read(one); err != nil {
			t.Fatalf("the stream ends after %q: %v", got, err)
		}
	}
	wantAnswer(t, "the next request, while the stream is open", post(t, b.url+"/v1/chat/completions", "application/json", chat, nil), 429)
}

// Requests at the same time cannot exceed a limit together.
func TestConcurrentRequestsKeepTheLimit(t *testing.T) {
	t.Parallel()
	var cost, passed atomic.Int64
	cost.Store(2)
	app := newApplication(t, model(&cost))
	_, b := startPublished(t, app.URL, enforcing("package limit\n\nallow if input.usage.requests.hour < 5\n"), nil)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if post(t, b.url+"/v1/chat/completions", "application/json", chat, nil).status == 200 {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if n := passed.Load(); n > 5 || n < 1 {
		t.Errorf("%d requests passed, want 1 to 5", n)
	}
	if got := post(t, b.url+"/", "text/plain", "no json", nil); (got.status == 200) != (passed.Load() < 5) {
		t.Errorf("a request after %d that passed: %s, want 200 only before the fifth", passed.Load(), got)
	}
}

// A body that a control needs is read whole or refused. A body that cannot contain what controls
// read passes at any size.
func TestBodiesThatControlsNeed(t *testing.T) {
	t.Parallel()
	fulltest.Only(t)
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	const source = "package guard\n\nallow if count(deny) == 0\n\ndeny contains \"secret\" if contains(input.llm.messages[_].content, \"secret\")\n"
	const asks = `{"model":"m","messages":[{"role":"user","content":"the secret"}]}`
	big := strings.Repeat("x", bodies.MaxBody+10)
	largest := `{"model":"m","messages":[{"role":"user","content":"hi","images":["` + pngOf(bodies.MaxBody-200)
	largest += `"]}]}`
	type target struct {
		p      *plane
		b      *running
		logged int
	}
	targets := map[string]*target{}
	for _, mode := range []string{"enforce", "shadow"} {
		p := newPlane(t)
		p.publish(policySet{revision: 1, mode: mode, controls: []control{{id: 1, source: source}}})
		targets[mode] = &target{p: p, b: start(t, p, app.URL, nil).at(t, 1)}
	}
	for name, tc := range map[string]struct {
		kind, body string
		head       map[string]string
		want       int
	}{
		"harmless":              {"application/json", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`, nil, 200},
		"refused":               {"application/json", asks, nil, 403},
		"as text":               {"text/plain", asks, nil, 403},
		"without a type":        {"", asks, nil, 403},
		"as a form":             {"application/x-www-form-urlencoded", asks, nil, 403},
		"white space before":    {"image/png", strings.Repeat(" ", 5000) + asks, nil, 403},
		"a byte order mark":     {"text/plain", "\xef\xbb\xbf" + asks, nil, 400},
		"UTF-16":                {"text/plain", "\xff\xfe{\x00}\x00", nil, 400},
		"a member twice":        {"application/json", `{"model":"m","messages":[],"messages":[]}`, nil, 400},
		"members like one":      {"application/json", `{"model":"m","messages":[],"Messages":[]}`, nil, 400},
		"cut short":             {"application/json", asks[:30], nil, 400},
		"not JSON":              {"application/json", "hello", nil, 400},
		"two documents":         {"application/json", asks + asks, nil, 400},
		"too deep":              {"application/json", strings.Repeat("[", 80) + strings.Repeat("]", 80), nil, 400},
		"empty":                 {"application/json", "", nil, 200},
		"compressed":            {"application/json", "\x1f\x8b", map[string]string{"Content-Encoding": "gzip"}, 415},
		"too large":             {"application/json", `{"messages":"` + big + `"}`, nil, 413},
		"too large as text":     {"text/plain", `{"messages":"` + big + `"}`, nil, 413},
		"a large picture":       {"image/png", "\x89PNG" + big, nil, 200},
		"a form":                {"application/x-www-form-urlencoded", "a=b", nil, 200},
		"too much text":         {"application/json", `{"messages":"` + big[:bodies.MaxText] + `"}`, nil, 413},
		"a picture as text":     {"application/json", `{"messages":"data:image/png;base64,` + pngOf(bodies.MaxText) + `"}`, nil, 413},
		"the most text":         {"application/json", `{"x":"` + big[:bodies.MaxText-8] + `"}`, nil, 200},
		"the largest that goes": {"application/json", largest, nil, 200},
	} {
		for mode, to := range targets {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/chunked=%v", name, mode, chunked), func(t *testing.T) {
					got := post(t, to.b.url+"/v1/chat", tc.kind, tc.body, func(r *http.Request) {
						if tc.kind == "" {
							r.Header.Del("Content-Type")
						}
						for k, v := range tc.head {
							r.Header.Set(k, v)
						}
						if chunked {
							r.ContentLength = -1
						}
						if tc.want == 413 {
							// A client that is still sending may lose the connection before it reads the answer.
							r.Header.Set("Expect", "100-continue")
						}
					})
					passes := mode == "shadow" || tc.want == 200
					if passes && (got.status != 200 || got.body != fmt.Sprint(len(tc.body))) || !passes && got.status != tc.want {
						t.Errorf("%s, want %d, or in shadow 200 with the whole body", got, tc.want)
					}
					to.logged++
					e := to.p.logged(to.logged)[to.logged-1]
					want := map[bool]string{true: "PERMIT", false: "DENY"}[tc.want == 200]
					if mode == "shadow" && want == "DENY" {
						want = "SHADOW_WOULD_DENY"
					}
					if got := field(e, "custom", "outcome"); got != want {
						t.Errorf("outcome = %v, want %s: %v", got, want, e)
					}
					eventually(t, "the memory to be released", func() bool { return to.b.shadow.Held.Load() == 0 })
				})
			}
		}
	}
}

// pngOf returns a picture of about n bytes as base64.
func pngOf(n int) string {
	const head = "iVBORw0KGgoAAAANSUhEUgAA"
	return head + strings.Repeat("A", (n-len(head))&^3)
}
