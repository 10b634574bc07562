package enforce

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// waitToolChanges waits for n events in the decision log that say which tools changed.
func (p *plane) waitToolChanges(n int) (changes []map[string]any) {
	p.t.Helper()
	p.wait(fmt.Sprintf("%d changes of tools in the log", n), func() bool {
		changes = changes[:0]
		for _, e := range p.events {
			if field(e, "custom", "event") == "mcp_tools_changed" {
				changes = append(changes, e)
			}
		}
		return len(changes) == n
	})
	return changes
}

// Shadow mode also reports a server that changes the descriptions of its tools. The client gets the
// server's answer unchanged.
func TestShadowReportsChangedTools(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version string
		opts    sdk.StreamableHTTPOptions
	}{
		"2025-06-18": {"2025-06-18", sdk.StreamableHTTPOptions{}}, "2025-11-25 JSON": {"2025-11-25", sdk.StreamableHTTPOptions{JSONResponse: true}},
		"2026-07-28": {"2026-07-28", sdk.StreamableHTTPOptions{Stateless: true}}, "2026-07-28 JSON": {"2026-07-28", sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var now atomic.Pointer[http.Handler]
			serve := func(describe string) {
				h := toolServer(describe, &tc.opts)
				now.Store(&h)
			}
			serve("does ")
			app := newApplication(t, func(w http.ResponseWriter, r *http.Request) { (*now.Load()).ServeHTTP(w, r) })
			p, b := startPublished(t, app.URL, guarded(1, "shadow"), nil)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			list := func(describe string) {
				serve(describe)
				s := connect(ctx, t, b, vouched{"ann", "staff"}, tc.version)
				defer s.Close()
				got, err := s.ListTools(ctx, nil)
				if err != nil || len(got.Tools) != 3 {
					t.Fatalf("the tools are %v %v, want 3", got, err)
				}
				for _, tool := range got.Tools {
					if tool.Description != describe+tool.Name {
						t.Errorf("the description of %s is %q, want it unchanged", tool.Name, tool.Description)
					}
				}
			}
			list("does ")
			list("does ")
			if n := b.count.ToolsChanged.Load(); n != 0 {
				t.Errorf("%d changes are counted, want 0: nothing changed", n)
			}
			list("sends all to us: ")
			change := p.waitToolChanges(1)[0]
			if got := fmt.Sprint(field(change, "custom", "tools")); !strings.Contains(got, "search") || !strings.Contains(got, "mail") {
				t.Errorf("the event is %v, want the tools that changed", change)
			}
			if n := b.count.ToolsChanged.Load(); n != 3 {
				t.Errorf("%d changes are counted, want 3", n)
			}
		})
	}
}

// A body that is not a list, is compressed, broken or too long is forwarded unchanged, and read as
// far as possible.
func TestShadowReadsMalformedLists(t *testing.T) {
	t.Parallel()
	const ask = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	list := func(describe string) string {
		return `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"search","description":"` + describe + `"}]}}`
	}
	var body atomic.Pointer[string]
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", r.Header.Get("Kind"))
		if enc := r.Header.Get("Enc"); enc != "" {
			w.Header().Set("Content-Encoding", enc)
		}
		_, _ = io.WriteString(w, *body.Load())
	})
	p, b := startPublished(t, app.URL, guarded(1, "shadow"), nil)
	const events, doc = "text/event-stream", "application/json"
	for i, tc := range []struct {
		name, ask, kind, enc, body string
		changes                    uint64
	}{
		{"the first", ask, doc, "", list("a"), 0},
		{"the same", ask, doc, "", list("a"), 0},
		{"no list was asked for", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search"}}`, doc, "", list("b"), 0},
		{"packed", ask, doc, "gzip", gzipped(list("b")), 1},
		{"packed events", ask, events, "gzip", gzipped("data: " + list("c") + "\n\n"), 1},
		{"events", ask, events, "", "data: {}\n\ndata: " + list("d") + "\n\n", 1},
		{"another packing", ask, doc, "br", list("e"), 0},
		{"broken", ask, doc, "", list("e")[:40], 0},
		{"broken packing", ask, doc, "gzip", gzipped(list("e"))[:30], 0},
		{"too long", ask, doc, "", list(strings.Repeat("e", 1<<20)), 0},
		{"afterwards", ask, doc, "", list("e"), 1},
	} {
		body.Store(&tc.body)
		before := b.count.ToolsChanged.Load()
		got := rpc(t, b.url, tc.ask, "Kind", tc.kind, "Enc", tc.enc, "Accept-Encoding", "identity")
		if got.status != 200 || got.body != tc.body {
			t.Errorf("%d %s: %s, want 200 and the body unchanged", i, tc.name, got)
		}
		if tc.changes > 0 {
			p.wait(tc.name, func() bool { return b.count.ToolsChanged.Load() == before+tc.changes })
		}
		if n := b.count.ToolsChanged.Load() - before; n != tc.changes {
			t.Errorf("%s: %d changes are counted, want %d", tc.name, n, tc.changes)
		}
	}
	p.wait("the memory to be released", func() bool { return b.shadow.Held.Load() == 0 })
}

