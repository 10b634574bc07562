package enforce

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// envoy asks a bouncer over gRPC, as Envoy does.
type envoy struct {
	t      testing.TB
	client authv3.AuthorizationClient
}

func newEnvoy(t testing.TB, addr string) *envoy {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	errtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &envoy{t, authv3.NewAuthorizationClient(conn)}
}

// newCheck returns a check as Envoy sends it.
func newCheck(method, host, path string, headers map[string]string) *authv3.CheckRequest {
	all := map[string]string{":authority": host, ":method": method, ":path": path, ":scheme": "https", "x-request-id": "req-1", "x-forwarded-for": "198.51.100.7"}
	maps.Copy(all, headers)
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "198.51.100.7"}}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Id: "req-1", Method: method, Host: host, Path: path, Scheme: "https", Protocol: "HTTP/1.1", Headers: all, Size: -1,
		}},
	}}
}

// ask sends a check, and returns the answer that must come.
func (e *envoy) ask(req *authv3.CheckRequest) *authv3.CheckResponse {
	e.t.Helper()
	return e.askWithin(30*time.Second, req)
}

// askWithin is like ask, for an Envoy that waits for at most limit.
func (e *envoy) askWithin(limit time.Duration, req *authv3.CheckRequest) *authv3.CheckResponse {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	res, err := e.client.Check(ctx, req)
	if err != nil {
		e.t.Fatalf("the check failed with %v, want an answer: Envoy may be configured to let failures pass", err)
	}
	if err := res.ValidateAll(); err != nil {
		e.t.Errorf("the answer is not valid: %v", err)
	}
	return res
}

// outcome returns the status of an answer and our code.
func outcome(res *authv3.CheckResponse) string {
	m := res.GetDynamicMetadata().AsMap()
	if res.GetStatus().GetCode() == int32(codes.OK) {
		return fmt.Sprintf("OK %v %v", m["decision"], m["status"])
	}
	d := res.GetDeniedResponse()
	return fmt.Sprintf("%d %v %v", d.GetStatus().GetCode(), m["decision"], m["status"])
}

// expectOutcome reports an answer with another outcome.
func expectOutcome(t testing.TB, what string, res *authv3.CheckResponse, want string) {
	t.Helper()
	if got := outcome(res); got != want {
		t.Errorf("%s: %s, want %s (%v)", what, got, want, res)
	}
}

// values returns the fields that an answer of ours sets.
func values(list []*corev3.HeaderValueOption) map[string]string {
	out := map[string]string{}
	for _, h := range list {
		if h.GetAppendAction() == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			out[h.GetHeader().GetKey()] = h.GetHeader().GetValue()
		}
	}
	return out
}

// grpcBouncer starts a bouncer that answers Envoy over gRPC, and enforces the published set, if any.
func grpcBouncer(t testing.TB, p *plane, change func(*Config)) (*running, *envoy) {
	addr := freeport.Addr(t)
	b := start(t, p, "", func(c *Config) {
		c.GRPCListen = addr
		if change != nil {
			change(c)
		}
	})
	fetch(t, "GET", b.url+"/_bouncer/healthz", nil) // both addresses are open by then
	if p.revision > 0 {
		b.at(t, p.revision)
	}
	return b, newEnvoy(t, addr)
}

