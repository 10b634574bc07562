package extauthz

import (
	"net/netip"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/proto"
)

// request returns a check as Envoy sends it.
func request(method string, headers map[string]string) *authv3.CheckRequest {
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
		Http: &authv3.AttributeContext_HttpRequest{Method: method, Headers: headers, Host: "h", Path: "/p?q", Scheme: "https", Id: "id"},
	}}}
}

// TestRead checks that a Check contains what Envoy sends, unchanged, and nothing else.
func TestRead(t *testing.T) {
	req := request("GET", map[string]string{":path": "/p?q", "x-one": "1", "X_Two": "2"})
	req.Attributes.Source = &authv3.AttributeContext_Peer{Principal: "spiffe://a/b", Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "::ffff:192.0.2.1"}}}}
	req.Attributes.TlsSession = &authv3.AttributeContext_TLSSession{Sni: "sni.example"}
	req.Attributes.ContextExtensions = map[string]string{"resource": "7"}
	c := read(req, netip.MustParseAddr("127.0.0.1"))
	if c.Method != "GET" || c.Host != "h" || c.Target != "/p?q" || c.Scheme != "https" || c.ID != "id" || c.Principal != "spiffe://a/b" || c.SNI != "sni.example" ||
		c.Source != netip.MustParseAddr("192.0.2.1") || c.Extensions["resource"] != "7" || !c.Merged || len(c.Header) != 2 || c.Header.Get("X-One") != "1" || c.Have != Whole {
		t.Errorf("read = %+v, want what Envoy sends", c)
	}
	raw := request("GET", nil)
	raw.Attributes.Request.Http.HeaderMap = &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":method", RawValue: []byte("GET")}, {Key: "a", RawValue: []byte("1")}, {Key: "A", Value: "2"}, {Key: ""}}}
	if c := read(raw, netip.Addr{}); c.Merged || len(c.Header) != 1 || len(c.Header["A"]) != 2 || c.Peer.IsValid() || c.Source.IsValid() {
		t.Errorf("read = %+v, want two lines of A, and no addresses", c)
	}
	if c := read(&authv3.CheckRequest{}, netip.Addr{}); c.Method != "" || c.Have != Unseen {
		t.Errorf("read = %+v, want no method and an unseen body", c)
	}
}

// TestTarget checks that the parts of a request that state the target must agree, or there is no target.
func TestTarget(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *authv3.AttributeContext_HttpRequest)
		want   string
	}{
		"as Envoy asks":       {func(*authv3.AttributeContext_HttpRequest) {}, "/p?q"},
		"the query apart":     {func(r *authv3.AttributeContext_HttpRequest) { r.Path, r.Query = "/p", "a=b" }, "/p?a=b"},
		"the query twice":     {func(r *authv3.AttributeContext_HttpRequest) { r.Query = "q" }, "/p?q"},
		"no query":            {func(r *authv3.AttributeContext_HttpRequest) { r.Path = "/p" }, "/p"},
		"an empty query":      {func(r *authv3.AttributeContext_HttpRequest) { r.Path = "/p?" }, "/p?"},
		"another query":       {func(r *authv3.AttributeContext_HttpRequest) { r.Query = "z" }, ""},
		"a fragment":          {func(r *authv3.AttributeContext_HttpRequest) { r.Fragment = "x" }, ""},
		"the same :path":      {func(r *authv3.AttributeContext_HttpRequest) { r.Headers[":path"] = "/p?q" }, "/p?q"},
		"another :path":       {func(r *authv3.AttributeContext_HttpRequest) { r.Headers[":path"] = "/admin" }, ""},
		":path in capitals":   {func(r *authv3.AttributeContext_HttpRequest) { r.Headers[":path"] = "/P?q" }, ""},
		"another :method":     {func(r *authv3.AttributeContext_HttpRequest) { r.Headers[":method"] = "DELETE" }, ""},
		"the same :authority": {func(r *authv3.AttributeContext_HttpRequest) { r.Headers[":authority"] = "H" }, "/p?q"},
		"another :authority":  {func(r *authv3.AttributeContext_HttpRequest) { r.Headers[":authority"] = "evil" }, ""},
		"another host":        {func(r *authv3.AttributeContext_HttpRequest) { r.Headers["host"] = "evil" }, ""},
		"another Host":        {func(r *authv3.AttributeContext_HttpRequest) { r.Headers["Host"] = "evil" }, ""},
		"another raw host":    {func(r *authv3.AttributeContext_HttpRequest) { r.HeaderMap = rawHeader("host", "evil") }, ""},
		"another raw :path":   {func(r *authv3.AttributeContext_HttpRequest) { r.HeaderMap = rawHeader(":path", "/admin") }, ""},
		"a host with two values": {func(r *authv3.AttributeContext_HttpRequest) {
			r.HeaderMap = rawHeader("host", "evil")
			r.HeaderMap.Headers[0].Value = "h"
		}, ""},
		"the same raw authority": {func(r *authv3.AttributeContext_HttpRequest) { r.HeaderMap = rawHeader(":authority", "h") }, "/p?q"},
	} {
		req := request("GET", map[string]string{})
		tc.change(req.Attributes.Request.Http)
		if got := read(req, netip.Addr{}).Target; got != tc.want {
			t.Errorf("%s: target %q, want %q", name, got, tc.want)
		}
	}
	req := request("POST", map[string]string{PartialBody: "false"})
	http := req.Attributes.Request.Http
	for body, want := range map[string]Body{"": Whole, "x": Whole, "y": Partial} {
		http.Body, http.RawBody = body, []byte("x")
		if got := read(req, netip.Addr{}).Have; got != want {
			t.Errorf("a raw body beside %q: %d, want %d", body, got, want)
		}
	}
}

