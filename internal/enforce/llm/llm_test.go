package llm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// Controls see the requests of all providers in one form.
func TestParse(t *testing.T) {
	for name, tc := range map[string]struct{ path, version, body, want string }{
		"chat": {
			"/v1/chat/completions", "", `{"model":"gpt-4o","messages":[{"role":"user","content":"Hello there"}],"max_tokens":50,"stream":true}`,
			`{"provider":"openai","model":"gpt-4o","messages":[{"role":"user","content":"Hello there"}],"max_tokens":50,"estimated_tokens":11,"stream":true}`,
		},
		"no bound": {
			"/v1/chat/completions", "", `{"model":"m","messages":[]}`,
			`{"provider":"openai","model":"m","messages":[],"estimated_tokens":3,"stream":false}`,
		},
		"newer bound": {
			"/x", "", `{"model":"o3","messages":[],"max_completion_tokens":7}`,
			`{"provider":"openai","model":"o3","messages":[],"max_tokens":7,"estimated_tokens":3,"stream":false}`,
		},
		"two bounds": {
			"/x", "", `{"model":"o3","messages":[],"max_completion_tokens":7,"max_tokens":9}`,
			`{"provider":"openai","model":"o3","messages":[],"max_tokens":9,"estimated_tokens":3,"stream":false}`,
		},
		"anthropic": {
			"/v1/messages", "2023-06-01", `{"model":"claude-x","system":"Be kind","messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}],"max_tokens":10}`,
			`{"provider":"anthropic","model":"claude-x","messages":[{"role":"system","content":"Be kind"},{"role":"user","content":[{"type":"text","text":"Hi"}]}],"max_tokens":10,"estimated_tokens":17,"stream":false}`,
		},
		"responses": {
			"/v1/responses", "", `{"model":"gpt-5","instructions":"Be kind","input":"Hi there","max_output_tokens":5}`,
			`{"provider":"openai","model":"gpt-5","messages":[{"role":"system","content":"Be kind"},{"role":"user","content":"Hi there"}],"max_tokens":5,"estimated_tokens":18,"stream":false}`,
		},
		"responses with items": {
			"/v1/responses", "", `{"model":"gpt-5","input":[{"role":"user","content":"Hi"},{"type":"function_call_output","call_id":"c","output":"told"}]}`,
			`{"provider":"openai","model":"gpt-5","messages":[{"role":"user","content":"Hi"},{"role":"tool","content":{"type":"function_call_output","call_id":"c","output":"told"}}],"estimated_tokens":15,"stream":false}`,
		},
		"legacy":      {"/v1/completions", "", `{"model":"m","prompt":["a","b"]}`, `{"provider":"openai","model":"m","messages":[{"role":"user","content":["a","b"]}],"choices":2,"estimated_tokens":9,"stream":false}`},
		"json-rpc":    {"/v1/messages", "", `{"jsonrpc":"2.0","method":"x","messages":[]}`, `{"provider":"anthropic","messages":[],"estimated_tokens":3,"stream":false}`},
		"no model":    {"/search", "", `{"input":"words"}`, ""},
		"another":     {"/orders", "", `{"item":1}`, ""},
		"no object":   {"/v1/messages", "", `[1]`, ""},
		"odd content": {"/x", "", `{"messages":"all as one text","model":"m"}`, `{"provider":"openai","model":"m","messages":[{"role":"user","content":"all as one text"}],"estimated_tokens":12,"stream":false}`},
	} {
		r, bad := Parse(Source{Path: tc.path, AnthropicVersion: tc.version}, valuetest.Decode(t, tc.body))
		if bad != nil || (r != nil) != (tc.want != "") {
			t.Errorf("%s: Parse = %v %v, want a request: %v", name, r, bad, tc.want != "")
			continue
		}
		if r == nil {
			continue
		}
		if got := string(r.Doc().AppendJSON(nil)); got != tc.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, tc.want)
		}
	}
}

