package enforce

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/gateway"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/refuse"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// modelCalls are requests of the providers' clients, and the error form that each client reads.
var modelCalls = []struct{ method, path, header, dialect string }{
	{"POST", "/v1/chat/completions", "", llm.OpenAI},
	{"POST", "/v1/embeddings", "", llm.OpenAI},
	{"GET", "/v1/models", "", llm.OpenAI},
	{"POST", "/v1/responses", "", llm.OpenAI},
	{"GET", "/v1/responses/resp_1", "", llm.OpenAI},
	{"POST", "/openai/deployments/gpt/chat/completions", "", llm.OpenAI},
	{"POST", "/v1/audio/transcriptions", "", llm.OpenAI},
	{"POST", "/v1/messages", "Anthropic-Version", llm.Anthropic},
	{"POST", "/v1/messages/count_tokens", "", llm.Anthropic},
	{"GET", "/v1/models", "Anthropic-Version", llm.Anthropic},
	{"POST", "/v1beta/models/gemini-pro:generateContent", "", llm.Gemini},
	{"POST", "/v1beta/models/gemini-pro:streamGenerateContent", "", llm.Gemini},
	{"GET", "/v1beta/models", "X-Goog-Api-Key", llm.Gemini},
	{"POST", "/api/chat", "", llm.Ollama},
	{"POST", "/api/generate", "", llm.Ollama},
	{"GET", "/api/tags", "", llm.Ollama},
	{"POST", "/model/anthropic.claude/converse", "", llm.Bedrock},
	{"POST", "/anything", "", llm.Gemini}, // by the resource's ai_provider
}

// readError returns the message that a provider's client finds in an error, or what is missing.
func readError(dialect string, status int, header http.Header, text string) string {
	var all map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return err.Error()
	}
	e, _ := all["error"].(map[string]any)
	get := func(m map[string]any, name string) string { s, _ := m[name].(string); return s }
	switch dialect {
	case llm.OpenAI:
		if get(e, "type") == "" || get(e, "code") == "" {
			return "(no type or code)"
		}
		return get(e, "message")
	case llm.Anthropic:
		if get(all, "type") != "error" || get(e, "type") == "" {
			return "(no type)"
		}
		return get(e, "message")
	case llm.Gemini:
		if e["code"] != float64(status) || get(e, "status") == "" {
			return "(no code or status)"
		}
		return get(e, "message")
	case llm.Ollama:
		return get(all, "error")
	case llm.Bedrock:
		if header.Get("X-Amzn-Errortype") == "" {
			return "no type"
		}
		return get(all, "message")
	}
	return "(unknown dialect)"
}

// TestRefusalsHaveTheProvidersForm checks that the client of a model can read the reason of every
// refusal, at each endpoint of its provider.
func TestRefusalsHaveTheProvidersForm(t *testing.T) {
	t.Parallel()
	model := []target.Resource{{ID: 5, Type: "llm", Path: "/**", Doc: valuetest.Decode(t, `{"id":5,"resource_kind":"llm_endpoint","ai_provider":"google"}`)}}
	needsAdmin := "package say\n\nallow if \"admin\" in input.user.roles\n\nreason := \"a plain reason\"\n"
	closed := "package never\n\nallow := false\n\nreason := \"a plain reason\"\n"
	stopped := newApplication(t, nil)
	stopped.Close()
	app := newApplication(t, nil)
	for status, tc := range map[int]struct {
		set    *policySet
		app    string
		reason string
	}{
		401: {&policySet{config: map[string]any{"identity": newIssuer(t).config()}, controls: []control{{id: 1, resource: 5, source: needsAdmin}}}, app.URL, "You do not have access"},
		403: {&policySet{controls: []control{{id: 1, resource: 5, source: closed}}}, app.URL, "a plain reason"},
		502: {&policySet{controls: []control{{id: 1, resource: 5, source: allowAll}}}, stopped.URL, "the application could not be reached"},
		503: {nil, app.URL, "no policies are loaded yet"},
	} {
		p := newPlane(t)
		b := start(t, p, tc.app, nil)
		if tc.set != nil {
			tc.set.revision, tc.set.mode, tc.set.resources = 1, "enforce", model
			p.deploy(b, *tc.set)
		}
		for _, c := range modelCalls {
			if status == 503 && (c.dialect == llm.Ollama || c.path == "/anything") {
				continue // only a resource says that these are models
			}
			got := fetch(t, c.method, b.url+c.path, func(r *http.Request) {
				if c.header != "" {
					r.Header.Set(c.header, "1")
				}
			})
			if got.status != status {
				t.Fatalf("%s, want %d", got, status)
			}
			if m := readError(c.dialect, status, got.header, got.body); !strings.HasPrefix(m, tc.reason) {
				t.Errorf("%s: the client of %s reads %q, want %q", got, c.dialect, m, tc.reason)
			}
			if (got.header.Get("WWW-Authenticate") != "") != (status == 401) {
				t.Errorf("%s with the challenge %q, want one with 401 alone", got, got.header.Get("WWW-Authenticate"))
			}
		}
	}
	for _, c := range modelCalls { // with the statuses that a request above does not cause
		for _, status := range []int{400, 401, 403, 404, 408, 413, 415, 429, 500, 502, 503, 504} {
			provider := c.dialect
			header := http.Header{}
			no := request.Refuse(status, "some_code", "say \"why\"")
			no.Access = `{"subject":{"id":"ada"}}`
			body := refuse.Body(&request.Inbound{ID: "r"}, provider, "d", no)
			var doc struct {
				Access map[string]any `json:"request_access"`
			}
			if err := json.Unmarshal(body, &doc); err != nil || len(doc.Access) != 1 {
				t.Errorf("%d for %s: %s %v, want the access that can be requested", status, provider, body, err)
			}
			refuse.Header(header.Set, &request.Inbound{ID: "r"}, provider, "d", request.Refuse(status, "some_code", "why"))
			if m := readError(provider, status, header, string(body)); m != `say "why"` || !strings.Contains(string(body), `"decision_id":"d"`) {
				t.Errorf("%d for %s: the client reads %q of %s, want the reason", status, provider, m, body)
			}
		}
	}
}

