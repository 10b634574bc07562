package mcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// A schema declares which headers repeat which arguments. A schema with a bad declaration declares none.
func TestParamsOf(t *testing.T) {
	many := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"p%d":{"type":"string","x-mcp-header":"H%d"}`, i, i))
		}
		return `{"properties":{` + strings.Join(list, ",") + `}}`
	}
	for name, tc := range map[string]struct{ schema, want string }{
		"none":               {`{"properties":{"a":{"type":"string"}}}`, "[]"},
		"no schema":          {`true`, "[]"},
		"plain":              {`{"properties":{"a":{"type":"string","x-mcp-header":"Re-Gion"}}}`, "[{re-gion [a]}]"},
		"nested":             {`{"properties":{"o":{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}`, "[{n [o n]}]"},
		"beyond properties":  {`{"properties":{"l":{"items":{"type":"string","x-mcp-header":"N"}}}}`, "[]"},
		"of an object":       {`{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}`, "[]"},
		"no name":            {`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`, "[]"},
		"no token":           {`{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`, "[]"},
		"no text":            {`{"properties":{"a":{"type":"string","x-mcp-header":1}}}`, "[]"},
		"twice":              {`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`, "[]"},
		"one bad, all fall":  {`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"number","x-mcp-header":"B"}}}`, "[]"},
		"too many":           {many(maxParams + 1), "[]"},
		"too long":           {`{"properties":{"` + strings.Repeat("x", maxParamBytes) + `":{"type":"string","x-mcp-header":"A"}}}`, "[]"},
		"nested too deeply":  {strings.Repeat(`{"properties":{"a":`, 20) + `{"type":"string","x-mcp-header":"A"}` + strings.Repeat("}}", 20), "[]"},
		"a name of any sort": {`{"properties":{"a":{"type":"boolean","x-mcp-header":"x.Y_z"}}}`, "[{x.y_z [a]}]"},
	} {
		if got := fmt.Sprint(paramsOf(valuetest.Decode(t, tc.schema))); got != tc.want {
			t.Errorf("%s: paramsOf = %s, want %s", name, got, tc.want)
		}
	}
	if n := len(paramsOf(valuetest.Decode(t, many(maxParams)))); n != maxParams {
		t.Errorf("%d parameters, want %d", n, maxParams)
	}
}
