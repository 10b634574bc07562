package enforce

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
)

// TestHostileExtAuthz checks that no malformed, empty or oversized check is allowed, and that the
// bouncer continues to answer others.
func TestHostileExtAuthz(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	const source = "package p\n\nallow if not startswith(input.resource.path, \"/admin\")\n"
	p.publish(policySet{revision: 1, mode: "enforce", config: map[string]any{"default_action": "deny"}, controls: []control{{id: 1, source: source}}})
	_, e := grpcBouncer(t, p, nil)
	of := func(method, host, path string, change func(*authv3.AttributeContext_HttpRequest)) *authv3.CheckRequest {
		r := newCheck(method, host, path, nil)
		if change != nil {
			change(r.GetAttributes().GetRequest().GetHttp())
		}
		return r
	}
	incomplete := func(change func(*authv3.AttributeContext)) *authv3.CheckRequest {
		r := newCheck("GET", "app.test", "/open", nil)
		change(r.GetAttributes())
		return r
	}
	for name, req := range map[string]*authv3.CheckRequest{
		"nothing":                      {},
		"no attributes":                {Attributes: &authv3.AttributeContext{}},
		"no request":                   incomplete(func(a *authv3.AttributeContext) { a.Request = nil }),
		"no HTTP request":              incomplete(func(a *authv3.AttributeContext) { a.Request.Http = nil }),
		"an empty HTTP request":        incomplete(func(a *authv3.AttributeContext) { a.Request.Http = &authv3.AttributeContext_HttpRequest{} }),
		"no method":                    of("", "app.test", "/open", nil),
		"two methods":                  of("GET, POST", "app.test", "/open", nil),
		"a method with a line break":   of("GET\r\n", "app.test", "/open", nil),
		"a method in lower case":       of("get", "app.test", "/open", nil),
		"TRACE":                        of("TRACE", "app.test", "/open", nil),
		"CONNECT":                      of("CONNECT", "app.test", "/open", nil),
		"no path":                      of("GET", "app.test", "", nil),
		"an asterisk":                  of("OPTIONS", "app.test", "*", nil),
		"a fragment":                   of("GET", "app.test", "/open#/x", nil),
		"a space":                      of("GET", "app.test", "/open HTTP/1.1", nil),
		"a line break":                 of("GET", "app.test", "/open\r\nX: y", nil),
		"raw UTF-8":                    of("GET", "app.test", "/öpen", nil),
		"dot segments":                 of("GET", "app.test", "/open/../admin", nil),
		"encoded dots":                 of("GET", "app.test", "/open/%2e%2e/admin", nil),
		"an encoded slash":             of("GET", "app.test", "/open%2f..%2fadmin", nil),
		"denied, with a query":         of("GET", "app.test", "/admin?x=/open", nil),
		"an address":                   of("GET", "app.test", "http://app.test/open", nil),
		"an address of elsewhere":      of("GET", "app.test", "http://other.test/open", nil),
		"denied, an address":           of("GET", "app.test", "http://app.test/admin", nil),
		"a semicolon in the query":     of("GET", "app.test", "/open?a;b", nil),
		"a bad query member":           of("GET", "app.test", "/open", func(h *authv3.AttributeContext_HttpRequest) { h.Query = "a;b"; h.Path = "/admin" }),
		"an odd host":                  of("GET", "app.test:80:81", "/open", nil),
		"a host with a user":           of("GET", "ann@app.test", "/open", nil),
		"denied, another :path":        of("GET", "app.test", "/admin", func(h *authv3.AttributeContext_HttpRequest) { h.Headers[":path"] = "/open" }),
		"denied, original path":        of("GET", "app.test", "/admin", func(h *authv3.AttributeContext_HttpRequest) { h.Headers["x-envoy-original-path"] = "/open" }),
		"denied, a very large header":  of("GET", "app.test", "/admin", func(h *authv3.AttributeContext_HttpRequest) { h.Headers["x-large"] = strings.Repeat("x", 1<<20) }),
		"denied, a method in a header": of("GET", "app.test", "/admin", func(h *authv3.AttributeContext_HttpRequest) { h.Headers["x-http-method-override"] = "OPTIONS" }),
		"a very long path":             of("GET", "app.test", "/"+strings.Repeat("x", 1<<20), nil),
	} {
		if res, err := e.client.Check(t.Context(), req); err == nil && strings.HasPrefix(outcome(res), "OK") {
			t.Errorf("%s: %s, want no OK", name, outcome(res))
		}
		if got := outcome(e.ask(of("GET", "app.test", "/open?a=b", nil))); got != "OK PERMIT ok" {
			t.Fatalf("a request after %s: %s, want OK PERMIT ok", name, got)
		}
	}
	// Fields that frameworks believe are removed in each spelling, in either form of headers.
	for _, name := range []string{"x_auth_request_user", "x.auth.request.user", "x_http_method_override", "x-original-url", "remote_user", "x_forwarded_user", "x-gatehouse-status", "x_decision"} {
		raw := of("GET", "app.test", "/open", func(h *authv3.AttributeContext_HttpRequest) {
			h.HeaderMap = &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: name, RawValue: []byte("forged")}, {Key: name, RawValue: []byte("again")}}}
			h.Headers = nil
		})
		for form, req := range map[string]*authv3.CheckRequest{"plain": of("GET", "app.test", "/open", func(h *authv3.AttributeContext_HttpRequest) { h.Headers[name] = "forged" }), "raw": raw} {
			res := e.ask(req)
			if !strings.Contains(strings.Join(res.GetOkResponse().GetHeadersToRemove(), ",")+",", name+",") {
				t.Errorf("%s headers: Envoy removes %v, want also %s", form, res.GetOkResponse().GetHeadersToRemove(), name)
			}
		}
	}
}