// A header that repeats an argument must repeat the argument that the tool's schema names.
func TestParamHeadersBySchema(t *testing.T) {
	t.Parallel()
	s := sdk.NewServer(&sdk.Implementation{Name: "tools", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"from":{"type":"object","properties":{"rows":{"type":"integer","x-mcp-header":"Rows"}}},"note":{"type":"string"}}}`)
	s.AddTool(&sdk.Tool{Name: "query", InputSchema: schema}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil
	})
	app := newApplication(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true}).ServeHTTP)
	_, b := startPublished(t, app.URL, guarded(1, "enforce"), nil)
	call := func(arguments string, params ...string) reply {
		head := append([]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "query"}, params...)
		meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
		return rpc(t, b.url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query","arguments":`+arguments+`,`+meta+`}}`, head...)
	}
	const both = `{"region":"eu","note":"us"}`
	refused := func(r reply) bool { return r.status == 400 && strings.Contains(r.body, `"error":"mcp_invalid"`) }
	if got := call(both, "Mcp-Param-Region", "us"); refused(got) {
		t.Errorf("before the bouncer knows the schema: %s, want no refusal", got)
	}
	if got := call(both, "Mcp-Param-Region", "nowhere"); !refused(got) {
		t.Errorf("a value that no argument has: %s, want a refusal", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	session := connect(ctx, t, b, vouched{"ann", "staff"}, "2026-07-28")
	defer session.Close()
	errtest.Must(t, errtest.Of(session.ListTools(ctx, nil)))
	for _, args := range []map[string]any{{"region": "Größe"}, {"region": "eu", "from": map[string]any{"rows": 3}}, {"note": "x"}, {"region": nil}} {
		if _, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "query", Arguments: args}); err != nil && strings.Contains(err.Error(), "Mcp-Param") {
			t.Errorf("the real client with %v: %v, want no refusal of its headers", args, err)
		}
	}
	if _, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "query", Arguments: map[string]any{"region": "eu"}}); err != nil {
		t.Errorf("a call by the real client: %v, want no error", err)
	}
	for name, tc := range map[string]struct {
		got     reply
		refused bool
	}{
		"as declared":             {call(both, "Mcp-Param-Region", "eu"), false},
		"of another argument":     {call(both, "Mcp-Param-Region", "us"), true},
		"no header":               {call(both), true},
		"of an absent argument":   {call(`{"note":"us"}`, "Mcp-Param-Region", "us"), true},
		"of null":                 {call(`{"region":null,"note":""}`, "Mcp-Param-Region", ""), true},
		"nested":                  {call(`{"from":{"rows":3.0}}`, "Mcp-Param-Rows", "3"), false},
		"nested, another":         {call(`{"from":{"rows":4},"n":3}`, "Mcp-Param-Rows", "3"), true},
		"undeclared, of some":     {call(both, "Mcp-Param-Region", "eu", "Mcp-Param-Other", "us"), false},
		"undeclared, of none":     {call(both, "Mcp-Param-Region", "eu", "Mcp-Param-Other", "xx"), true},
		"in another letter case":  {call(both, "mcp-param-REGION", "eu"), false},
		"encoded, as declared":    {call(both, "Mcp-Param-Region", "=?base64?ZXU=?="), false},
		"encoded, another's":      {call(both, "Mcp-Param-Region", "=?base64?dXM=?="), true},
		"where nothing is needed": {call(`{"note":"us"}`), false},
	} {
		if refused(tc.got) != tc.refused {
			t.Errorf("%s: %s, want a refusal: %v", name, tc.got, tc.refused)
		}
	}
}
