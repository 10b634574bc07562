package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const canary = "C4NARY-do-not-echo"

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// TestMediaTypesAreSorted: the answer to a wrong media type is the same in every process.
func TestMediaTypesAreSorted(t *testing.T) {
	g := newRig(t, nil, func(g *rig) {
		Raw(g.Router, Op{ID: "import-widgets", Method: "POST", Path: "/import", Tags: []string{"Widgets"}},
			RawDocs{Request: reflect.TypeFor[string](), RequestType: "text/plain, text/csv, application/xml, application/json, application/yaml, application/x-ndjson"},
			func(http.ResponseWriter, *http.Request, scope.Scope) {})
	})
	w := g.Do(t, resttest.Call{Method: "POST", Path: "/api/v1/import", Body: "x", Key: "full", Headers: []string{"Content-Type", "image/png"}}.Request())
	if want := "send the body as application/json or application/x-ndjson or application/xml or application/yaml or text/csv or text/plain"; w.Code != 415 || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// TestRequests: each request gets its status, error code and offences, and no error echoes what was sent.
func TestRequests(t *testing.T) {
	g := newRig(t, nil, nil)
	put := func(body string) resttest.Call {
		return resttest.Call{Method: "PUT", Path: "/api/v1/widgets/7", Body: body, Key: "full"}
	}
	get := func(path string) resttest.Call { return resttest.Call{Method: "GET", Path: path, Key: "full"} }
	h := func(c resttest.Call, headers ...string) resttest.Call { c.Headers = headers; return c }
	k := func(c resttest.Call, key string) resttest.Call { c.Key = key; return c }
	for _, tc := range []struct {
		name string
		resttest.Call
		status   int
		code     string   // the member error
		pointers []string // of details
	}{
		{"good", put(`{"name":"x"}`), 200, "", nil},
		{"alias /api", resttest.Call{Method: "PUT", Path: "/api/widgets/7", Body: `{"name":"x"}`, Key: "full"}, 200, "", nil},
		{"alias /v1", resttest.Call{Method: "PUT", Path: "/v1/widgets/7", Body: `{"name":"x"}`, Key: "full"}, 200, "", nil},
		{"alias doubled", resttest.Call{Method: "PUT", Path: "/api/v1/v1/widgets/7", Body: `{"name":"x"}`, Key: "full"}, 200, "", nil},
		{"alias keeps the permission", resttest.Call{Method: "PUT", Path: "/v1/widgets/7", Body: `{"name":"x"}`, Key: "reader"}, 403, "permission_denied", nil},
		{"reserved", get("/v1/data/widgets"), 404, "", nil},
		{"host form", get("/health"), 200, "", nil},

		{"empty", put(``), 400, "invalid_json", nil},
		{"cut", put(`{"name":`), 400, "invalid_json", nil},
		{"trailing", put(`{"name":"x"} {}`), 400, "invalid_json", nil},
		{"duplicate", put(`{"name":"x","name":"y"}`), 400, "invalid_json", nil},
		{"escaped duplicate", put(`{"name":"x","\u006eame":"y"}`), 400, "invalid_json", nil},
		{"case twin", put(`{"name":"x","Name":"y"}`), 400, "invalid_json", nil},
		{"nested case twin", put(`{"name":"x","settings":{"a":{"b":1,"B":2}}}`), 400, "invalid_json", nil},
		{"bad UTF-8", put("{\"name\":\"\xff\"}"), 400, "invalid_json", nil},
		{"1e400", put(`{"name":"x","weight":1e400}`), 400, "invalid_json", nil},
		{"2^63", put(`{"name":"x","parts":[{"size":9223372036854775808}]}`), 400, "invalid_json", nil},
		{"64 levels", put(`{"name":"x","settings":{"a":` + deep(62) + `}}`), 200, "", nil},
		{"65 levels", put(`{"name":"x","settings":{"a":` + deep(63) + `}}`), 400, "invalid_json", nil},
		{"a million levels", put(deep(400_000)), 400, "invalid_json", nil},
		{"too large", put(`{"name":"` + strings.Repeat("x", 1<<20) + `"}`), 413, "payload_too_large", nil},
		{"raw too large", resttest.Call{Method: "POST", Path: "/v1/raw", Body: strings.Repeat(" ", 1001), Key: "full"}, 413, "payload_too_large", nil},
		{"raw good", resttest.Call{Method: "POST", Path: "/v1/raw", Body: strings.Repeat(" ", 1000), Key: "full"}, 200, "", nil},

		{
			"all offences", put(`{"name":"far too long a name","kind":"c","parts":[{"size":0},{"size":"1","x":1}],"nmae":1}`), 422, "validation_failed",
			[]string{"/kind", "/name", "/nmae", "/parts/0/size", "/parts/1/size", "/parts/1/x"},
		},
		{"missing", put(`{"kind":"a"}`), 422, "validation_failed", []string{"/name"}},
		{"null where required", put(`{"name":null}`), 422, "validation_failed", []string{"/name"}},
		{"null where the schema has it", put(`{"name":"x","weight":null}`), 200, "", nil},
		{"null where the record has it", put(`{"name":"x","colour":null}`), 200, "", nil},
		{"null elsewhere", put(`{"name":"x","kind":null,"parts":[{"size":1,"material":null},null],"settings":null}`), 422, "validation_failed", []string{"/kind", "/parts/0/material", "/parts/1", "/settings"}},
		{"containers for scalars", put(`{"name":{},"kind":[],"weight":{},"parts":[{"size":[]}]}`), 422, "validation_failed", []string{"/kind", "/name", "/parts/0/size", "/weight"}},
		{"case of a member", put(`{"Name":"x"}`), 422, "validation_failed", []string{"/Name", "/name"}},
		{"not an object", put(`[1]`), 422, "validation_failed", []string{""}},
		{"fraction", put(`{"name":"x","parts":[{"size":1.5}]}`), 422, "validation_failed", []string{"/parts/0/size"}},
		{"odd names in pointers", put(`{"name":"x","a/b~c":1}`), 422, "validation_failed", []string{"/a~1b~0c"}},
		{"NUL", put(`{"name":"a\u0000"}`), 422, "validation_failed", []string{"/name"}},
		{"open object", put(`{"name":"x","settings":{"anything":[1,{"x":null}]}}`), 200, "", nil},
		{"what was read", put(`{"id":9,"name":"x","kind":"a","parts":[],"settings":{},"created_at":"2026-01-01T00:00:00Z"}`), 200, "", nil},
		{"formats do not echo", put(`{"name":"x","contact":"` + canary + `","home":":` + canary + `"}`), 422, "validation_failed", []string{"/contact", "/home"}},
		{"unknown does not echo", put(`{"name":"x","password":"` + canary + `"}`), 422, "validation_failed", []string{"/password"}},

		{"form", h(put(`name=x`), "Content-Type", "application/x-www-form-urlencoded"), 415, "unsupported_media_type", nil},
		{"text", h(put(`{"name":"x"}`), "Content-Type", "text/plain"), 415, "unsupported_media_type", nil},
		{"charset", h(put(`{"name":"x"}`), "Content-Type", "application/json; charset=UTF-8"), 200, "", nil},
		{"other charset", h(put(`{"name":"x"}`), "Content-Type", "application/json; charset=utf-16"), 415, "unsupported_media_type", nil},
		{"gzip", h(put(`{"name":"x"}`), "Content-Encoding", "gzip"), 415, "unsupported_encoding", nil},
		{"raw form", resttest.Call{Method: "POST", Path: "/v1/raw", Body: "x", Key: "full", Headers: []string{"Content-Type", "text/plain"}}, 415, "unsupported_media_type", nil},

		{"wrong method", resttest.Call{Method: "POST", Path: "/api/v1/widgets/7", Key: "full"}, 405, "method_not_allowed", nil},
		{"override ignored", h(resttest.Call{Method: "POST", Path: "/api/v1/widgets/7", Key: "full"}, "X-HTTP-Method-Override", "PUT"), 405, "method_not_allowed", nil},
		{"TRACE", resttest.Call{Method: "TRACE", Path: "/api/v1/widgets/7"}, 405, "method_not_allowed", nil},
		{"OPTIONS", h(resttest.Call{Method: "OPTIONS", Path: "/api/v1/widgets"}, "Origin", "https://evil.example"), 405, "method_not_allowed", nil},
		{"no route", get("/api/v1/wodgets"), 404, "not_found", nil},
		{"double slash", get("//api/v1/widgets"), 404, "not_found", nil},
		{"double slash inside", get("/api//v1/widgets"), 404, "not_found", nil},
		{"dots", get("/api/v1/x/../widgets"), 404, "not_found", nil},
		{"suffix", get("/api/v1/widgets.json"), 404, "not_found", nil},
		{"upper case", get("/API/V1/WIDGETS"), 404, "not_found", nil},
		{"slash at the end", get("/api/v1/widgets/"), 404, "not_found", nil},
		{"encoded slash", get("/api/v1%2Fwidgets"), 404, "not_found", nil},
		{"id not a number", resttest.Call{Method: "PUT", Path: "/v1/widgets/x", Body: `{"name":"x"}`, Key: "full"}, 404, "not_found", nil},
		{"id out of range", resttest.Call{Method: "PUT", Path: "/v1/widgets/0", Body: `{"name":"x"}`, Key: "full"}, 404, "not_found", nil},
		{"id beyond int64", resttest.Call{Method: "PUT", Path: "/v1/widgets/9223372036854775808", Body: `{"name":"x"}`, Key: "full"}, 404, "not_found", nil},

		{"list", get("/v1/widgets?limit=1000&skip=5&kind=a&strict=true&since=2026-01-01T00:00:00Z"), 200, "", nil},
		{"limit 0", get("/v1/widgets?limit=0"), 400, "invalid_parameter", []string{"query.limit"}},
		{"limit -1", get("/v1/widgets?limit=-1"), 400, "invalid_parameter", []string{"query.limit"}},
		{"limit 1001", get("/v1/widgets?limit=1001"), 400, "invalid_parameter", []string{"query.limit"}},
		{"limit 1e18", get("/v1/widgets?limit=1e18"), 400, "invalid_parameter", []string{"query.limit"}},
		{"limit abc, skip -1", get("/v1/widgets?limit=abc&skip=-1"), 400, "invalid_parameter", []string{"query.limit", "query.skip"}},
		{"limit empty", get("/v1/widgets?limit="), 400, "invalid_parameter", []string{"query.limit"}},
		{"limit twice", get("/v1/widgets?limit=1&limit=1"), 400, "invalid_parameter", []string{"query.limit"}},
		{"skip beyond int64", get("/v1/widgets?skip=99999999999999999999"), 400, "invalid_parameter", []string{"query.skip"}},
		{"kind", get("/v1/widgets?kind=" + canary), 400, "invalid_parameter", []string{"query.kind"}},
		{"kind NUL", get("/v1/widgets?kind=a%00"), 400, "invalid_parameter", []string{"query.kind"}},
		{"since", get("/v1/widgets?since=" + canary), 400, "invalid_parameter", []string{"query.since"}},
		{"strict", get("/v1/widgets?strict=yes"), 400, "invalid_parameter", []string{"query.strict"}},
		{"bad escape", get("/v1/widgets?limit=%zz"), 400, "invalid_query", nil},
		{"semicolon", get("/v1/widgets?limit=1;skip=2"), 400, "invalid_query", nil},

		{"nobody", resttest.Call{Method: "GET", Path: "/v1/widgets"}, 401, "authentication_required", nil},
		{"unknown key", k(get("/v1/widgets"), "wrong"), 401, "invalid_credentials", nil},
		{"bearer", resttest.Call{Method: "GET", Path: "/v1/widgets", Headers: []string{"Authorization", "bearer person"}}, 200, "", nil},
		{"basic", resttest.Call{Method: "GET", Path: "/v1/widgets", Headers: []string{"Authorization", "Basic eDp5"}}, 401, "authentication_required", nil},
		{"two credentials", h(get("/v1/widgets"), "Authorization", "Bearer person"), 400, "ambiguous_credentials", nil},
		{"the same key twice", h(get("/v1/widgets"), "X-API-Key", "full"), 400, "ambiguous_credentials", nil},
		{"key in the query", resttest.Call{Method: "GET", Path: "/v1/widgets?api_key=full"}, 401, "authentication_required", nil},
		{"no permission", k(put(`{`), "reader"), 403, "permission_denied", nil},
		{"credential before body", k(put(strings.Repeat("x", 2<<20)), "wrong"), 401, "invalid_credentials", nil},

		{"own tenant", h(get("/v1/widgets?tenant_id=t1"), "X-Tenant-ID", "t1"), 200, "", nil},
		{"other tenant", h(get("/v1/widgets"), "X-Tenant-ID", "t2"), 403, "tenant_access_denied", nil},
		{"sources disagree", h(get("/v1/widgets?tenant_id=t1"), "X-Tenant-ID", "t2"), 400, "tenant_conflict", nil},
		{"tenant header twice", h(get("/v1/widgets"), "X-Tenant-ID", "t1", "X-Tenant-ID", "t1"), 400, "tenant_conflict", nil},
		{"tenant parameter twice", get("/v1/widgets?tenant_id=t1&tenant_id=t1"), 400, "tenant_conflict", nil},
		{"tenant list", h(get("/v1/widgets"), "X-Tenant-ID", "t1,t2"), 400, "invalid_tenant", nil},
		{"tenant case", h(get("/v1/widgets"), "X-Tenant-ID", "T1"), 400, "invalid_tenant", nil},
		{"tenant empty", h(get("/v1/widgets"), "X-Tenant-ID", ""), 400, "invalid_tenant", nil},
		{"tenant in the path", resttest.Call{Method: "PUT", Path: "/v1/tenants/t2/widgets/7", Body: `{"name":"x"}`, Key: "full"}, 403, "tenant_access_denied", nil},
		{"own tenant in the path", resttest.Call{Method: "PUT", Path: "/v1/tenants/t1/widgets/7", Body: `{"name":"x"}`, Key: "full"}, 200, "", nil},
		{"platform in the path", resttest.Call{Method: "PUT", Path: "/v1/tenants/t2/widgets/7", Body: `{"name":"x"}`, Key: "platform"}, 200, "", nil},
		{"environment", get("/v1/widgets?environment=staging"), 400, "invalid_environment", []string{"query.environment"}},
		{"environments disagree", h(get("/v1/widgets?environment=sandbox"), "X-Environment", "production"), 400, "environment_conflict", nil},

		{"panic", get("/v1/failing/panic"), 500, "internal_error", nil},
		{"unforeseen", get("/v1/failing/unforeseen"), 500, "internal_error", nil},
		{"timeout", get("/v1/failing/timeout"), 503, "timeout", nil},
		{"store down", get("/v1/failing/down"), 503, "store_unavailable", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := g.Do(t, tc.Request())
			if w.Code != tc.status {
				t.Fatalf("%s %s = %d, want %d: %s", tc.Method, tc.Path, w.Code, tc.status, w.Body)
			}
			if strings.Contains(w.Body.String(), canary) {
				t.Errorf("the answer echoes what was sent: %s", w.Body)
			}
			if w.Header().Get("X-Request-ID") == "" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("header = %v, want X-Request-ID and nosniff", w.Header())
			}
			if origin := w.Header().Get("Access-Control-Allow-Origin"); origin != "" {
				t.Errorf("Access-Control-Allow-Origin = %q, want none", origin)
			}
			if w.Code < 400 {
				return
			}
			if w.Body.Len() > 2048 {
				t.Errorf("the error has %d bytes, want at most 2048", w.Body.Len())
			}
			var body struct {
				Error   string         `json:"error"`
				Details []fault.Detail `json:"details"`
			}
			errtest.Must(t, json.Unmarshal(w.Body.Bytes(), &body))
			if tc.code != "" && body.Error != tc.code {
				t.Errorf("error = %q, want %q: %s", body.Error, tc.code, w.Body)
			}
			var pointers []string
			for _, d := range body.Details {
				pointers = append(pointers, d.Pointer)
			}
			slices.Sort(pointers)
			if !slices.Equal(pointers, tc.pointers) {
				t.Errorf("pointers = %q, want %q", pointers, tc.pointers)
			}
		})
	}
	if n := g.created.Load(); n != 0 {
		t.Errorf("%d widgets were created, want none", n)
	}
	// The text of a panic may contain what a caller sent, so the log has only its place.
	if text := g.logs.String(); !strings.Contains(text, "rest_test.go") || strings.Contains(text, "secret of the program") {
		t.Errorf("log = %s, want the place of the panic without its text", text)
	}
	if g.panics.Load() == 0 {
		t.Error("no panic is counted")
	}
}

