package enforce

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// TestNoMessageIsOverlooked sends bodies that some MCP server may read as a call of delete_db.
// Whatever the media type and the spelling, the templates decide on the call, or it does not reach
// the server.
func TestNoMessageIsOverlooked(t *testing.T) {
	t.Parallel()
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_db","arguments":{"q":"all"}}}`
	var reached executed
	b := startWithTemplates(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.add(r.Method)
		_, _ = w.Write([]byte("{}"))
	}))
	spelled := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(call) }
	for name, tc := range map[string]struct{ kind, body string }{
		"as it is":                 {"application/json", call},
		"as text":                  {"text/plain", call},
		"without a type":           {"", call},
		"as a form":                {"application/x-www-form-urlencoded", call},
		"as a form's field":        {"application/x-www-form-urlencoded", "message=" + strings.NewReplacer(`"`, "%22", `{`, "%7B", `}`, "%7D", `:`, "%3A", `,`, "%2C", `/`, "%2F").Replace(call)},
		"a notification":           {"application/json", spelled(`"id":1,`, "")},
		"a null id":                {"application/json", spelled(`"id":1`, `"id":null`)},
		"an id in a fraction":      {"application/json", spelled(`"id":1`, `"id":1.5`)},
		"an id in a list":          {"application/json", spelled(`"id":1`, `"id":[1]`)},
		"beside a result":          {"application/json", spelled(`"id":1`, `"id":1,"result":{}`)},
		"beside an error":          {"application/json", spelled(`"id":1`, `"id":1,"error":{"code":1,"message":"x"}`)},
		"beside a null error":      {"application/json", spelled(`"id":1`, `"id":1,"error":null`)},
		"twice a name":             {"application/json", spelled(`"name":"delete_db"`, `"name":"search","name":"delete_db"`)},
		"twice a method":           {"application/json", spelled(`"method":"tools/call"`, `"method":"ping","method":"tools/call"`)},
		"twice, escaped":           {"application/json", spelled(`"name":"delete_db"`, `"name":"search","n\u0061me":"delete_db"`)},
		"Kelvin sign":              {"application/json", spelled(`"params"`, `"_meta":{"progressTo\u212aen":1},"params"`)},
		"long s":                   {"application/json", spelled(`"arguments"`, `"argument\u017f"`)},
		"dotless i":                {"application/json", spelled(`"id"`, `"\u0131d"`)},
		"a method in capitals":     {"application/json", spelled("tools/call", "Tools/Call")},
		"a method with a space":    {"application/json", spelled("tools/call", "tools/call ")},
		"a method with a slash":    {"application/json", spelled("tools/call", "tools//call")},
		"a method, zero width":     {"application/json", spelled("tools/call", "tools/\u200bcall")},
		"a method, full width":     {"application/json", spelled("tools/call", "\uff54ools/call")},
		"version as a number":      {"application/json", spelled(`"2.0"`, `2.0`)},
		"another version":          {"application/json", spelled(`"2.0"`, `"2.1"`)},
		"no version":               {"application/json", spelled(`"jsonrpc":"2.0",`, "")},
		"params as a list":         {"application/json", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["delete_db",{"q":"all"}]}`},
		"params as text":           {"application/json", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"{\"name\":\"delete_db\"}"}`},
		"arguments as text":        {"application/json", spelled(`{"q":"all"}`, `"{\"q\":\"all\"}"`)},
		"a batch":                  {"application/json", "[" + call + "]"},
		"a batch with a ping":      {"application/json", `[{"jsonrpc":"2.0","id":2,"method":"ping"},` + call + "]"},
		"a list in a list":         {"application/json", "[[" + call + "]]"},
		"two documents":            {"application/json", call + call},
		"lines":                    {"application/x-ndjson", `{"jsonrpc":"2.0","method":"ping","id":1}` + "\n" + call},
		"a sequence":               {"application/json-seq", "\x1e" + call + "\n"},
		"an event":                 {"text/event-stream", "data: " + call + "\n\n"},
		"byte order mark":          {"application/json", "\ufeff" + call},
		"byte order mark, text":    {"text/plain", "\ufeff" + call},
		"UTF-16":                   {"application/json", utf16le(call)},
		"UTF-16, text":             {"text/plain", utf16le(call)},
		"UTF-16 without a mark":    {"text/plain", strings.TrimPrefix(utf16le(call), "\xff\xfe")},
		"a comment":                {"application/json", "/* x */" + call},
		"a comment, text":          {"text/plain", "// x\n" + call},
		"a comment, no type":       {"", "/**/" + call},
		"a comment within":         {"application/json", spelled(`"id":1,`, `"id":1,/*x*/`)},
		"a trailing comma":         {"application/json", spelled(`"all"}}}`, `"all"}},}`)},
		"behind white space":       {"text/plain", " \t\r\n\f\v" + call},
		"behind NUL":               {"text/plain", "\x00" + call},
		"behind no-break space":    {"text/plain", "\u00a0" + call},
		"behind NEL":               {"text/plain", "\u0085" + call},
		"behind a separator":       {"text/plain", "\u2028" + call},
		"behind a prefix":          {"text/plain", ")]}',\n" + call},
		"single quotes":            {"text/plain", strings.ReplaceAll(call, `"`, "'")},
		"JSON5":                    {"application/json5", strings.ReplaceAll(call, `"jsonrpc"`, "jsonrpc")},
		"YAML":                     {"application/yaml", "jsonrpc: '2.0'\nid: 1\nmethod: tools/call\nparams:\n  name: delete_db\n"},
		"as a text of JSON":        {"application/json", `"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_db\"}}"`},
		"in an envelope":           {"application/json", `{"message":` + call + `}`},
		"a message without method": {"application/json", `{"jsonrpc":"2.0","id":1,"params":{"name":"delete_db"}}`},
	} {
		got := post(t, b.url+"/mcp", tc.kind, tc.body, func(r *http.Request) {
			r.Header.Set("X-Auth-Request-User", "ann")
			r.Header.Set("X-Auth-Request-Groups", "staff")
			if tc.kind == "" {
				r.Header.Del("Content-Type")
			}
		})
		if n := len(reached.take()); n != 0 {
			t.Errorf("%s: %s, %d requests reached the server, want none", name, got, n)
		}
	}
}

