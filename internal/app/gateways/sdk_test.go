package gateways_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/template"
)

// packages installs testdata/sdk by its lock file into a folder that later runs
// find again. Without node, npm or the registry the test that needs it is missing.
func packages(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			apptest.SkipMissing(t, "no "+program)
		}
	}
	sum := sha256.New()
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json", "run.mjs"} {
		data, err := os.ReadFile(filepath.Join("testdata", "sdk", name))
		errtest.Must(t, err)
		files[name] = data
		if name != "run.mjs" {
			sum.Write(data)
		}
	}
	dir := filepath.Join(os.TempDir(), "gatehouse-test-sdk-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	errtest.Must(t, os.MkdirAll(dir, 0o700))
	for name, data := range files {
		errtest.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return dir
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		apptest.SkipMissing(t, fmt.Sprintf("npm ci: %v: %.500s", err, out))
	}
	errtest.Must(t, os.WriteFile(done, nil, 0o600))
	return dir
}

// oddly writes a stream in pieces of odd sizes, also within lines and letters.
func oddly(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	sizes := []int{1, 2, 3, 7, 1, 11, 5, 23}
	for i := 0; text != ""; i++ {
		n := min(sizes[i%len(sizes)], len(text))
		_, _ = io.WriteString(w, text[:n])
		text = text[n:]
		_ = http.NewResponseController(w).Flush()
	}
}

// providers answers as OpenAI and Anthropic do, as far as the SDKs need.
func providers(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	streamed := strings.Contains(string(data), `"stream":true`)
	send := func(text string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
	switch {
	case r.URL.Path == "/v1/chat/completions" && streamed:
		var text strings.Builder
		for _, word := range []string{"Paris", ", über ", "alles", " schön."} {
			fmt.Fprintf(&text, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", word)
		}
		oddly(w, text.String()+"data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":9,\"total_tokens\":18}}\n\ndata: [DONE]\n\n")
	case r.URL.Path == "/v1/chat/completions":
		send(`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Paris, über alles schön."},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}`)
	case r.URL.Path == "/v1/responses":
		send(`{"id":"r","object":"response","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello."}]}],"usage":{"input_tokens":5,"output_tokens":2}}`)
	case r.URL.Path == "/v1/embeddings":
		send(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,0.25]}],"usage":{"prompt_tokens":4,"total_tokens":4}}`)
	case r.URL.Path == "/v1/files":
		send(`{"id":"file-1","object":"file","purpose":"batch"}`)
	case r.URL.Path == "/v1/messages/batches":
		send(`{"id":"batch-1","type":"message_batch","processing_status":"in_progress"}`)
	case r.URL.Path == "/v1/messages" && streamed:
		oddly(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":\"c\",\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n"+
			"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"+
			"event: ping\ndata: {\"type\":\"ping\"}\n\n"+
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello, schö\"}}\n\n"+
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"ne Welt.\"}}\n\n"+
			"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"+
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n"+
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	case r.URL.Path == "/v1/messages":
		send(`{"id":"m","type":"message","role":"assistant","model":"c","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":2}}`)
	default:
		http.NotFound(w, r)
	}
}

// TestOfficialSDKs checks that the TypeScript SDKs of OpenAI, Anthropic and MCP work unchanged
// through a bouncer with the templates of their resources, also with masks.
func TestOfficialSDKs(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	t.Parallel()
	dir := packages(t)
	tools := sdk.NewServer(&sdk.Implementation{Name: "tools", Version: "1"}, nil)
	for _, name := range []string{"search", "delete_db", "run_query"} {
		sdk.AddTool(tools, &sdk.Tool{Name: name, Description: "The tool " + name}, func(context.Context, *sdk.CallToolRequest, map[string]any) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: name + " is done"}}}, nil, nil
		})
	}
	server := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return tools }, nil)
	app := apptest.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" {
			server.ServeHTTP(w, r)
			return
		}
		providers(w, r)
	})
	s := apptest.StartServer(t, dbtest.SQLite)
	catalogue, err := template.Load()
	errtest.Must(t, err)
	model := s.Admin.Do(t, "POST", "/resources", body{"name": "model", "type": "llm", "path": "/v1/**", "resource_kind": "llm_endpoint", "sla_tier": "gold", "ai_provider": "openai"}).Want(201).ID()
	mcp := s.Admin.Do(t, "POST", "/resources", body{"name": "tools", "type": "mcp", "path": "/mcp", "resource_kind": "mcp_server"}).Want(201).ID()
	for id, resource := range map[string]int64{"AI_INGRESS_GUARDRAIL": model, "AI_PROMPT_INJECTION_DEFENSE": model, "AI_TOKEN_RATE_LIMIT": model, "MCP_TOOL_AUTH": mcp, "MCP_DESTRUCTIVE_ACTION_GUARD": mcp} {
		tpl, _ := catalogue.Get(id)
		apptest.Activate(t, s.Admin, id, "sandbox", tpl.Source(), body{"resource_id": resource})
	}
	const masks = "package %s\n\nallow := true\n\nmask contains \"pii:card_numbers\"\n"
	apptest.Activate(t, s.Admin, "masks model", "sandbox", fmt.Sprintf(masks, "masks_model"), body{"resource_id": model})
	apptest.Activate(t, s.Admin, "masks tools", "sandbox", fmt.Sprintf(masks, "masks_tools"), body{"resource_id": mcp})
	apptest.Enforce(t, s.Admin, "sandbox")
	b := s.Bouncer(t, s.Admin, body{"name": "ai", "environment": "sandbox", "resource_ids": []int64{model, mcp}}, app.Addr)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "run.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "BOUNCER="+b.URL)
	out, err := cmd.CombinedOutput()
	if passed := strings.Count(string(out), "ok "); err != nil || passed != 19 {
		t.Errorf("%d checks passed (%v), want 19\n%s", passed, err, out)
	}
}