// TestReadOnly: read-only members never reach the handler.
func TestReadOnly(t *testing.T) {
	g := newRig(t, nil, nil)
	w := g.Do(t, resttest.Call{Method: "PUT", Path: "/v1/widgets/7", Body: `{"id":9,"name":"x","parts":[{"size":2}]}`, Key: "full"}.Request())
	var got widget
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.ID != 7 || got.Parts[0].Size != 2 {
		t.Errorf("PUT with an id = %d %s, %v, want the id of the path", w.Code, w.Body, err)
	}
}

// TestAllow: a 405 lists the allowed methods.
func TestAllow(t *testing.T) {
	g := newRig(t, nil, nil)
	for path, want := range map[string]string{"/v1/widgets/7": "PUT", "/v1/widgets": "GET, HEAD, POST", "/health": "GET, HEAD", "/v1/ide-integration/widgets/1": "PUT"} {
		w := g.Do(t, resttest.Call{Method: "DELETE", Path: path}.Request())
		if w.Code != 405 || w.Header().Get("Allow") != want {
			t.Errorf("DELETE %s = %d, Allow %q, want 405, %q", path, w.Code, w.Header().Get("Allow"), want)
		}
	}
}

// TestErrorBodies: each area has its shape of errors, even if no handler was reached.
func TestErrorBodies(t *testing.T) {
	g := newRig(t, nil, nil)
	for _, tc := range []struct {
		area   Shape
		prefix string
	}{
		{ShapeDefault, "/v1/widgets/"}, {ShapeDetail, "/v1/pis/widgets/"}, {ShapeEditor, "/v1/ide-integration/widgets/"}, {ShapeTenant, "/v1/tenants/t1/widgets/"},
	} {
		for _, c := range []struct {
			resttest.Call
			kind fault.Kind
		}{
			{resttest.Call{Method: "PUT", Path: tc.prefix + "7"}, fault.Unauthenticated},
			{resttest.Call{Method: "POST", Path: tc.prefix + "7"}, fault.MethodNotAllowed},
			{resttest.Call{Method: "GET", Path: tc.prefix + "7/nothing/here"}, fault.NotFound},
			{resttest.Call{Method: "PUT", Path: tc.prefix + "x", Key: "full"}, fault.NotFound},
			{resttest.Call{Method: "PUT", Path: tc.prefix + "7", Key: "full", Body: `{`}, fault.BadRequest},
			{resttest.Call{Method: "PUT", Path: tc.prefix + "7", Key: "full", Body: `{"name":1,"x":2}`}, fault.Invalid},
		} {
			w := g.Do(t, c.Request())
			if want := tc.area.status(c.kind); w.Code != want {
				t.Errorf("%s %s = %d, want %d: %s", c.Method, c.Path, w.Code, want, w.Body)
			}
			var body map[string]any
			errtest.Must(t, json.Unmarshal(w.Body.Bytes(), &body))
			var names []string
			for name := range body {
				names = append(names, name)
			}
			slices.Sort(names)
			want := map[Shape]string{ShapeDefault: "error message request_id", ShapeTenant: "error message", ShapeDetail: "detail", ShapeEditor: "errors message success"}[tc.area]
			if got := strings.ReplaceAll(strings.Join(names, " "), "details ", ""); got != want {
				t.Errorf("%s %s: members %q, want %q", c.Method, c.Path, got, want)
			}
			if tc.area == ShapeDetail && c.kind == fault.Invalid && !strings.Contains(fmt.Sprint(body["detail"]), "/name") {
				t.Errorf("detail = %s, want it to name /name", w.Body)
			}
		}
	}
}