// TestNoWebSocketToTools checks that no WebSocket opens to an MCP server or with its subprotocol if
// a control reads messages, nor to a model, whatever body the handshake has: the bouncer does not
// read messages in WebSockets. Other applications keep theirs.
func TestNoWebSocketToTools(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	policies := policySet{
		revision: 1, mode: "enforce",
		resources: []target.Resource{
			{ID: 5, Type: "mcp", Path: "/mcp", Doc: valuetest.Decode(t, `{"resource_kind":"mcp_server"}`)},
			{ID: 6, Type: "api", Path: "/app/**", Doc: valuetest.Decode(t, `{}`)},
			{ID: 7, Type: "llm", Path: "/v1/**", Doc: valuetest.Decode(t, `{"resource_kind":"llm_endpoint"}`)},
		},
		controls: []control{
			{id: 1, source: "package tools\n\nallow if not input.mcp.tool == \"delete_db\"\n"},
			{id: 2, source: "package prompts\n\ndeny if input.llm.unreadable\n", resource: 7},
		},
	}
	p, b := startPublished(t, app.URL, policies, nil)
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	handshake := func(path, body string, fields ...string) reply {
		return fetch(t, "GET", b.url+path, func(r *http.Request) {
			if body != "" {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			}
			r.Header.Set("Connection", "keep-alive, Upgrade")
			r.Header.Set("Upgrade", "WebSocket")
			r.Header.Set("Sec-WebSocket-Version", "13")
			r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
			for i := 0; i < len(fields); i += 2 {
				r.Header.Set(fields[i], fields[i+1])
			}
		})
	}
	for _, tc := range []struct {
		name, path, body string
		fields           []string
		opens            bool
	}{
		{"a tool server", "/mcp", "", nil, false},
		{"a tool server, with a ping", "/mcp", ping, []string{"Content-Type", "application/json"}, false},
		{"a tool server, folded", "/MCP", "", nil, false},
		{"the subprotocol", "/app/ws", "", []string{"Sec-WebSocket-Protocol", "chat, MCP"}, false},
		{"a model", "/v1/realtime", "", nil, false},
		{"a model, with a prompt", "/v1/realtime", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, []string{"Content-Type", "application/json"}, false},
		{"an application", "/app/ws", "", nil, true},
	} {
		app.take()
		got := handshake(tc.path, tc.body, tc.fields...)
		if n := len(app.take()); (n == 1) != tc.opens || !tc.opens && got.status != 403 {
			t.Errorf("%s: %s, %d requests reached the server, want it to open: %v", tc.name, got, n, tc.opens)
		}
	}
	policies.revision, policies.mode = 2, "shadow"
	p.deploy(b, policies)
	if handshake("/mcp", ""); len(app.take()) != 1 {
		t.Error("in shadow: the handshake did not reach the server")
	}
}
