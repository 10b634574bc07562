package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// guard refuses tools that delete, unless the caller is an admin.
const guard = `package guard

allow if count(deny) == 0

deny contains sprintf("the tool %q deletes", [input.mcp.tool]) if {
	startswith(input.mcp.tool, "delete_")
	not "admin" in input.user.roles
}

deny contains "too much" if input.mcp.arguments.n > 5

deny contains "not at all" if not input.user.id
`

type toolInput struct {
	N int `json:"n,omitempty"`
}

// toolServer is a real MCP server with three tools.
func toolServer(describe string, opts *sdk.StreamableHTTPOptions) http.Handler {
	s := sdk.NewServer(&sdk.Implementation{Name: "tools", Version: "1"}, nil)
	for _, name := range []string{"search", "delete_user", "mail"} {
		sdk.AddTool(s, &sdk.Tool{Name: name, Description: describe + name}, func(_ context.Context, _ *sdk.CallToolRequest, in toolInput) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("%s did %d, mail to bea@example.com", name, in.N)}}}, nil, nil
		})
	}
	s.AddPrompt(&sdk.Prompt{Name: "greet"}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: "Hi"}}}}, nil
	})
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, opts)
}

// vouched sets the identity headers of a trusted proxy.
type vouched struct{ user, groups string }

func (v vouched) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Auth-Request-User", v.user)
	r.Header.Set("X-Auth-Request-Groups", v.groups)
	return http.DefaultTransport.RoundTrip(r)
}

// connect opens a session of a real client in a version of the protocol.
func connect(ctx context.Context, t *testing.T, b *running, as vouched, version string) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "client", Version: "1"}, nil)
	s, err := c.Connect(ctx, &sdk.StreamableClientTransport{Endpoint: b.url + "/mcp", HTTPClient: &http.Client{Transport: as}}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	errtest.Must(t, err)
	return s
}

var mcpResource = target.Resource{ID: 5, Type: "mcp", Path: "/mcp"}

// guarded returns a set with the control guard, and extra ones, for an MCP server.
func guarded(revision int, mode string, extra ...control) policySet {
	return policySet{
		revision: revision, mode: mode, resources: []target.Resource{mcpResource}, controls: append([]control{{id: 1, source: guard, resource: 5}}, extra...),
		config: loopbackProxies(),
	}
}

// A real client works with a real server, in each protocol version and with both forms of answers, and
// a tool that a control refuses does not run.
func TestMCPWithRealPeers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version string
		opts    sdk.StreamableHTTPOptions
	}{
		"2025-06-18": {"2025-06-18", sdk.StreamableHTTPOptions{}}, "2025-11-25 JSON": {"2025-11-25", sdk.StreamableHTTPOptions{JSONResponse: true}},
		"2025-11-25": {"2025-11-25", sdk.StreamableHTTPOptions{}}, "2026-07-28": {"2026-07-28", sdk.StreamableHTTPOptions{Stateless: true}},
		"2026-07-28 JSON": {"2026-07-28", sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true}},
	} {
		for _, mode := range []string{"enforce", "shadow"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				app := newApplication(t, toolServer("", &tc.opts).ServeHTTP)
				_, b := startPublished(t, app.URL, guarded(1, mode, control{id: 2, source: "package m\n\nallow := true\n\nmask contains \"pii:emails\"\n", resource: 5}), nil)
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				session := func(user, groups string) *sdk.ClientSession {
					s := connect(ctx, t, b, vouched{user, groups}, tc.version)
					if got := s.InitializeResult().ProtocolVersion; got != tc.version {
						t.Errorf("the session has version %s, want %s", got, tc.version)
					}
					return s
				}
				staff, admin := session("ann", "staff"), session("rita", "admin")
				defer staff.Close()
				defer admin.Close()
				enforced := mode == "enforce"
				tools := func(s *sdk.ClientSession) (names []string) {
					list, err := s.ListTools(ctx, nil)
					errtest.Must(t, err)
					for _, tool := range list.Tools {
						names = append(names, tool.Name)
					}
					slices.Sort(names)
					return names
				}
				want := []string{"delete_user", "mail", "search"}
				if got := tools(admin); !slices.Equal(got, want) {
					t.Errorf("an admin lists %v, want %v", got, want)
				}
				if enforced {
					want = want[1:]
				}
				if got := tools(staff); !slices.Equal(got, want) {
					t.Errorf("staff lists %v, want %v", got, want)
				}
				text := "search did 3, mail to bea@example.com"
				if enforced {
					text = "search did 3, mail to [redacted]"
				}
				res, err := staff.CallTool(ctx, &sdk.CallToolParams{Name: "search", Arguments: map[string]any{"n": 3}})
				if err != nil || res.Content[0].(*sdk.TextContent).Text != text {
					t.Errorf("a permitted call: %v %v, want %q", res, err, text)
				}
				for _, call := range []*sdk.CallToolParams{{Name: "delete_user"}, {Name: "mail", Arguments: map[string]any{"n": 6}}} {
					_, err := staff.CallTool(ctx, call)
					rpc, ok := errors.AsType[*jsonrpc.Error](err)
					switch {
					case !enforced && err != nil:
						t.Errorf("%s in shadow: %v, want no error", call.Name, err)
					case enforced && (!ok || rpc.Code != -32001):
						t.Errorf("%s: %v, want code -32001", call.Name, err)
					}
				}
				if _, err := admin.CallTool(ctx, &sdk.CallToolParams{Name: "delete_user"}); err != nil {
					t.Errorf("delete_user by an admin: %v, want no error", err)
				}
				if tc.version < "2026" {
					if err := staff.Ping(ctx, nil); err != nil {
						t.Errorf("a ping after a refusal: %v, want no error", err)
					}
				}
				if _, err := staff.GetPrompt(ctx, &sdk.GetPromptParams{Name: "greet"}); err != nil {
					t.Errorf("a prompt: %v, want no error", err)
				}
			})
		}
	}
}