// The estimate of tokens is at least the real number, and not far above it.
func TestEstimate(t *testing.T) {
	words := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 100) // 1001 tokens in cl100k
	est := func(content string) int64 {
		body := fmt.Sprintf(`{"model":"gpt-4","messages":[{"role":"user","content":%s}]}`, content)
		r, _ := Parse(Source{}, valuetest.Decode(t, body))
		return r.Estimated
	}
	if n := est(`"` + words + `"`); n < 1001 || n > 1250 {
		t.Errorf("1001 tokens of English: %d, want 1001 to 1250", n)
	}
	if n := est(`"` + strings.Repeat("漢", 100) + `"`); n < 80 || n > 200 {
		t.Errorf("100 Chinese characters: %d, want 80 to 200", n)
	}
	picture := `[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo` + strings.Repeat("A", 100_000) + `"}}]`
	if n := est(picture); n < perMedia || n > 2*perMedia {
		t.Errorf("a picture: %d, want %d to %d", n, perMedia, 2*perMedia)
	}
	plain, _ := Parse(Source{}, valuetest.Decode(t, `{"model":"m","messages":[]}`))
	tools, _ := Parse(Source{}, valuetest.Decode(t, `{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f","description":"`+words+`"}}]}`))
	if tools.Estimated < plain.Estimated+1000 {
		t.Errorf("with tools: %d, want at least 1000 more than %d", tools.Estimated, plain.Estimated)
	}
}

// The meter reads the cost of an answer, however it is cut: what the provider reports, or an estimate.
func TestMeter(t *testing.T) {
	const chunk = `{"id":"c","choices":[{"index":0,"delta":{"content":"Hello there, you "}}],"usage":null}`
	for name, tc := range map[string]struct {
		events   bool
		body     string
		want     int64
		reported bool
	}{
		"chat":          {false, `{"choices":[{"message":{"content":"{\"usage\":{\"total_tokens\":1}}"}}],"usage":{"prompt_tokens":11,"completion_tokens":31,"total_tokens":42}}`, 42, true},
		"anthropic":     {false, `{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":0,"output_tokens":1}}}],"usage":{"input_tokens":5,"cache_read_input_tokens":10,"output_tokens":20}}`, 35, true},
		"no usage":      {false, `{"choices":[{"message":{"role":"assistant","content":"Hello there, you"}}]}`, 104, false},
		"deep usage":    {false, `{"x":{"usage":{"prompt_tokens":900,"completion_tokens":900}}}`, 100, false},
		"not json":      {false, `<html>`, 100, false},
		"streamed chat": {true, "data: " + chunk + "\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":8}}\n\ndata: [DONE]\n\n", 15, true},
		"no last event": {true, "data: " + chunk + "\n\ndata: " + chunk + "\n\ndata: [DONE]\n\n", 109, false},
		"streamed messages": {true, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n" +
			"data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n", 40, true},
		"streamed responses": {true, "data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\r\n\r\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}}\r\n\r\n", 7, true},
		"broken off":         {true, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25}}}\n\ndata: {\"delta\":{\"text\":\"12345678\"}}\n\n", 27, true},
	} {
		for size := 1; size <= len(tc.body); size += 1 + size {
			m := NewMeter("gpt-4", tc.events)
			for at := 0; at < len(tc.body); at += size {
				_, _ = m.Write([]byte(tc.body[at:min(at+size, len(tc.body))]))
			}
			if got, reported := m.Cost().Total(100), m.Cost().Reported; got != tc.want || reported != tc.reported {
				t.Errorf("%s in pieces of %d: %d tokens, reported %v, want %d %v", name, size, got, reported, tc.want, tc.reported)
			}
		}
	}
}

// TestMeterFindsTheEnd checks that a stream is over at the empty line after its last event, neither earlier
// nor because of text that the model writes.
func TestMeterFindsTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		events bool
		body   string
		over   bool
	}{
		"chat":               {true, "data: {}\n\ndata: [DONE]\n\n", true},
		"chat, CR and LF":    {true, "data: {}\r\n\r\ndata: [DONE]\r\n\r\n", true},
		"messages":           {true, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", true},
		"responses":          {true, "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}}\n\n", true},
		"in a text":          {true, "data: {\"delta\":{\"content\":\"data: [DONE]\\n\\n\"}}\n\n", false},
		"a longer word":      {true, "data: [DONE] or not\n\nevent: message_stop_soon\n\n", false},
		"the usage to come":  {true, "event: response.completed\ndata: {\"response\":{\"usage\":{", false},
		"not a stream":       {false, "data: [DONE]\n\n", false},
		"nothing after DONE": {true, "data: [DONE]", false},
	} {
		m := NewMeter("gpt-4", tc.events)
		for _, c := range []byte(tc.body) {
			if m.IsOver() && c != '\n' {
				t.Errorf("%s: over before its end, at %q", name, c)
			}
			_, _ = m.Write([]byte{c})
		}
		if m.IsOver() != tc.over {
			t.Errorf("%s: over = %v, want %v", name, m.IsOver(), tc.over)
		}
	}
}

func BenchmarkMeter(b *testing.B) {
	event := []byte("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n")
	b.SetBytes(int64(len(event)))
	m := NewMeter("gpt-4", true)
	for b.Loop() {
		_, _ = m.Write(event)
	}
}
