package header

import (
	"net/http"
	"testing"
)

// The application gets reserved fields from the bouncer only, in no spelling from the client.
func TestOutgoingHeaderDropsReservedFields(t *testing.T) {
	o := Outgoing{Names: DefaultNames(), Client: http.Header{
		"X-Auth-Request-User": {"root"}, "X_auth_request_user": {"root"}, "X.auth.request.user": {"root"},
		"X-Auth-Request-Access-Token": {"t"}, "X-Forwarded-For": {"1.2.3.4"}, "X_forwarded_for": {"1.2.3.4"},
		"X-Original-Url": {"/admin"}, "X-Rewrite-Url": {"/admin"}, "X_middleware_subrequest": {"middleware"}, "X-Sendfile-Type": {"X-Accel-Redirect"}, "X-Accel-Mapping": {"/=/"}, "X-Http-Path-Override": {"/admin"}, "X-Http-Method-Override": {"DELETE"}, "X_http_method_override": {"DELETE"},
		"Content_length": {"5"}, "Mcp_Session_Id": {"someone-elses"}, "Mcp.Method": {"ping"}, "Transfer_encoding": {"chunked"}, "Upgrade": {"h2c"}, "Http2-Settings": {"x"},
		"X-Gatehouse-Status": {"ok"}, "X-Decision": {"PERMIT"}, "Forwarded": {"for=1"}, "Te": {"gzip"}, "Keep-Alive": {"1"},
		"Accept": {"text/html"}, "Api_key": {"kept"}, "X-Custom": {"a", "b"}, "X-Drop": {"x"},
	}, Named: []string{"X-Drop"}, Ours: []Field{{"X-Auth-Request-User", "alice"}}}
	got := o.Map()
	delete(got, "User-Agent")
	if len(got) != 4 || got.Get("Accept") != "text/html" || got["Api_key"][0] != "kept" || len(got["X-Custom"]) != 2 {
		t.Errorf("the application gets %v, want 3 fields of the client and the user", got)
	}
	if u := got["X-Auth-Request-User"]; len(u) != 1 || u[0] != "alice" {
		t.Errorf("the application gets the user %v, want alice", u)
	}
}

// A client cannot make the bouncer remove a reserved field by naming it in Connection.
func TestConnectionMayNotNameReservedFields(t *testing.T) {
	for _, tc := range []struct {
		value string
		ok    bool
	}{
		{"keep-alive", true},
		{"close", true},
		{"Upgrade", true},
		{"keep-alive, X-Mine", true},
		{"TE", true},
		{"", true},
		{"X-Auth-Request-User", false},
		{"close, x-auth-request-user", false},
		{"x_auth_request_user", false},
		{"X-FORWARDED-FOR", false},
		{"authorization", false},
		{"Cookie", false},
		{"Host", false},
		{"content-length", false},
		{"x-request-id", false},
		{"Content_Length", false},
	} {
		if _, ok := DefaultNames().ConnectionNames(http.Header{"Connection": {tc.value}}); ok != tc.ok {
			t.Errorf("Connection: %s is accepted: %v, want %v", tc.value, ok, tc.ok)
		}
	}
}
