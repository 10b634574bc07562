package enforce

import (
	"net/http"
	"net/netip"
	"testing"
)

func TestOutgoingHeaderDropsWhatIsOurs(t *testing.T) {
	o := outgoing{names: oauth2Proxy, client: http.Header{
		"X-Auth-Request-User": {"root"}, "X_auth_request_user": {"root"}, "X.auth.request.user": {"root"},
		"X-Auth-Request-Access-Token": {"t"}, "X-Forwarded-For": {"1.2.3.4"}, "X_forwarded_for": {"1.2.3.4"},
		"X-Original-Url": {"/admin"}, "X-Rewrite-Url": {"/admin"}, "X-Http-Method-Override": {"DELETE"}, "X_http_method_override": {"DELETE"},
		"Content_length": {"5"}, "Transfer_encoding": {"chunked"}, "Upgrade": {"h2c"}, "Http2-Settings": {"x"},
		"X-Gatehouse-Status": {"ok"}, "X-Decision": {"PERMIT"}, "Forwarded": {"for=1"}, "Te": {"gzip"}, "Keep-Alive": {"1"},
		"Accept": {"text/html"}, "Api_key": {"kept"}, "X-Custom": {"a", "b"}, "X-Drop": {"x"},
	}, named: []string{"X-Drop"}, ours: []field{{"X-Auth-Request-User", "alice"}}}
	got := o.header()
	delete(got, "User-Agent")
	if len(got) != 4 || got.Get("Accept") != "text/html" || got["Api_key"][0] != "kept" || len(got["X-Custom"]) != 2 {
		t.Errorf("upstream gets %v", got)
	}
	if u := got["X-Auth-Request-User"]; len(u) != 1 || u[0] != "alice" {
		t.Errorf("the identity upstream is %v, want exactly ours", u)
	}
}

func TestConnectionMayNotNameOurs(t *testing.T) {
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
		if _, ok := oauth2Proxy.connectionNames(http.Header{"Connection": {tc.value}}); ok != tc.ok {
			t.Errorf("Connection: %s: taken %v, want %v", tc.value, ok, tc.ok)
		}
	}
}

func TestClientAddress(t *testing.T) {
	trusted, err := parseProxies([]string{"10.0.0.0/8", "::1", "192.0.2.7"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		peer, want string
		xff        []string
	}{
		{"203.0.113.9", "203.0.113.9", []string{"1.1.1.1"}}, // not trusted: its word is nothing
		{"10.0.0.1", "10.0.0.1", nil},
		{"10.0.0.1", "1.1.1.1", []string{"9.9.9.9, 1.1.1.1"}},
		{"10.0.0.1", "1.1.1.1", []string{"9.9.9.9, 1.1.1.1, 10.2.3.4"}},
		{"10.0.0.1", "1.1.1.1", []string{"9.9.9.9", "1.1.1.1", "10.2.3.4"}},
		{"10.0.0.1", "10.2.3.4", []string{"rubbish, 10.2.3.4"}},
		{"::ffff:10.0.0.1", "1.1.1.1", []string{"1.1.1.1"}},
	} {
		peer := netip.MustParseAddr(tc.peer).Unmap()
		if got := clientOf(peer, trusted, http.Header{"X-Forwarded-For": tc.xff}).String(); got != tc.want {
			t.Errorf("peer %s, X-Forwarded-For %v: client %s, want %s", tc.peer, tc.xff, got, tc.want)
		}
	}
	if _, err := parseProxies([]string{"10.0.0.0/33"}); err == nil {
		t.Error("a malformed CIDR was taken")
	}
}