func rawHeader(name, value string) *corev3.HeaderMap {
	return &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: name, RawValue: []byte(value)}}}
}

// TestBodyState checks that a body is complete only if Envoy says so.
func TestBodyState(t *testing.T) {
	partial := func(w string) map[string]string { return map[string]string{"x-envoy-auth-partial-body": w} }
	for name, c := range map[string]struct {
		method  string
		headers map[string]string
		body    string
		size    int64
		want    Body
	}{
		"whole":                {"POST", partial("false"), "x", 1, Whole},
		"part":                 {"POST", partial("true"), "x", 1, Partial},
		"twice":                {"POST", partial("false,false"), "x", 1, Partial},
		"in capitals":          {"POST", partial("FALSE"), "x", 1, Partial},
		"a body without field": {"POST", nil, "x", 1, Partial},
		"a length":             {"GET", map[string]string{"content-length": "1"}, "", -1, Unseen},
		"no length":            {"POST", map[string]string{"content-length": "0"}, "", -1, Whole},
		"chunked":              {"GET", map[string]string{"transfer-encoding": "chunked"}, "", -1, Unseen},
		"a size":               {"GET", nil, "", 5, Unseen},
		"a GET":                {"GET", nil, "", -1, Whole},
		"a POST":               {"POST", nil, "", -1, Unseen},
		"any other":            {"PROPFIND", nil, "", 0, Unseen},
	} {
		req := request(c.method, c.headers)
		req.Attributes.Request.Http.Body, req.Attributes.Request.Http.Size = c.body, c.size
		if got := read(req, netip.Addr{}).Have; got != c.want {
			t.Errorf("%s: body state %d, want %d", name, got, c.want)
		}
	}
}

// TestWrite checks that Envoy accepts each answer, and that a refusal is never OK.
func TestWrite(t *testing.T) {
	for _, status := range []int{0, 302, 400, 401, 403, 405, 413, 415, 418, 431, 500, 502, 503, 504, 999} {
		out := write(&Answer{Status: status, Text: "no", Reply: []Field{{"X-A", "1"}}})
		got := int(out.GetDeniedResponse().GetStatus().GetCode())
		if out.GetStatus().GetCode() == 0 || got < 400 || status >= 400 && status != 418 && status != 999 && got != status || out.GetDeniedResponse().GetBody() != "no" {
			t.Errorf("a refusal with %d: %v, want an error with a text", status, out)
		}
		if err := out.ValidateAll(); err != nil {
			t.Errorf("a refusal with %d is not valid: %v", status, err)
		}
	}
	if out := write(&Answer{Status: 200}); out.GetStatus().GetCode() == 0 || out.GetDeniedResponse().GetStatus().GetCode() != 200 {
		t.Errorf("a refusal with 200: %v, want it denied", out)
	}
	out := write(&Answer{OK: true, Status: 403, Set: []Field{{"X-User", "ann"}}, Remove: []string{"x-b"}, Metadata: map[string]any{"policy_id": 7.0, "decision": "PERMIT", "shadow": false}})
	ok := out.GetOkResponse()
	if out.GetStatus().GetCode() != 0 || ok.GetHeaders()[0].GetHeader().GetKey() != "x-user" || ok.GetHeadersToRemove()[0] != "x-b" || out.GetDynamicMetadata().AsMap()["policy_id"] != 7.0 {
		t.Errorf("a permission: %v, want OK with the fields and metadata", out)
	}
	if err := out.ValidateAll(); err != nil {
		t.Errorf("a permission is not valid: %v", err)
	}
}

// FuzzRead checks that any bytes can be read as a request.
func FuzzRead(f *testing.F) {
	seed, err := proto.Marshal(request("POST", map[string]string{"a": "b", "content-length": "3"}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{0x0a, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		req := &authv3.CheckRequest{}
		if proto.Unmarshal(data, req) != nil {
			return
		}
		if c := read(req, netip.Addr{}); c.Header == nil {
			t.Error("the check has no header, want at least an empty one")
		}
	})
}