// TestExtAuthz checks what Envoy, the application and the client learn about a decision, and that a
// request that several readers may understand differently is denied.
func TestExtAuthz(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	keys := newIssuer(t)
	p.publish(policySet{revision: 1, mode: "enforce", config: map[string]any{"identity": keys.config(), "headers": []string{"x-channel"}}, controls: []control{
		{1, 0, adminOnly},
		{2, 9, "package pinned\n\nallow := false\n\nreason := \"pinned\"\n"},
		{3, 0, "package masks\n\nmask contains \"ssn\" if input.resource.path == \"/masked\"\n"},
		{4, 0, "package gateway_fields\n\ndeny contains sprintf(\"%s %s %s\", [input.gateway.principal, input.gateway.extensions.team, input.request.headers[\"x-channel\"]]) if input.resource.path == \"/gateway\"\n"},
	}, resources: []target.Resource{{ID: 9, Name: "pinned", Type: "api", Host: "elsewhere.example", Path: "/x"}}})
	_, e := grpcBouncer(t, p, nil)
	get := func(path string, headers map[string]string) *authv3.CheckResponse {
		return e.ask(newCheck("GET", "shop.example", path, headers))
	}
	bearer := func(user string, groups ...string) map[string]string {
		return map[string]string{"authorization": "Bearer " + keys.token(t, "ed", map[string]any{"sub": user, "email": nil, "groups": groups})}
	}

	ok := get("/orders?x=1", bearer("ann", "staff"))
	expectOutcome(t, "open", ok, "OK PERMIT ok")
	set := values(ok.GetOkResponse().GetHeaders())
	if set["x-auth-request-user"] != "ann" || set["x-auth-request-groups"] != "staff" || len(set) > 3 {
		t.Errorf("the application gets %v, want only ann and her group", set)
	}
	if id := values(ok.GetOkResponse().GetResponseHeadersToAdd())["x-decision-id"]; id == "" || id != ok.GetDynamicMetadata().AsMap()["decision_id"] {
		t.Errorf("the client gets decision id %q, want that of the metadata %v", id, ok.GetDynamicMetadata())
	}

	no := get("/admin", bearer("ben", "staff"))
	expectOutcome(t, "denied", no, "403 DENY access_denied")
	var body struct {
		Error, Message string
		DecisionID     string `json:"decision_id"`
		RequestID      string `json:"request_id"`
	}
	if err := json.Unmarshal([]byte(no.GetDeniedResponse().GetBody()), &body); err != nil || body.Error != "access_denied" || body.Message == "" || body.RequestID != "req-1" {
		t.Errorf("the client gets %q, want access_denied with a message and the request id: %v", no.GetDeniedResponse().GetBody(), err)
	}
	meta := no.GetDynamicMetadata().AsMap()
	if meta["decision_id"] != body.DecisionID || meta["policy_id"] != 1.0 || meta["policy_name"] != "control-1" || meta["effect"] != "DENY" || meta["mode"] != "enforce" {
		t.Errorf("the metadata is %v, want the denial of control-1 with the id of the answer %+v", meta, body)
	}
	expectOutcome(t, "an administrator", get("/admin", bearer("ada", "admin")), "OK PERMIT ok")
	expectOutcome(t, "a bad token", get("/orders", map[string]string{"authorization": "Bearer x.y.z"}), "401 DENY invalid_token")
	expectOutcome(t, "two tokens in one", get("/orders", map[string]string{"authorization": "Bearer a,Bearer b"}), "401 DENY invalid_token")
	expectOutcome(t, "what must be masked", get("/masked", nil), "403 DENY mask_impossible")

	forged := get("/orders", map[string]string{"x-auth-request-user": "root", "x_auth_request_groups": "admin", "x-http-method-override": "DELETE", "x-original-uri": "/", "x-forwarded-proto": "https"})
	expectOutcome(t, "forged", forged, "OK PERMIT ok")
	for _, name := range []string{"x-auth-request-user", "x_auth_request_groups", "x-http-method-override", "x-original-uri"} {
		if !slices.Contains(forged.GetOkResponse().GetHeadersToRemove(), name) {
			t.Errorf("Envoy removes %v, want also %s", forged.GetOkResponse().GetHeadersToRemove(), name)
		}
	}
	if gone := forged.GetOkResponse().GetHeadersToRemove(); slices.Contains(gone, "x-forwarded-proto") || slices.Contains(gone, "x-request-id") {
		t.Errorf("Envoy removes %v, want its own fields kept", gone)
	}
	expectOutcome(t, "forged, and not open", get("/admin", map[string]string{"x-auth-request-user": "root", "x-auth-request-groups": "admin"}), "401 DENY authentication_required")

	for _, path := range []string{"/a/../admin", "//admin", "/a%2fb", "/a\\b", "/%00", "/a;x/../admin", "admin", "", "/x#y", "*"} {
		expectOutcome(t, path, get(path, nil), "400 DENY bad_request")
	}
	expectOutcome(t, "a method in lower case", e.ask(newCheck("delete", "shop.example", "/x", nil)), "405 DENY method_not_allowed")
	expectOutcome(t, "an odd host", e.ask(newCheck("GET", "shop example", "/x", nil)), "400 DENY bad_request")
	expectOutcome(t, "nothing at all", e.ask(&authv3.CheckRequest{}), "400 DENY bad_request")

	with := func(extensions map[string]string, path string) *authv3.CheckResponse {
		req := newCheck("GET", "shop.example", path, map[string]string{"x-channel": "web"})
		req.Attributes.ContextExtensions = extensions
		req.Attributes.Source.Principal = "spiffe://shop/web"
		return e.ask(req)
	}
	expectOutcome(t, "this bouncer", with(map[string]string{"bouncer": "7"}, "/x"), "OK PERMIT ok")
	expectOutcome(t, "this bouncer's name", with(map[string]string{"bouncer": "test"}, "/x"), "OK PERMIT ok")
	expectOutcome(t, "another bouncer", with(map[string]string{"bouncer": "8"}, "/x"), "403 DENY wrong_bouncer")
	pinned := with(map[string]string{"resource": "9"}, "/orders")
	expectOutcome(t, "the route's resource", pinned, "403 DENY access_denied")
	if m := pinned.GetDynamicMetadata().AsMap(); m["resource_id"] != 9.0 || m["reason"] != "pinned" {
		t.Errorf("the metadata is %v, want resource 9 with its reason", m)
	}
	for _, id := range []string{"10", "x", "-1", "0"} {
		expectOutcome(t, "resource "+id, with(map[string]string{"resource": id}, "/orders"), "403 DENY unknown_resource")
	}
	if denied := with(map[string]string{"team": "web"}, "/gateway"); denied.GetDynamicMetadata().AsMap()["reason"] != "spiffe://shop/web web web" {
		t.Errorf("the control read %v, want the principal, the extension and the header", denied)
	}
	for _, event := range p.logged(12) {
		if in, _ := event["input"].(map[string]any); field(in, "context", "ip_address") != "198.51.100.7" {
			t.Errorf("the event is %v, want the address of the client", event)
		}
	}
}

