package mcp

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// Controls see the messages of all protocol versions in one form. A message that its headers
// contradict, or that is not valid, is an error.
func TestParse(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"drop","arguments":{"a":1}}}`
	const called = `{"method":"tools/call","tool":"drop","arguments":{"a":1}}`
	new2026 := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"drop"}}
	with := func(pairs ...string) http.Header {
		h := new2026.Clone()
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] == "" {
				h.Del(pairs[i])
			} else {
				h.Set(pairs[i], pairs[i+1])
			}
		}
		return h
	}
	for name, tc := range map[string]struct {
		body string
		head http.Header
		want string
	}{
		"a call":             {call, nil, called},
		"session":            {call, http.Header{"Mcp-Session-Id": {"s-1"}}, `{"method":"tools/call","tool":"drop","arguments":{"a":1},"session":"s-1"}`},
		"headers agree":      {call, new2026, `{"method":"tools/call","tool":"drop","arguments":{"a":1},"protocol_version":"2026-07-28"}`},
		"encoded name":       {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"Größe"}}`, with("Mcp-Name", "=?base64?R3LDtsOfZQ==?="), `{"method":"tools/call","tool":"Größe","protocol_version":"2026-07-28"}`},
		"other method":       {call, with("Mcp-Method", "tools/list"), "-32020"},
		"other name":         {call, with("Mcp-Name", "search"), "-32020"},
		"no method header":   {call, with("Mcp-Method", ""), "-32020"},
		"no name header":     {call, with("Mcp-Name", ""), "-32020"},
		"bad base64":         {call, with("Mcp-Name", "=?base64?%%?="), "-32020"},
		"older, other name":  {call, http.Header{"Mcp-Name": {"search"}}, "-32020"},
		"older, no headers":  {call, http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}, `{"method":"tools/call","tool":"drop","arguments":{"a":1},"protocol_version":"2025-11-25"}`},
		"twice":              {call, http.Header{"Mcp-Name": {"drop", "search"}}, "-32020"},
		"two versions":       {`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}, "-32020"},
		"a param":            {call, with("Mcp-Param-A", "1"), `{"method":"tools/call","tool":"drop","arguments":{"a":1},"protocol_version":"2026-07-28"}`},
		"a param, encoded":   {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"drop","arguments":{"in":{"place":"Größe"}}}}`, with("Mcp-Param-Place", "=?base64?R3LDtsOfZQ==?="), `{"method":"tools/call","tool":"drop","arguments":{"in":{"place":"Größe"}},"protocol_version":"2026-07-28"}`},
		"another param":      {call, with("Mcp-Param-A", "2"), "-32020"},
		"a param of nothing": {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"drop"}}`, with("Mcp-Param-A", "1"), "-32020"},
		"a param twice":      {call, http.Header{"Mcp-Param-A": {"1", "2"}}, "-32020"},
		"a bad param":        {call, with("Mcp-Param-A", "=?base64?%%?="), "-32020"},
		"discover":           {`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, nil, `{"method":"server/discover"}`},
		"initialize":         {`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`, nil, `{"method":"initialize","protocol_version":"2025-06-18"}`},
		"a notification":     {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil, `{"method":"notifications/initialized"}`},
		"an answer":          {`{"jsonrpc":"2.0","id":3,"result":{}}`, new2026, `{"method":"response","protocol_version":"2026-07-28"}`},
		"a prompt":           {`{"jsonrpc":"2.0","id":"x","method":"prompts/get","params":{"name":"p","arguments":{"q":"1"}}}`, nil, `{"method":"prompts/get","arguments":{"q":"1"},"prompt":"p"}`},
		"a resource":         {`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///x"}}`, nil, `{"method":"resources/read","resource":"file:///x"}`},
		"a task":             {`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t"}}`, nil, `{"method":"tasks/get","task":"t"}`},
		"no name":            {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, nil, "-32602"},
		"a number as name":   {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}`, nil, "-32602"},
		"params as list":     {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`, nil, "-32602"},
		"a batch":            {`[` + call + `]`, nil, "-32600"},
		"old JSON-RPC":       {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, nil, "-32600"},
		"no version at all":  {`{"id":1,"method":"tools/call","params":{"name":"x"}}`, nil, "-32600"},
		"method and result":  {`{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, nil, "-32600"},
		"a null id":          {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, nil, "-32600"},
		"a forged answer":    {`{"jsonrpc":"2.0","id":1,"method":"response"}`, nil, "-32600"},
		"a list of others":   {`[1,2]`, nil, ""},
		"no MCP":             {`{"method":"POST"}`, nil, ""},
		"a text":             {`"x"`, nil, ""},
		"a name for no call": {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, http.Header{"Mcp-Name": {"x"}}, `{"method":"tools/list"}`},
	} {
		m, bad := Parse(valuetest.Decode(t, tc.body), HeadersOf(tc.head), false)
		got := ""
		switch {
		case bad != nil:
			got = fmt.Sprint(bad.Code)
		case m != nil:
			got = string(m.Doc().AppendJSON(nil))
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	for body, want := range map[string][2]bool{ // harmless, known
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                        {true, true},
		`{"jsonrpc":"2.0","method":"notifications/x"}`:                    {true, true},
		`{"jsonrpc":"2.0","id":1,"method":"notifications/x"}`:             {false, true},
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}`:   {false, true},
		`{"jsonrpc":"2.0","id":1,"method":"tools/destroy","params":null}`: {false, false},
	} {
		m, bad := Parse(valuetest.Decode(t, body), Headers{}, false)
		if bad != nil || [2]bool{m.Harmless(), m.Known()} != want {
			t.Errorf("%s: %+v %v, want harmless and known %v", body, m, bad, want)
		}
	}
}