// rpc sends a message without changes.
func rpc(t testing.TB, url, body string, head ...string) reply {
	t.Helper()
	return post(t, url+"/mcp", "application/json", body, func(r *http.Request) {
		r.Header.Set("X-Auth-Request-User", "ann")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i+1 < len(head); i += 2 {
			r.Header.Set(head[i], head[i+1])
		}
	})
}

// Every refusal, before or after a control decides, has a form that MCP clients read.
func TestMCPRefusals(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	p, b := startPublished(t, app.URL, guarded(1, "enforce"), nil)
	call := func(method, rest string) string {
		return `{"jsonrpc":"2.0","id":"a\"1","method":"` + method + `"` + rest + `}`
	}
	for name, tc := range map[string]struct {
		body   string
		head   []string
		status int
		want   string // within the answer
	}{
		"granted":                  {call("tools/call", `,"params":{"name":"search"}`), nil, 200, `"result"`},
		"denied":                   {call("tools/call", `,"params":{"name":"delete_x"}`), nil, 200, `{"jsonrpc":"2.0","id":"a\"1","error":{"code":-32001,"message":"the tool \"delete_x\" deletes","data":{"error":"access_denied","decision_id":"`},
		"denied, without an id":    {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"delete_x"}}`, nil, 403, `{"jsonrpc":"2.0","error":{"code":-32001`},
		"mismatch":                 {call("tools/call", `,"params":{"name":"delete_x"}`), []string{"Mcp-Name", "search"}, 400, `"code":-32020`},
		"no header":                {call("tools/list", ""), []string{"Mcp-Protocol-Version", "2026-07-28"}, 400, `"code":-32020`},
		"a batch":                  {"[" + call("ping", "") + "]", nil, 400, `"code":-32600`},
		"bad params":               {call("tools/call", `,"params":{"name":1}`), nil, 400, `"id":"a\"1","error":{"code":-32602`},
		"unknown":                  {call("tools/destroy", ""), nil, 200, `"code":-32001`},
		"foreign page":             {call("tools/list", ""), []string{"Origin", "https://evil.example"}, 403, `foreign_origin`},
		"a page without an origin": {call("tools/list", ""), []string{"Origin", "null"}, 403, `foreign_origin`},
		"own page":                 {call("tools/list", ""), []string{"Origin", b.url}, 200, `"result"`},
		"ping":                     {call("ping", ""), []string{"X-Auth-Request-User", ""}, 200, `"result"`},
		"a notification":           {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, []string{"X-Auth-Request-User", ""}, 200, `"result"`},
		"anonymous":                {call("tools/list", ""), []string{"X-Auth-Request-User", ""}, 200, `"not at all"`},
		"an answer":                {`{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 200, `"result"`},
		"discover":                 {call("server/discover", ""), nil, 200, `"result"`},
		"listen":                   {call("subscriptions/listen", ""), nil, 200, `"result"`},
		"broken":                   {`{"jsonrpc":`, nil, 400, `body_malformed`},
		"a member twice":           {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, nil, 400, `body_malformed`},
	} {
		got := rpc(t, b.url, tc.body, tc.head...)
		wantAnswer(t, name, got, tc.status, tc.want)
		if !json.Valid([]byte(got.body)) {
			t.Errorf("%s: %s, want JSON", name, got)
		}
	}
	// A ping to another application gives no access.
	q := guarded(2, "enforce")
	q.resources, q.controls = nil, []control{{id: 1, source: guard}}
	p.deploy(b, q)
	wantAnswer(t, "a ping to another application", rpc(t, b.url, call("ping", ""), "X-Auth-Request-User", ""), 200, "-32001")
}

// Lists of tools that the bouncer cannot read are not forwarded, also in a resumed stream.
func TestToolLists(t *testing.T) {
	t.Parallel()
	answers := map[string]func(http.ResponseWriter){}
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		answers[r.Header.Get("Case")](w)
	})
	send := func(kind, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		}
	}
	const list = `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"search"},{"name":"delete_user"}]}}`
	answers["json"] = send("application/json", list)
	answers["events"] = send("text/event-stream", "id: 1\ndata: \n\ndata: "+list+"\n\n")
	answers["text"] = send("text/plain", list)
	answers["broken"] = send("application/json", list[:50])
	answers["twice"] = send("application/json", strings.Replace(list, `"result"`, `"Result":{},"result"`, 1))
	answers["page"] = send("text/html", "<p>delete_user</p>")
	p, b := startPublished(t, app.URL, guarded(1, "enforce"), nil)
	const ask = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for name, want := range map[string]int{"json": 200, "events": 200, "text": 502, "broken": 502, "twice": 502} {
		got := rpc(t, b.url, ask, "Case", name)
		if got.status != want || strings.Contains(got.body, "delete_user") || want == 200 && !strings.Contains(got.body, `{"tools":[{"name":"search"}]}`) {
			t.Errorf("%s: %s, want %d without delete_user", name, got, want)
		}
	}
	get := func(name string) reply {
		return fetch(t, "GET", b.url+"/mcp", func(r *http.Request) {
			r.Header.Set("X-Auth-Request-User", "ann")
			r.Header.Set("Case", name)
			r.Header.Set("Accept", "text/event-stream")
			r.Header.Set("Mcp-Session-Id", "s")
			r.Header.Set("Last-Event-ID", "1")
		})
	}
	if got := get("events"); got.status != 200 || strings.Contains(got.body, "delete_user") || !strings.Contains(got.body, "search") {
		t.Errorf("a resumed stream: %s, want 200 without delete_user", got)
	}
	if got := get("page"); got.status != 200 || got.body != "<p>delete_user</p>" {
		t.Errorf("a page: %s, want it unchanged", got)
	}
	// A server that changes the description of a tool is reported, also after a restart.
	for i, describe := range []string{"finds ", "finds ", "sends all to us "} {
		answers["described"] = send("application/json", strings.Replace(list, `"search"`, `"search","description":"`+describe+`"`, 1))
		rpc(t, b.url, ask, "Case", "described")
		want := uint64(1) // the first description, after there was none
		if i == 2 {
			want = 2
		}
		if n := b.count.ToolsChanged.Load(); n != want {
			t.Errorf("%d changes are counted after %q, want %d", n, describe, want)
		}
	}
	dir := b.cfg.DataDir
	second := p.waitToolChanges(2)[1]
	if got := fmt.Sprint(field(second, "custom", "tools")); got != "[search]" || !strings.Contains(fmt.Sprint(second["result"]), "changed the descriptions of its tools: search") {
		t.Errorf("the event is %v, want a change of search", second)
	}
	b.stop()
	b = start(t, p, app.URL, inDir(dir)).at(t, 1)
	answers["described"] = send("application/json", strings.Replace(list, `"search"`, `"search","description":"again else"`, 1))
	rpc(t, b.url, ask, "Case", "described")
	if n := b.count.ToolsChanged.Load(); n != 1 {
		t.Errorf("%d changes are counted after a restart, want 1", n)
	}
}

// A verified token was issued for the bouncer, so the server does not receive it.
func TestMCPTokenIsNotForwarded(t *testing.T) {
	t.Parallel()
	in := &request.Inbound{Headers: http.Header{"Authorization": {"Bearer x"}, "Accept": {"*/*"}}}
	head := header.Outgoing{Names: header.DefaultNames(), Client: in.Headers, Named: []string{"Authorization"}}
	if h := head.Map(); h.Get("Authorization") != "" || h.Get("Accept") == "" {
		t.Errorf("the server gets %v, want Accept without Authorization", h)
	}
}