// TestAreas: foreign protocols get the errors that their clients expect.
func TestAreas(t *testing.T) {
	g := newRig(t, nil, nil)
	for path, want := range map[string]string{
		"/v1/data/gatehouse/decision": `{"code":"invalid_parameter","message":"m: /x: no"}`,
		"/access/v1/evaluation":       `"m: /x: no"`,
		Root + "/telemetry/config":    `{"detail":"m: /x: no"}`,
		Root + "/tenantsish":          `{"details":[{"pointer":"/x","message":"no"}],"error":"validation_failed","message":"m","request_id":"r"}`,
		Root + "/auth/token":          `{"details":[{"pointer":"/x","message":"no"}],"error":"validation_failed","error_description":"m: /x: no","message":"m","request_id":"r"}`,
	} {
		f := fault.Invalidf("/x", "no")
		f.Message = "m"
		body, err := json.Marshal(&answer{fault: f, shape: g.areaOf(path).Errors, id: "r", status: 400})
		if err != nil || string(body) != want {
			t.Errorf("error at %s = %s, want %s", path, body, want)
		}
	}
}

// TestRequestID: a valid request id of the caller is returned; any other is replaced.
func TestRequestID(t *testing.T) {
	g := newRig(t, nil, nil)
	for id, echoed := range map[string]bool{"abc-1.2_3:4": true, "": false, "a b": false, "a\nb": false, strings.Repeat("x", 129): false, strings.Repeat("x", 128): true, "<script>": false} {
		req := resttest.Call{Method: "GET", Path: "/v1/widgets"}.Request()
		req.Header["X-Request-Id"] = []string{id}
		w := g.Do(t, req)
		got := w.Header().Get("X-Request-ID")
		if (got == id) != echoed || got == "" {
			t.Errorf("X-Request-ID of %q = %q, want it returned: %v", id, got, echoed)
		}
		if !strings.Contains(w.Body.String(), got) {
			t.Errorf("body = %s, want the request id %s", w.Body, got)
		}
	}
}

