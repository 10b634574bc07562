package enforce

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// TestBothReadingsAreInspected checks a path that names two resources, one as it is spelled and one
// after folding. If either is a model or an MCP server, the body is read as one.
func TestBothReadingsAreInspected(t *testing.T) {
	t.Parallel()
	const open, deny = "package open\n\nallow := true\n", "package closed\n\nallow := false\n"
	const noLLM = "package model\n\ndefault allow := false\n\nallow if not input.llm\n"
	const noMCP = "package tools\n\ndefault allow := false\n\nallow if not input.mcp\n"
	model := target.Resource{ID: 1, Type: "llm", Doc: valuetest.Decode(t, `{"resource_kind":"llm_endpoint"}`)}
	server := target.Resource{ID: 1, Type: "mcp", Doc: valuetest.Decode(t, `{"resource_kind":"mcp_server"}`)}
	for name, tc := range map[string]struct {
		guarded        target.Resource
		at, other      string // paths of the guarded resource and of the one beside it
		source, beside string
		kind, body     string
		status         int
	}{
		"text to a model as it is spelled":      {model, "/v1/**", "/V1/files", noLLM, open, "text/plain", "say something", 403},
		"a form to a model as it is spelled":    {model, "/v1/**", "/V1/files", noLLM, open, "application/x-www-form-urlencoded", "a=b", 403},
		"text to a model when folded":           {model, "/V1/files", "/v1/**", noLLM, open, "text/plain", "say something", 403},
		"a message as it is spelled":            {server, "/v1/**", "/V1/files", noMCP, open, "application/json", `{"method":"tools/call"}`, 400},
		"a message when folded":                 {server, "/V1/files", "/v1/**", noMCP, open, "application/json", `{"method":"tools/call"}`, 400},
		"a method of nobody's as it is spelled": {server, "/v1/**", "/V1/files", open, open, "application/json", `{"jsonrpc":"2.0","id":1,"method":"odd/one"}`, 200},
		"a ping that another may read":          {server, "/V1/files", "/v1/**", deny, deny, "application/json", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 200},
	} {
		t.Run(name, func(t *testing.T) {
			guarded := tc.guarded
			guarded.Path = tc.at
			app, p := newApplication(t, nil), newPlane(t)
			p.publish(policySet{
				revision: 1, mode: "enforce", resources: []target.Resource{guarded, {ID: 2, Type: "api", Path: tc.other}},
				controls: []control{{1, 1, tc.source}, {2, 2, tc.beside}, {3, 1, "package reads\n\nallow := true\n\nused := input.mcp.method\n"}},
			})
			b := start(t, p, app.URL, nil).at(t, 1)
			got := post(t, b.url+"/v1/files", tc.kind, tc.body, nil)
			// A refusal of a call of MCP is an answer with status 200, and an error in it.
			if got.status != tc.status || got.status == 200 && !strings.Contains(got.body, `"error"`) {
				t.Errorf("%s, want a refusal with %d", got, tc.status)
			}
			if n := len(app.take()); n > 0 {
				t.Errorf("%d requests reached the application, want none", n)
			}
		})
	}
}
