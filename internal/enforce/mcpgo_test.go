package enforce

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	gomcp "github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
	"github.com/gatehouse-dev/gatehouse/internal/template"
)

// templateSource returns a shipped control without changes.
func templateSource(t testing.TB, id string) string {
	t.Helper()
	catalogue, err := template.Load()
	errtest.Must(t, err)
	shipped, ok := catalogue.Get(id)
	if !ok {
		t.Fatalf("there is no template %q", id)
	}
	return shipped.Source()
}

// executed records the tools that a server ran.
type executed struct {
	mu    sync.Mutex
	names []string
}

func (e *executed) add(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names = append(e.names, name)
}

func (e *executed) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.names
	e.names = nil
	return out
}

// mcpGoServer is a server of mark3labs/mcp-go without sessions. It decodes messages with
// encoding/json, which ignores case.
func mcpGoServer(ran *executed) http.Handler {
	s := mcpserver.NewMCPServer("tools", "1", mcpserver.WithToolCapabilities(true))
	for _, name := range []string{"search", "delete_db", "run_query"} {
		s.AddTool(gomcp.NewTool(name, gomcp.WithDescription("The tool "+name), gomcp.WithString("q")), func(_ context.Context, req gomcp.CallToolRequest) (*gomcp.CallToolResult, error) {
			ran.add(name + " " + req.GetString("q", ""))
			return gomcp.NewToolResultText(name + " is done"), nil
		})
	}
	return mcpserver.NewStreamableHTTPServer(s, mcpserver.WithStateLess(true), mcpserver.WithEndpointPath("/mcp"))
}

// officialServer is the same server with the official library.
func officialServer(ran *executed) http.Handler {
	s := sdk.NewServer(&sdk.Implementation{Name: "tools", Version: "1"}, nil)
	for _, name := range []string{"search", "delete_db", "run_query"} {
		sdk.AddTool(s, &sdk.Tool{Name: name}, func(_ context.Context, _ *sdk.CallToolRequest, in struct {
			Q string `json:"q,omitempty"`
		},
		) (*sdk.CallToolResult, any, error) {
			ran.add(name + " " + in.Q)
			return &sdk.CallToolResult{}, nil, nil
		})
	}
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true})
}

// startWithTemplates starts a bouncer with both MCP templates in front of an MCP server.
func startWithTemplates(t *testing.T, h http.Handler) *running {
	t.Helper()
	app := newApplication(t, h.ServeHTTP)
	p := newPlane(t)
	p.publish(policySet{
		revision: 1, mode: "enforce",
		resources: []target.Resource{{ID: 5, Type: "mcp", Path: "/mcp", Doc: valuetest.Decode(t, `{"resource_kind":"mcp_server"}`)}},
		controls:  []control{{id: 1, source: templateSource(t, "MCP_TOOL_AUTH"), resource: 5}, {id: 2, source: templateSource(t, "MCP_DESTRUCTIVE_ACTION_GUARD"), resource: 5}},
		config:    loopbackProxies(),
	})
	return start(t, p, app.URL, nil).at(t, 1)
}

// secondReadings returns bodies that call delete_db, or run_query with DROP, for a server that
// ignores case or unpacks nested lists.
func secondReadings() []string {
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_db","arguments":{"q":"all"}}}`
	spelled := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(call) }
	return []string{
		`{"error":{},"Method":"tools/call","jsonrpc":"2.0","id":1,"params":{"name":"delete_db"}}`,
		`{"result":null,"Method":"tools/call","jsonrpc":"2.0","id":1,"params":{"name":"delete_db"}}`,
		`{"error":{},"METHOD":"tools/call","jsonrpc":"2.0","id":1,"PARAMS":{"NAME":"delete_db"}}`,
		`{"method":"ping","jsonrpc":"2.0","id":1,"Method":"tools/call","params":{"name":"delete_db"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","Name":"delete_db"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_query","Arguments":{"q":"DROP TABLE users"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_query","arguments":{"q":"select 1"},"ARGUMENTS":{"q":"DROP TABLE users"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_query","argument\u017f":{"q":"DROP TABLE users"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"delete_db"}}`,
		spelled(`"method"`, `"Method"`), spelled(`"method"`, `"METHOD"`, `"params"`, `"PARAMS"`, `"name"`, `"NAME"`),
		spelled(`"params"`, `"param`+"\u017f"+`"`), spelled(`"jsonrpc"`, `"j`+"\u017f"+`onrpc"`), spelled(`"jsonrpc"`, `"JSONRPC"`), spelled(`"id"`, `"ID"`),
		strings.ToUpper(`{"jsonrpc":"2.0","id":1,"method":`) + `"tools/call","PARAMS":{"NAME":"delete_db"}}`,
		"[" + call + "]", "[[" + call + "]]", `[{"jsonrpc":"2.0","id":2,"method":"ping"},[` + call + `]]`,
		"\ufeff" + call, call + call, call + "\n" + call,
	}
}