// TestExtAuthzRawHeaders checks that lines of one name stay separate with encode_raw_headers.
func TestExtAuthzRawHeaders(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{1, 0, adminOnly}}, config: map[string]any{"identity": map[string]any{"forward_auth_headers": true}}})
	_, e := grpcBouncer(t, p, nil)
	ask := func(pairs ...string) *authv3.CheckResponse {
		req := newCheck("GET", "shop.example", "/admin", nil)
		h := req.Attributes.Request.Http
		h.Headers, h.HeaderMap = nil, &corev3.HeaderMap{}
		for i := 0; i < len(pairs); i += 2 {
			h.HeaderMap.Headers = append(h.HeaderMap.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
		}
		return e.ask(req)
	}
	expectOutcome(t, "one", ask("x-auth-request-user", "ada", "x-auth-request-groups", "admin"), "OK PERMIT ok")
	expectOutcome(t, "two", ask("x-auth-request-user", "ada", "x-auth-request-user", "ben", "x-auth-request-groups", "admin"), "400 DENY bad_request")
	joined := newCheck("GET", "shop.example", "/admin", map[string]string{"x-auth-request-user": "ada,ben", "x-auth-request-groups": "admin"})
	expectOutcome(t, "two, joined", e.ask(joined), "400 DENY bad_request")
}

const noAttacks = `package attacks

default allow := true

allow := false if {
	some m in input.llm.messages
	contains(m.content, "attack")
}
`