// TestNoSecondReading checks that a message is refused if a decoder that ignores case reads it
// differently, and that what an MCP server may take for a message must be a valid one.
func TestNoSecondReading(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"drop","arguments":{"a":1}}}`
	for _, tc := range []struct {
		body          string
		here, atOther bool // refused at an MCP server, refused elsewhere
	}{
		{`{"error":{},"Method":"tools/call","Params":{"name":"drop"},"jsonrpc":"2.0","id":1}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"error":{},"METHOD":"tools/call"}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"result":{},"params":{"name":"drop"}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"result":{},"x":1}`, true, true},
		{`{"jsonrpc":"2.0","result":{}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"error":"x"}`, true, true},
		{`{"JSONRPC":"2.0","ID":1,"METHOD":"tools/call","PARAMS":{"NAME":"drop"}}`, true, true},
		{`{"j\u017fonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"drop"}}`, true, true},
		{`{"\u017fomething":1}`, false, false},
		{`{"ID":1,"Method":"tools/call"}`, true, true},
		{`{"Method":"tools/call"}`, true, false},
		{`{"Result":{}}`, true, false},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","Name":"x"}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","Name2":"drop"}}`, false, false},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","ARGUMENTS":{}}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"Name":"drop"}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"ta\u017fkId":"x"}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"tas\u212aID":"y"}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"Name":"x"}}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/ProtocolVersion":"x"}}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"drop","arguments":[["a"]]}}`, true, true},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[["drop"]]}`, true, true},
		{`[` + call + `]`, true, true},
		{`[[` + call + `]]`, true, true},
		{`[1,["x",[{"METHOD":"tools/call","Id":1}]]]`, true, true},
		{`[[1,2],[3,4]]`, true, false},
		{call, false, false},
		// Arguments belong to the tool: any names, and nested lists.
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plot","arguments":{"Name":"x","Method":"y","points":[[1,2],[3,4]]}}}`, false, false},
		{`{"jsonrpc":"2.0","id":1,"result":{"Method":"x","content":[{"Type":"text"}]}}`, false, false},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x","data":{"Code":1}}}`, false, false},
		{`{"client_name":"x","redirect_uris":["https://a.example"]}`, false, false},
		{`{"Name":"x","ID":4}`, false, false},
	} {
		for server, want := range map[bool]bool{true: tc.here, false: tc.atOther} {
			if m, bad := Parse(valuetest.Decode(t, tc.body), Headers{}, server); (bad != nil) != want {
				t.Errorf("%s (at an MCP server: %v): %+v %v, want a refusal: %v", tc.body, server, m, bad, want)
			}
		}
	}
}

// A list of tools keeps its bytes, without the tools that the caller may not call. A list that cannot
// be read is an error.
func TestFilterTools(t *testing.T) {
	keep := func(name string) bool { return name != "drop" }
	const list = `{"jsonrpc":"2.0", "id":1,"result":{"tools":[ {"name":"a","description":"x"}, {"name":"drop"} ,{"name":"b"}],"nextCursor":"c"}}`
	out, tools, err := FilterTools([]byte(list), keep)
	if want := `{"jsonrpc":"2.0", "id":1,"result":{"tools":[ {"name":"a","description":"x"},{"name":"b"}],"nextCursor":"c"}}`; err != nil || string(out) != want || len(tools) != 3 {
		t.Errorf("FilterTools = %s %v, want %s and 3 tools", out, err, want)
	}
	if out, _, err := FilterTools([]byte("["+list+"]"), keep); err != nil || string(out) == "["+list+"]" {
		t.Errorf("a list of answers: %s %v, want it filtered", out, err)
	}
	for _, same := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","method":"notifications/message","params":{"tools":[{"name":"drop"}]}}`, `{}`} {
		if out, _, err := FilterTools([]byte(same), keep); err != nil || string(out) != same {
			t.Errorf("FilterTools(%s) = %s %v, want it unchanged", same, out, err)
		}
	}
	for _, bad := range []string{`{"result":{"tools":{}}}`, `{"result":{"tools":[{}]}}`, `{"result":{"tools":["drop"]}}`, `{"result":{"tools":[{"name":"a","Name":"drop"}]}}`, `{`} {
		if out, _, err := FilterTools([]byte(bad), keep); err == nil {
			t.Errorf("FilterTools(%s) = %s, want an error", bad, out)
		}
	}
	_, other, _ := FilterTools([]byte(`{"result":{"tools":[{"description":"x","name":"a"},{"name":"a","description":"y"}]}}`), keep)
	if other[0].Digest != tools[0].Digest || other[1].Digest == tools[0].Digest {
		t.Errorf("the digests are %v and %v, want equal ones for equal tools alone", tools, other)
	}
}
