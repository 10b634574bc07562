package resource

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// TestChat: Chat sends the request that an endpoint like OpenAI's expects, and every other answer than its
// own is a bad gateway.
func TestChat(t *testing.T) {
	reply, status := "", http.StatusOK
	var got struct {
		Model    string
		Messages []chatMessage
		Format   map[string]string `json:"response_format"`
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "Bearer k3y" || r.Header.Get("Content-Type") != "application/json" || json.Unmarshal(body, &got) != nil {
			t.Errorf("request of Chat = %v %s", r.Header, body)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, reply)
	}))
	defer upstream.Close()
	open := outbound.New(outbound.Config{AllowHTTP: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer open.Close()
	chat := &Chat{Client: open, URL: upstream.URL + "/v1/chat/completions", Model: "m", Key: "k3y"}
	ask := func() ([]byte, error) {
		return chat.Answer(context.Background(), classify.NewPrompt(classify.Subject{Name: "x"}))
	}
	reply = `{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":"{\"resource_kind\":\"tool\"}"},"finish_reason":"stop"}]}`
	if text, err := ask(); err != nil || string(text) != `{"resource_kind":"tool"}` {
		t.Errorf("Answer = %s, %v, want the content of the first choice", text, err)
	}
	if got.Model != "m" || len(got.Messages) != 2 || got.Messages[0].Role != "system" || !strings.Contains(got.Messages[1].Content, `"name":"x"`) || got.Format["type"] != "json_object" {
		t.Errorf("request of Chat = %+v", got)
	}
	for name, c := range map[string]struct {
		status int
		reply  string
	}{
		"an error":       {500, `{"error":"overloaded"}`},
		"a redirect":     {302, reply},
		"no JSON":        {200, "hello"},
		"no choices":     {200, `{"choices":[]}`},
		"without an end": {200, `{"choices":[{"message":{"content":"` + strings.Repeat("x", 1<<20)},
	} {
		status, reply = c.status, c.reply
		if text, err := ask(); !fault.Is(err, fault.BadGateway) {
			t.Errorf("Answer to %s = %.40s, %v, want a bad gateway", name, text, err)
		}
	}
	guarded := outbound.New(outbound.Config{})
	defer guarded.Close()
	chat.Client = guarded
	if _, err := ask(); !fault.Is(err, fault.BadGateway) {
		t.Errorf("Answer from an address that is not public = %v, want a bad gateway", err)
	}
}