// TestMCPGoReadsNothingElse checks that no spelling of a message makes a server run a tool that the
// templates refuse.
func TestMCPGoReadsNothingElse(t *testing.T) {
	t.Parallel()
	var ran executed
	server := mcpGoServer(&ran)
	direct := newApplication(t, server.ServeHTTP)
	b, official := startWithTemplates(t, server), startWithTemplates(t, officialServer(&ran))
	dangerous := func(names []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "delete_db") || strings.Contains(n, "DROP") })
	}
	effective := 0
	for _, body := range secondReadings() {
		rpc(t, direct.URL, body)
		if dangerous(ran.take()) {
			effective++
		}
		got := rpc(t, b.url, body)
		if names := ran.take(); dangerous(names) {
			t.Errorf("%s: %s, the server ran %v, want nothing dangerous", body, got, names)
		}
		if got.status != 400 || !strings.Contains(got.body, `"jsonrpc":"2.0"`) || !strings.Contains(got.body, `"error":{"code":-32`) {
			t.Errorf("%s: %s, want 400 with an error of JSON-RPC", body, got)
		}
	}
	for _, body := range secondReadings() {
		rpc(t, official.url, body)
		if names := ran.take(); dangerous(names) {
			t.Errorf("%s: the official server ran %v, want nothing dangerous", body, names)
		}
	}
	if effective < 8 {
		t.Errorf("%d of the bodies call a tool without the bouncer, want at least 8", effective)
	}
}

// TestMCPGoClientUnchanged checks that the client of mcp-go works through the bouncer.
func TestMCPGoClientUnchanged(t *testing.T) {
	t.Parallel()
	var ran executed
	b := startWithTemplates(t, mcpGoServer(&ran))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := mcpclient.NewStreamableHttpClient(b.url+"/mcp", transport.WithHTTPHeaders(map[string]string{"X-Auth-Request-User": "ann", "X-Auth-Request-Groups": "staff"}))
	errtest.Must(t, err)
	defer c.Close()
	errtest.Must(t, c.Start(ctx))
	var hello gomcp.InitializeRequest
	hello.Params.ProtocolVersion = "2025-06-18"
	hello.Params.ClientInfo = gomcp.Implementation{Name: "client", Version: "1"}
	errtest.Must(t, errtest.Of(c.Initialize(ctx, hello)))
	list, err := c.ListTools(ctx, gomcp.ListToolsRequest{})
	errtest.Must(t, err)
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"run_query", "search"}) {
		t.Errorf("staff lists %v, want run_query and search", names)
	}
	call := func(name string, args map[string]any) error {
		var req gomcp.CallToolRequest
		req.Params.Name, req.Params.Arguments = name, args
		_, err := c.CallTool(ctx, req)
		return err
	}
	if err := call("search", map[string]any{"q": "deleted users of last year"}); err != nil {
		t.Errorf("search: %v, want no error", err)
	}
	if err := call("delete_db", nil); err == nil {
		t.Error("delete_db: no error, want a refusal")
	}
	if err := call("run_query", map[string]any{"q": "DROP TABLE users"}); err == nil {
		t.Error("run_query with DROP: no error, want a refusal")
	}
	if got := ran.take(); !slices.Equal(got, []string{"search deleted users of last year"}) {
		t.Errorf("the server ran %v, want search alone", got)
	}
}
