package enforce

import (
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

func TestOutgoingHeaderDropsWhatIsOurs(t *testing.T) {
	o := outgoing{names: oauth2Proxy, client: http.Header{
		"X-Auth-Request-User": {"root"}, "X_auth_request_user": {"root"}, "X.auth.request.user": {"root"},
		"X-Auth-Request-Access-Token": {"t"}, "X-Forwarded-For": {"1.2.3.4"}, "X_forwarded_for": {"1.2.3.4"},
		"X-Original-Url": {"/admin"}, "X-Rewrite-Url": {"/admin"}, "X_middleware_subrequest": {"middleware"}, "X-Sendfile-Type": {"X-Accel-Redirect"}, "X-Accel-Mapping": {"/=/"}, "X-Http-Path-Override": {"/admin"}, "X-Http-Method-Override": {"DELETE"}, "X_http_method_override": {"DELETE"},
		"Content_length": {"5"}, "Mcp_Session_Id": {"someone-elses"}, "Mcp.Method": {"ping"}, "Transfer_encoding": {"chunked"}, "Upgrade": {"h2c"}, "Http2-Settings": {"x"},
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

// The application gets no client's value of a reserved header, in no spelling that
// a CGI gateway, WSGI, Rack or PHP folds into it; and Envoy is told to remove it.
func TestReservedHeadersDoNotPass(t *testing.T) {
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, nil).at(t, 1)
	gate, e := grpcBouncer(t, p, nil)
	gate.at(t, 1)
	names := append(ReservedHeaders(), "X-Forwarded-Anything", "X-Original-Anything", "X-Auth-Request-Anything", "X-Remote-Anything")
	for _, name := range names {
		for _, spelling := range []string{name, strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1), strings.ToUpper(name)} {
			app.take()
			got := fetch(t, "GET", b.url+"/x", func(r *http.Request) { r.Header[spelling] = []string{"forged"} })
			seen := app.take()
			if got.status != 200 || len(seen) != 1 {
				t.Fatalf("%s: %d, %d requests", spelling, got.status, len(seen))
			}
			for h, values := range seen[0].Header {
				if strings.Contains(strings.Join(values, ","), "forged") && h != headerRequestID {
					t.Errorf("%s: the application sees %s: %s", spelling, h, values)
				}
			}
			res := e.ask(held("GET", "app.test", "/x", map[string]string{strings.ToLower(spelling): "forged"}))
			if _, keeps := envoysOwn[textproto.CanonicalMIMEHeaderKey(spelling)]; !keeps && !slices.Contains(res.GetOkResponse().GetHeadersToRemove(), strings.ToLower(spelling)) {
				t.Errorf("%s: Envoy removes only %s", spelling, res.GetOkResponse().GetHeadersToRemove())
			}
		}
	}
	for _, name := range []string{"Accept", "X-Requested-With", "X-Api-Key", "Traceparent", "X-Stainless-Lang", "Openai-Organization", "X-Csrf-Token", "Api_key", "X-Auth-Token"} {
		if got := fetch(t, "GET", b.url+"/x", func(r *http.Request) { r.Header[name] = []string{"mine"} }); got.status != 200 {
			t.Fatalf("%s: %d", name, got.status)
		}
		if seen := app.take(); len(seen) != 1 || seen[0].Header.Get(name) != "mine" {
			t.Errorf("%s does not reach the application", name)
		}
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