// TestHost: tenants are found by subdomain. A forwarded host is used only if it comes from a
// trusted proxy.
func TestHost(t *testing.T) {
	g := newRig(t, func(s *Config) { s.Hosts.BaseDomain = "gate.example" }, nil)
	for _, tc := range []struct {
		host, header, forwarded string
		status                  int
	}{
		{"t1.gate.example", "", "", 200},
		{"T1.gate.example:8080", "t1", "", 200},
		{"gate.example", "t1", "", 200},
		{"t2.gate.example", "", "", 403},
		{"t2.gate.example", "t1", "", 400},
		{"gate.example", "", "t2.gate.example", 200},
		{"elsewhere.example", "", "", 200},
	} {
		c := resttest.Call{Method: "GET", Path: "/v1/widgets", Key: "full"}
		if tc.header != "" {
			c.Headers = append(c.Headers, "X-Tenant-ID", tc.header)
		}
		if tc.forwarded != "" {
			c.Headers = append(c.Headers, "X-Forwarded-Host", tc.forwarded)
		}
		req := c.Request()
		req.Host = tc.host
		if w := g.Do(t, req); w.Code != tc.status {
			t.Errorf("GET with %+v = %d %s", tc, w.Code, w.Body)
		}
	}
}

// TestConditions: a change is made, once, if one of the listed tags is the object's, and otherwise
// not.
func TestConditions(t *testing.T) {
	many := strings.Repeat(`"9", `, maxTags)
	for header, want := range map[string]fault.Kind{
		"": ok, "*": ok, `"3"`: ok, `"1", "3"`: ok, `"3","4"`: ok, `"3", "3"`: ok, "\"1\"\t,,\"3\"": ok, `"a,b", "3"`: ok, `W/"3", "3"`: ok, many[:len(many)-5] + `"3"`: ok,
		`"2"`: fault.Precondition, `"1", "2"`: fault.Precondition, `W/"3"`: fault.Precondition, "3": fault.Precondition, `"x"`: fault.Precondition, `"0"`: fault.Precondition,
		`"+3"`: fault.Precondition, `" 3"`: fault.Precondition, `"1" "3"`: fault.Precondition, `"1", 3`: fault.Precondition, `*, "2"`: fault.Precondition, `"a, "3""`: fault.Precondition,
		many + `"3"`: fault.BadRequest,
	} {
		changes := 0
		_, err := Matching(header, func(version int64) (int, error) {
			if version != 0 && version != 3 {
				return 0, stale()
			}
			changes++
			return 0, nil
		})
		if want == ok && (err != nil || changes != 1) || want != ok && (!fault.Is(err, want) || changes != 0) {
			t.Errorf("Matching(%q) = %v after %d changes, want kind %d", header, err, changes, want)
		}
	}
	_, err := Matching(`"1", "2"`, func(int64) (int, error) { return 0, fault.NotFoundf("gone") })
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("Matching of an unknown object = %v, want not found", err)
	}
}

