package api

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/api/oem"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// documented is what a document says about who may call an operation.
type documented struct {
	ID         string                `json:"operationId"`
	Permission scope.Permission      `json:"x-permission"`
	Also       scope.Permission      `json:"x-permission-also"`
	Reach      string                `json:"x-environment"`
	Callers    []string              `json:"x-callers"`
	Security   []map[string][]string `json:"security"`
	method     string
	path       string
}

// optional reports whether the operation needs no credential.
func (d documented) optional() bool {
	return slices.ContainsFunc(d.Security, func(way map[string][]string) bool { return len(way) == 0 })
}

// takes reports whether the operation accepts a kind of caller.
func (d documented) takes(kind string) bool {
	if len(d.Callers) == 0 {
		return !scope.ActorKind(kind).Dedicated()
	}
	return slices.Contains(d.Callers, kind)
}

// shows returns a header with a credential, where the document says that the operation expects it.
func (d documented) shows(credential string) []string {
	for _, way := range d.Security {
		if _, ok := way["apiKey"]; ok {
			return []string{"X-API-Key", credential}
		}
	}
	return []string{"Authorization", "Bearer a." + credential + ".token"} // in the form of a token
}

// outsider is a caller whom some operations refuse.
type outsider struct {
	what string
	// credential is sent; empty: none.
	credential string
	scope      scope.Scope
	err        error
	// want returns the status of the refusal; 0: the operation accepts this caller.
	want func(documented) int
}

// outsiders returns all callers that an operation must refuse.
func outsiders() []outsider {
	when := func(refuse func(documented) bool) func(documented) int {
		return func(d documented) int {
			if refuse(d) {
				return 403
			}
			return 0
		}
	}
	whole := func(kind scope.ActorKind) scope.Scope {
		return scope.Scope{Tenant: "t1", Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: kind, ID: "1"}}
	}
	out := []outsider{
		{what: "no credential", want: func(d documented) int {
			if d.optional() {
				return 0
			}
			return 401
		}},
		{what: "a credential that is not valid", credential: "x", err: fault.New(fault.Unauthenticated, "invalid_credentials", "not valid"), want: func(documented) int { return 401 }},
		{what: "a key of a suspended tenant", credential: "x", err: fault.New(fault.Forbidden, "tenant_access_denied", "suspended"), want: func(documented) int { return 403 }},
		{what: "a caller without permissions", credential: "x", want: when(func(d documented) bool { return d.Permission != "" })},
		{what: "a platform administrator of the tenant alone", credential: "x", scope: whole(scope.Key), want: when(func(d documented) bool { return slices.Contains(d.Callers, platformAdmin) })},
		{what: "a caller of another tenant", credential: "x", scope: whole(scope.Key), want: when(func(d documented) bool { return strings.Contains(d.path, "{tenant_id}") })},
		{what: "a key of production", credential: "x", scope: whole(scope.Key), want: when(func(d documented) bool { return d.Reach == "tenant" || d.Reach == "sandbox" })},
	}
	out[3].scope = scope.Scope{Tenant: "t1", Actor: scope.Actor{Kind: scope.Person, ID: "1"}}
	out[5].scope.Tenant = "t2"
	out[6].scope.Env, out[6].scope.EnvBound = scope.Production, true
	for _, kind := range []scope.ActorKind{scope.Person, scope.Key, scope.Bouncer, scope.Vendor, scope.Directory, scope.Agent} {
		sc := whole(kind)
		sc.Platform = kind == scope.Person || kind == scope.Key
		out = append(out, outsider{what: "the credential of a " + string(kind), credential: "x", scope: sc, want: when(func(d documented) bool {
			return !d.takes(string(kind)) && !(sc.Platform && d.takes(platformAdmin))
		})})
	}
	return out
}

// wrongInputs are requests that are refused for their content: 400, 413, 415 or 422.
var wrongInputs = []struct {
	query   string
	headers []string
	length  int64
}{
	{},
	{query: "?no_such_parameter=1"},
	{headers: []string{"Content-Type", "application/json"}, length: 1},
	{headers: []string{"Content-Type", "text/plain"}, length: 1},
	{headers: []string{"Content-Type", "application/json", "Content-Encoding", "br"}, length: 1},
	{headers: []string{"Content-Type", "application/json"}, length: 1 << 40},
}

// TestCallerBeforeContent: each operation refuses callers that it does not accept (401, 403)
// before it checks parameters, media type, size and body.
func TestCallerBeforeContent(t *testing.T) {
	var now outsider
	k := kit()
	k.Authenticate = func(context.Context, rest.Credential) (scope.Scope, rest.Principal, error) {
		return now.scope, rest.Principal{}, now.err
	}
	r, err := New(Config{Kit: k})
	errtest.Must(t, err)
	checked, refused := map[string]bool{}, map[string]int{}
	for _, d := range append(documentedOps(t, r, "/openapi.json"), documentedOps(t, r, oem.Root+"/openapi.json")...) {
		path := parameter.ReplaceAllString(strings.NewReplacer("{tenant_id}", "t1", "{environment}", "sandbox").Replace(d.path), "1")
		for _, now = range outsiders() {
			want := now.want(d)
			if want == 0 || len(d.Security) == 0 {
				continue
			}
			for _, in := range wrongInputs {
				call := resttest.Call{Method: d.method, Path: path + in.query, Headers: in.headers}
				if now.credential != "" {
					call.Headers = append(d.shows(now.credential), in.headers...)
				}
				req := call.Request()
				req.Body, req.ContentLength = unread{t, d.ID}, in.length
				w := httptest.NewRecorder()
				r.ServeHTTP(w, req)
				if w.Code != want {
					t.Errorf("%s with %s and %q %q = %d %s, want %d", d.ID, now.what, in.query, in.headers, w.Code, w.Body, want)
				}
			}
			checked[d.ID] = true
			refused[now.what]++
		}
	}
	if len(checked) < 200 {
		t.Errorf("%d operations were checked, want at least 200", len(checked))
	}
	for _, o := range outsiders() {
		if refused[o.what] == 0 {
			t.Errorf("no operation refuses %s", o.what)
		}
	}
}

// documentedOps returns the operations of a served document.
func documentedOps(t *testing.T, r *API, document string) (out []documented) {
	t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, resttest.Call{Method: "GET", Path: document}.Request())
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatalf("GET %s = %d, %v", document, w.Code, err)
	}
	for path, methods := range doc.Paths {
		for method, raw := range methods {
			d := documented{method: strings.ToUpper(method), path: path}
			if err := json.Unmarshal(raw, &d); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			out = append(out, d)
		}
	}
	return out
}