// TestExtAuthzBody checks that a control that reads the body allows a request only with its whole
// body.
func TestExtAuthzBody(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{1, 1, noAttacks}}, resources: []target.Resource{{ID: 1, Type: "api", Path: "/v1/**"}}})
	_, e := grpcBouncer(t, p, nil)
	const good = `{"model":"gpt-4o","messages":[{"role":"user","content":"hello"}]}`
	bad := strings.Replace(good, "hello", "attack", 1)
	post := func(body, partial string, change func(*authv3.AttributeContext_HttpRequest)) *authv3.CheckResponse {
		headers := map[string]string{"content-type": "application/json"}
		if partial != "" {
			headers["x-envoy-auth-partial-body"] = partial
		}
		req := newCheck("POST", "model.example", "/v1/chat/completions", headers)
		req.Attributes.Request.Http.Body = body
		if change != nil {
			change(req.Attributes.Request.Http)
		}
		return e.ask(req)
	}
	expectOutcome(t, "whole", post(good, "false", nil), "OK PERMIT ok")
	expectOutcome(t, "whole, in bytes", post("", "false", func(h *authv3.AttributeContext_HttpRequest) { h.RawBody = []byte(good) }), "OK PERMIT ok")
	expectOutcome(t, "an attack", post(bad, "false", nil), "403 DENY access_denied")
	expectOutcome(t, "in part", post(good, "true", nil), "413 DENY body_partial")
	expectOutcome(t, "an odd value of the field", post(good, "maybe", nil), "413 DENY body_partial")
	expectOutcome(t, "without the field of Envoy", post(good, "", nil), "413 DENY body_partial")
	expectOutcome(t, "not sent", post("", "", nil), "403 DENY body_unavailable")
	expectOutcome(t, "not sent, its size known", post("", "", func(h *authv3.AttributeContext_HttpRequest) { h.Size = 70 }), "403 DENY body_unavailable")
	expectOutcome(t, "none", post("", "", func(h *authv3.AttributeContext_HttpRequest) { h.Headers["content-length"] = "0" }), "OK PERMIT ok")
	expectOutcome(t, "broken", post(good[:20], "false", nil), "400 DENY body_malformed")
	expectOutcome(t, "packed", post(good, "false", func(h *authv3.AttributeContext_HttpRequest) { h.Headers["content-encoding"] = "gzip" }), "415 DENY body_encoded")
	expectOutcome(t, "too large", post(good+strings.Repeat(" ", bodies.MaxFromGateway), "false", nil), "413 DENY body_too_large")
	expectOutcome(t, "a GET", e.ask(newCheck("GET", "model.example", "/v1/models", nil)), "OK PERMIT ok")
	expectOutcome(t, "a GET with a body", e.ask(newCheck("GET", "model.example", "/v1/models", map[string]string{"content-length": "3"})), "403 DENY body_unavailable")
	expectOutcome(t, "a path without controls", e.ask(newCheck("POST", "model.example", "/upload", map[string]string{"x-envoy-auth-partial-body": "true"})), "OK PASS_THROUGH ok")
}

// TestExtAuthzMCP checks that a denied call is answered in the form of MCP, and stays denied.
func TestExtAuthzMCP(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{1, 1, `package tools

default allow := true

allow := false if input.mcp.tool == "drop_table"

reason := "not this tool" if not allow
`}}, resources: []target.Resource{{ID: 1, Type: "api", Path: "/mcp", Doc: valuetest.Decode(t, `{"resource_kind":"mcp_server"}`)}}})
	b, e := grpcBouncer(t, p, func(c *Config) { c.TrustedProxies = []string{"127.0.0.0/8"} })
	call := func(tool string) (string, *authv3.CheckRequest) {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, tool)
		req := newCheck("POST", "tools.example", "/mcp", map[string]string{"content-type": "application/json", "x-envoy-auth-partial-body": "false"})
		req.Attributes.Request.Http.Body = body
		return body, req
	}
	_, read := call("read_table")
	expectOutcome(t, "a tool", e.ask(read), "OK PERMIT ok")
	body, drop := call("drop_table")
	no := e.ask(drop)
	expectOutcome(t, "a denied tool", no, "200 DENY access_denied")
	if text := no.GetDeniedResponse().GetBody(); no.GetStatus().GetCode() == 0 || !strings.Contains(text, `"id":5`) || !strings.Contains(text, "not this tool") {
		t.Errorf("a denied tool: %v, want an error of MCP with the id and the reason", no)
	}
	got := fetch(t, "POST", b.url+"/_bouncer/ext_authz/mcp", func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		r.Header.Set("X-Envoy-Auth-Partial-Body", "false")
		r.Header.Set("Content-Type", "application/json")
	})
	wantAnswer(t, "over HTTP", got, 403, `"id":5`)
}

// TestExtAuthzShadow checks that shadow mode allows every request within the deadline. The verdict
// is in the metadata and in the log.
func TestExtAuthzShadow(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "shadow", controls: []control{
		{1, 0, adminOnly},
		{2, 0, "package masks\n\nmask contains \"ssn\" if input.resource.path == \"/masked\"\n"},
		{3, 0, "package slow\n\nxs := numbers.range(1, 4000)\n\nallow if {\n\tinput.resource.path == \"/slow\"\n\tsome i in xs\n\tsome j in xs\n\tsome k in xs\n\ti + j + k == -1\n}\n"},
	}})
	_, e := grpcBouncer(t, p, func(c *Config) { c.DecisionDeadline = 2 * time.Second }) // longer than Envoy waits
	get := func(path string) *authv3.CheckResponse { return e.ask(newCheck("GET", "shop.example", path, nil)) }
	expectOutcome(t, "open", get("/x"), "OK PERMIT ok")
	expectOutcome(t, "what would be denied", get("/admin"), "OK SHADOW_WOULD_DENY access_denied")
	expectOutcome(t, "what could not be masked", get("/masked"), "OK SHADOW_WOULD_DENY mask_impossible")
	expectOutcome(t, "an ambiguous path", get("/x/../admin"), "OK SHADOW_WOULD_DENY bad_request")
	slow := e.askWithin(400*time.Millisecond, newCheck("GET", "shop.example", "/slow", nil)) // shorter than the evaluation
	expectOutcome(t, "a slow control", slow, "OK PASS_THROUGH pending")
	found := false
	for _, event := range p.logged(4) {
		custom, _ := event["custom"].(map[string]any)
		found = found || custom["status"] == "evaluation_error" && custom["outcome"] == metrics.ShadowDeny
	}
	if !found {
		t.Error("the log does not have the verdict of the slow control")
	}
}

