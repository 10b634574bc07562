package enforce

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/session"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

const toolMasks = `package tools

allow if input.mcp.method != "tools/call"

allow if not input.mcp

allow if input.mcp.tool != "forbidden"

mask["result.ssn"] := "redact" if input.mcp.tool == "read"
`

// sessionServer opens the session s-1, and answers a GET with a stream that carries the answers to
// other requests.
func sessionServer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case strings.Contains(string(body), `"initialize"`):
		w.Header().Set(session.Header, "s-1")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Session", r.Header.Get(session.Header))
		fmt.Fprint(w, "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"ssn\":\"canary\"}}\n\n")
		fmt.Fprint(w, "id: 2\ndata: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"tools\":[{\"name\":\"read\"},{\"name\":\"forbidden\"}]}}\n\n")
	case strings.Contains(string(body), `"tools/list"`):
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"read"},{"name":"forbidden"}]}}`)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Session", r.Header.Get(session.Header))
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":2,"result":{"ssn":"canary"}}`)
	}
}

const (
	callInitialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	callRead       = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read"}}`
	callList       = `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`
)

// asUser makes a request in a session, for a user whom a trusted proxy names.
func asUser(user, id string, more ...string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("X-Auth-Request-User", user)
		if id != "" {
			r.Header.Set(session.Header, id)
		}
		for i := 0; i+1 < len(more); i += 2 {
			r.Header.Set(more[i], more[i+1])
		}
	}
}

// sessionPlane returns a control plane whose bundle has toolMasks.
func sessionPlane(t *testing.T, key masking.HashKey, mode string) *plane {
	p := newPlane(t)
	p.publish(policySet{
		revision: 1, mode: mode, hashKey: key, config: map[string]any{"identity": map[string]any{"trusted_proxies": []string{"127.0.0.1/32"}}},
		controls: []control{{id: 1, source: toolMasks}},
	})
	return p
}

// A session belongs to its user, at every bouncer of the tenant and after restarts. The server sees
// its own id.
func TestSessionsBelongToTheirUser(t *testing.T) {
	t.Parallel()
	app := newApplication(t, sessionServer)
	p := sessionPlane(t, masking.HashKey("one key that is thirty-two bytes"), "enforce")
	one, two := start(t, p, app.URL, nil).at(t, 1), start(t, p, app.URL, nil).at(t, 1)
	opened := post(t, one.url+"/mcp", "application/json", callInitialize, asUser("ann", ""))
	id := opened.header.Get(session.Header)
	if opened.status != 200 || id == "" || strings.Contains(id, "s-1") {
		t.Fatalf("%s in session %q, want 200 and an id of the bouncer", opened, id)
	}
	if again := post(t, two.url+"/mcp", "application/json", callInitialize, asUser("ann", "")).header.Get(session.Header); again != id {
		t.Errorf("the second bouncer names the session %s, want %s", again, id)
	}
	for name, b := range map[string]*running{"this bouncer": one, "another": two} {
		if got := post(t, b.url+"/mcp", "application/json", callRead, asUser("ann", id)); got.status != 200 || got.header.Get("X-Session") != "s-1" {
			t.Errorf("%s: %s for its user in session %q, want 200 in s-1", name, got, got.header.Get("X-Session"))
		}
		app.take()
		for user, session := range map[string]string{"bob": id, "": id, "ann": id[:len(id)-2], "Ann": id} {
			for _, method := range []string{"POST", "GET", "DELETE"} {
				got := fetch(t, method, b.url+"/mcp", asUser(user, session, "Last-Event-Id", "1"))
				if got.status != 404 || !strings.Contains(got.body, "session_unknown") || len(app.take()) > 0 {
					t.Errorf("%s: %s by %q in %s, want 404 session_unknown", name, got, user, session)
				}
			}
		}
	}
	// A foreign id belongs to its first user.
	wantAnswer(t, "a foreign session, first by ann", post(t, one.url+"/mcp", "application/json", callRead, asUser("ann", "elsewhere")), 200)
	wantAnswer(t, "a foreign session of ann, by bob", post(t, one.url+"/mcp", "application/json", callRead, asUser("bob", "elsewhere")), 404)
}

// Without a key, the bouncer remembers the user of each session. In shadow mode it does not change
// ids.
func TestSessionsWithoutAKey(t *testing.T) {
	t.Parallel()
	app := newApplication(t, sessionServer)
	b := start(t, sessionPlane(t, nil, "enforce"), app.URL, nil).at(t, 1)
	if got := post(t, b.url+"/mcp", "application/json", callInitialize, asUser("ann", "")).header.Get(session.Header); got != "s-1" {
		t.Errorf("the session is %q, want s-1", got)
	}
	wantAnswer(t, "a session of ann, by bob", post(t, b.url+"/mcp", "application/json", callRead, asUser("bob", "s-1")), 404)
	wantAnswer(t, "a session of ann, by ann", post(t, b.url+"/mcp", "application/json", callRead, asUser("ann", "s-1")), 200)
	shadow := start(t, sessionPlane(t, masking.HashKey("one key that is thirty-two bytes"), "shadow"), app.URL, nil).at(t, 1)
	if got := post(t, shadow.url+"/mcp", "application/json", callInitialize, asUser("ann", "")).header.Get(session.Header); got != "s-1" {
		t.Errorf("in shadow mode the session is %q, want s-1", got)
	}
	wantAnswer(t, "in shadow mode", post(t, shadow.url+"/mcp", "application/json", callRead, asUser("bob", "s-1")), 200)
}

// A resumed stream gets the masks of the answers that it carries, and does not list tools that the
// caller may not call, whatever the request accepts.
func TestResumedStreams(t *testing.T) {
	t.Parallel()
	app := newApplication(t, sessionServer)
	p := sessionPlane(t, masking.HashKey("one key that is thirty-two bytes"), "enforce")
	b := start(t, p, app.URL, nil).at(t, 1)
	id := post(t, b.url+"/mcp", "application/json", callInitialize, asUser("ann", "")).header.Get(session.Header)
	if got := post(t, b.url+"/mcp", "application/json", callRead, asUser("ann", id)); got.status != 200 || strings.Contains(got.body, "canary") {
		t.Fatalf("the call: %s, want 200 and no secret", got)
	}
	for _, accept := range []string{"text/event-stream", "*/*", "application/json", "text/plain", ""} {
		got := fetch(t, "GET", b.url+"/mcp", asUser("ann", id, "Accept", accept, "Last-Event-Id", "0"))
		if got.status != 200 || strings.Contains(got.body, "canary") || strings.Contains(got.body, "forbidden") || !strings.Contains(got.body, `"read"`) {
			t.Errorf("Accept %q: %s, want 200 with masks and the permitted tool alone", accept, got)
		}
	}
	// Another bouncer knows what the server's tools are, and so what masks their answers have.
	other := start(t, p, app.URL, nil).at(t, 1)
	post(t, other.url+"/mcp", "application/json", callList, asUser("ann", id))
	if got := fetch(t, "GET", other.url+"/mcp", asUser("ann", id)); got.status != 200 || strings.Contains(got.body, "canary") || strings.Contains(got.body, "forbidden") {
		t.Errorf("another bouncer: %s, want 200 with masks and the permitted tool alone", got)
	}
}