// TestRPCErrorSaysWhatCanBeRequested checks that the data of a JSON-RPC error says which access can
// be requested.
func TestRPCErrorSaysWhatCanBeRequested(t *testing.T) {
	t.Parallel()
	in := &request.Inbound{ID: "r", Seen: &request.Inspection{RPC: &mcp.Message{ID: "7"}}}
	no := request.Refuse(403, "access_denied", "no")
	no.Access = `{"subject":{"id":"ada"}}`
	var doc struct {
		ID    int
		Error struct {
			Data struct {
				RequestID string         `json:"request_id"`
				Access    map[string]any `json:"request_access"`
			}
		}
	}
	if body := refuse.Body(in, "", "d", no); json.Unmarshal(body, &doc) != nil || doc.ID != 7 || doc.Error.Data.RequestID != "r" || len(doc.Error.Data.Access) != 1 {
		t.Errorf("the error is %s, want the id and the access that can be requested", body)
	}
}

// TestChallengeOnlyWhereATokenHelps checks that an anonymous caller gets 401 if keys are configured
// and the control reads the caller's identity, and 403 if a token would not help.
func TestChallengeOnlyWhereATokenHelps(t *testing.T) {
	t.Parallel()
	keys := newIssuer(t).config()
	app := newApplication(t, nil)
	for _, tc := range []struct {
		name, source string
		config       map[string]any
		want         int
	}{
		{"reads roles", adminOnly, map[string]any{"identity": keys}, 401},
		{"reads roles, no keys", adminOnly, nil, 403},
		{"denies everybody", denyAll, map[string]any{"identity": keys}, 403},
		{"denies a path", "package p\n\nallow if not startswith(input.resource.path, \"/admin\")\n", map[string]any{"identity": keys}, 403},
		{"reads all of the input", "package p\n\nallow if count(input) > 100\n", map[string]any{"identity": keys}, 401},
		{"no control, default deny", "", map[string]any{"identity": keys, "default_action": "deny"}, 403},
	} {
		set := policySet{revision: 1, mode: "enforce", config: tc.config}
		if tc.source != "" {
			set.controls = []control{{id: 1, source: tc.source}}
		}
		p, b := startPublished(t, app.URL, set, trustLoopback)
		_, e := grpcBouncer(t, p, nil)
		direct := fetch(t, "GET", b.url+"/admin", nil)
		auth := fetch(t, "GET", b.url+"/_bouncer/auth", forwardHead("GET", "app.test", "/admin"))
		for way, got := range map[string]reply{"proxy": direct, "forward-auth": auth} {
			challenge := got.header.Get("WWW-Authenticate")
			if got.status != tc.want || strings.HasPrefix(challenge, "Bearer ") != (tc.want == 401) || strings.Contains(challenge, "invalid_token") {
				t.Errorf("%s, %s: %s with the challenge %q, want %d", tc.name, way, got, challenge, tc.want)
			}
		}
		if got := e.ask(newCheck("GET", "app.test", "/admin", nil)).GetDeniedResponse().GetStatus().GetCode(); int(got) != tc.want {
			t.Errorf("%s, Envoy: status %d, want %d", tc.name, got, tc.want)
		}
	}
}

// The text that nginx inserts between quotes stays one JSON string.
func TestReasonText(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"plain", `a "quoted" \ one`, "ümlaut", "a\nline", "$gh_id", "😀", strings.Repeat("é", 5000)} {
		out := gateway.ReasonText(s)
		var back string
		if err := json.Unmarshal([]byte(`"`+out+`"`), &back); err != nil || len(out) > gateway.MaxReason+16 || len(s) < 100 && back != s {
			t.Errorf("ReasonText(%q) = %q %v, want a short JSON string of the same text", s, out, err)
		}
		if strings.ContainsAny(out, "\"$\n") {
			t.Errorf("ReasonText(%q) = %q, want nothing that nginx or JSON interprets", s, out)
		}
	}
}