// TestExtAuthzFailsClosed checks that the answer is a denial, not a failure, without a bundle, with
// a stale one, and if a control takes too long.
func TestExtAuthzFailsClosed(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	b, e := grpcBouncer(t, p, func(c *Config) { c.DecisionDeadline = 2 * time.Second }) // longer than Envoy waits
	expectOutcome(t, "no bundle", e.ask(newCheck("GET", "shop.example", "/x", nil)), "503 DENY no_bundle")
	p.deploy(b, enforcing("package slow\n\nallow if {\n\tsome i in numbers.range(1, 4000)\n\tsome j in numbers.range(1, 4000)\n\ti * j == -1\n}\n"))
	res := e.askWithin(400*time.Millisecond, newCheck("GET", "shop.example", "/x", nil)) // shorter than the evaluation
	expectOutcome(t, "a slow control", res, "503 DENY evaluation_error")
	if res.GetStatus().GetCode() != int32(codes.Unavailable) {
		t.Errorf("the code of gRPC is %d, want %d", res.GetStatus().GetCode(), codes.Unavailable)
	}
}

// TestExtAuthzPeers checks that only trusted proxies may ask or, if none are configured, this host.
func TestExtAuthzPeers(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.publish(enforcing(allowAll))
	_, e := grpcBouncer(t, p, func(c *Config) { c.TrustedProxies = []string{"127.0.0.0/8"} })
	expectOutcome(t, "a named proxy", e.ask(newCheck("GET", "shop.example", "/x", nil)), "OK PERMIT ok")
	others, e := grpcBouncer(t, p, func(c *Config) { c.TrustedProxies = []string{"192.0.2.1"} })
	expectOutcome(t, "not a named proxy", e.ask(newCheck("GET", "shop.example", "/x", nil)), "403 DENY untrusted_proxy")
	wantVerdict(t, "over HTTP", fetch(t, "GET", others.url+"/_bouncer/ext_authz/x", nil), 403, "untrusted_proxy")
	p.deploy(others, policySet{revision: 2, mode: "shadow", controls: []control{{1, 0, allowAll}}})
	expectOutcome(t, "not a named proxy, in shadow", e.ask(newCheck("GET", "shop.example", "/x", nil)), "OK SHADOW_WOULD_DENY untrusted_proxy")
}