// ok is no fault.
const ok fault.Kind = 255

// TestLogLevel: a failure is logged as an error. A request that a stopping server refuses, such as
// a readiness probe, is not a failure.
func TestLogLevel(t *testing.T) {
	for how, level := range map[string]string{"down": "ERROR", "unforeseen": "ERROR", "stopping": "INFO", "starting": "INFO"} {
		g := newRig(t, nil, nil)
		g.ServeHTTP(httptest.NewRecorder(), resttest.Call{Method: "GET", Path: "/v1/failing/" + how, Key: "full"}.Request())
		if log := g.logs.String(); !strings.Contains(log, "level="+level+` msg="request failed"`) {
			t.Errorf("log of %s = %s, want the level %s", how, log, level)
		}
	}
}

// TestLatePanic: after a panic in the middle of an answer, the connection is cut, so that the
// client sees that the answer is incomplete.
func TestLatePanic(t *testing.T) {
	g := newRig(t, nil, nil)
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("panic = %v, want http.ErrAbortHandler", p)
		}
	}()
	g.ServeHTTP(httptest.NewRecorder(), resttest.Call{Method: "GET", Path: "/v1/failing/late", Key: "full"}.Request())
}

// TestMessages: messages of offences fit the offence, and never quote the caller's values.
func TestMessages(t *testing.T) {
	g := newRig(t, nil, nil)
	for body, want := range map[string]string{
		`{"name":"x","parts":[{"size":"x"}]}`:       "expected integer",
		`{"name":"x","parts":[{"size":{}}]}`:        "expected integer",
		`{"name":"x","weight":"e"}`:                 "expected number",
		`{"name":"x","contact":"e"}`:                "expected a string of the format email",
		`{"name":"x","contact":"a ` + canary + `"}`: "expected a string of the format email",
		`{"name":"x","contact":7}`:                  "expected string",
		`{"name":"x","home":":r"}`:                  "expected a string of the format uri",
	} {
		w := g.Do(t, resttest.Call{Method: "PUT", Path: "/v1/widgets/7", Body: body, Key: "full"}.Request())
		var got struct{ Details []fault.Detail }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Details) != 1 || got.Details[0].Message != want {
			t.Errorf("PUT of %s = %s, want the message %q", body, w.Body, want)
		}
	}
}