// TestExtAuthzHTTP checks the HTTP variant, which never refuses with 5xx.
func TestExtAuthzHTTP(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{1, 0, adminOnly}, {2, 5, noAttacks}, {3, 6, denyAll}}, resources: []target.Resource{
		{ID: 5, Type: "api", Path: "/v1/**"}, {ID: 6, Type: "api", Host: "nowhere.example", Path: "/x"},
	}})
	app := newApplication(t, nil)
	b := start(t, p, app.URL, func(c *Config) { c.TrustedProxies = []string{"127.0.0.0/8"} })
	early := fetch(t, "GET", b.url+"/_bouncer/ext_authz/x", nil)
	b.at(t, 1)
	if early.status != 403 && early.status != 200 {
		t.Errorf("before the bundle: %s, want 403 or 200", early)
	}
	ask := func(method, target, body string, edit func(*http.Request)) reply {
		t.Helper()
		return fetch(t, method, b.url, func(r *http.Request) {
			r.URL.Opaque = target
			r.Host = "shop.example"
			if body != "" {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			}
			if edit != nil {
				edit(r)
			}
		})
	}
	ok := ask("DELETE", "/_bouncer/ext_authz/orders/7?x=1", "", func(r *http.Request) { r.Header.Set("X-Auth-Request-User", "root") })
	wantVerdict(t, "open", ok, 200, "ok")
	if !strings.Contains(ok.header.Get("X-Envoy-Auth-Headers-To-Remove"), "x-auth-request-user") || ok.header.Get(header.DecisionID) == "" || ok.header.Get(header.Decision) != metrics.Permit {
		t.Errorf("open: %v, want a decision that permits and removes forged fields", ok.header)
	}
	denied := ask("POST", "/_bouncer/ext_authz/admin", "", nil)
	wantVerdict(t, "denied", denied, 403, "access_denied")
	wantAnswer(t, "denied", denied, 403, `"error":"access_denied"`)
	for _, path := range []string{"", "?x", "//admin", "/x/../admin", "/%2e%2e/live", "/../live", "/a%2fb"} {
		wantVerdict(t, path, ask("GET", "/_bouncer/ext_authz"+path, "", nil), 400, "bad_request")
	}
	wantVerdict(t, "the route's resource", ask("GET", "/_bouncer/ext_authz_for/6/orders", "", nil), 403, "access_denied")
	wantVerdict(t, "a resource that is not there", ask("GET", "/_bouncer/ext_authz_for/77/orders", "", nil), 403, "unknown_resource")
	wantVerdict(t, "a path that looks like it", ask("GET", "/_bouncer/ext_authz/_bouncer/ext_authz_for/6/orders", "", nil), 200, "ok")
	const prompt = `{"model":"gpt-4o","messages":[{"role":"user","content":"hello"}]}`
	partial := func(word string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Envoy-Auth-Partial-Body", word)
		}
	}
	wantVerdict(t, "a whole body", ask("POST", "/_bouncer/ext_authz/v1/chat/completions", prompt, partial("false")), 200, "ok")
	wantVerdict(t, "an attack", ask("POST", "/_bouncer/ext_authz/v1/chat/completions", strings.Replace(prompt, "hello", "attack", 1), partial("false")), 403, "access_denied")
	wantVerdict(t, "a partial body", ask("POST", "/_bouncer/ext_authz/v1/chat/completions", prompt[:30], partial("true")), 413, "body_partial")
	wantVerdict(t, "no body sent", ask("POST", "/_bouncer/ext_authz/v1/chat/completions", "", nil), 403, "body_unavailable")
	if seen := app.take(); len(seen) != 0 {
		t.Errorf("the application got %d checks, want none", len(seen))
	}
	p.deploy(b, policySet{revision: 2, mode: "shadow", controls: []control{{1, 0, denyAll}}})
	wantVerdict(t, "in shadow", ask("GET", "/_bouncer/ext_authz/x", "", nil), 200, "access_denied")
	wantVerdict(t, "in shadow, ambiguous", ask("GET", "/_bouncer/ext_authz/a%2fb", "", nil), 200, "bad_request")
}

// TestConcurrentExtAuthz sends many checks at once while policies change, and stops the bouncer
// meanwhile.
func TestConcurrentExtAuthz(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.publish(enforcing(adminOnly))
	b, e := grpcBouncer(t, p, nil)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range 100 {
				path, want := "/x", int32(codes.OK)
				if (i+n)%2 == 0 {
					path, want = "/admin", int32(codes.PermissionDenied)
				}
				res, err := e.client.Check(context.Background(), newCheck("GET", "shop.example", path, nil))
				if err != nil || res.GetStatus().GetCode() != want {
					t.Errorf("%s: %v %v, want code %d", path, res, err, want)
					return
				}
			}
		})
	}
	for n := 2; n < 6; n++ {
		p.deploy(b, policySet{revision: n, mode: "enforce", controls: []control{{1, 0, adminOnly}}})
	}
	all.Wait()
	b.stop()
}

// TestExtAuthzTLS checks that the gRPC address accepts only TLS if there is a certificate.
func TestExtAuthzTLS(t *testing.T) {
	t.Parallel()
	files, roots := certificate(t)
	p, addr := newPlane(t), freeport.Addr(t)
	p.publish(enforcing(allowAll))
	start(t, p, "", func(c *Config) { c.GRPCListen, c.TLSCert, c.TLSKey = addr, files["cert"], files["key"] }).at(t, 1)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "bouncer.test"})))
	errtest.Must(t, err)
	defer conn.Close()
	expectOutcome(t, "over TLS", (&envoy{t, authv3.NewAuthorizationClient(conn)}).ask(newCheck("GET", "shop.example", "/x", nil)), "OK PERMIT ok")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := newEnvoy(t, addr).client.Check(ctx, newCheck("GET", "shop.example", "/x", nil)); err == nil {
		t.Error("a check without TLS is answered, want none")
	}
}
