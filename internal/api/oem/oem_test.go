package oem

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/contract"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/vendor"
)

// callers are the credentials of the tests: a vendor's key, and one that may do everything else.
var callers = map[string]scope.Scope{
	"vendor": {Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Vendor, ID: "v1", Name: "Widgets"}},
	"admin":  {Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Key, ID: "k1"}, Permissions: scope.Permissions{All: true}, Platform: true},
}

// newRouter returns the API for vendors without a service.
func newRouter(t testing.TB) *rest.Router {
	t.Helper()
	r, err := rest.New(rest.Config{
		Now: time.Now, NewID: func() string { return "id" }, Log: slog.New(slog.DiscardHandler),
		Authenticate: func(_ context.Context, c rest.Credential) (scope.Scope, rest.Principal, error) {
			sc, ok := callers[c.APIKey+c.Bearer]
			if !ok {
				return sc, rest.Principal{}, fault.New(fault.Unauthenticated, "invalid_credentials", "the credential is not valid")
			}
			return sc, rest.Principal{KeyID: sc.Actor.ID, Tenant: sc.Tenant}, nil
		},
		Document: rest.Document{Title: "t", Version: "1", Languages: []string{"en"}, Families: []contract.Family{{Name: Family, Root: Root, Title: "OEM", Version: "2"}}},
	})
	errtest.Must(t, err)
	(&Handler{Vendors: &vendor.Service{}, Languages: []string{"en"}}).Mount(r)
	errtest.Must(t, r.Finish())
	return r
}

// operations returns the operations of the document: method and path below the root.
func operations(t testing.TB, r *rest.Router) (list []string) {
	t.Helper()
	rec := &resttest.Recorder{Handler: r}
	w := rec.Do(t, resttest.Call{Method: "GET", Path: Root + "/openapi.json"}.Request())
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); w.Code != http.StatusOK || err != nil {
		t.Fatalf("GET of the document = %d, %v", w.Code, err)
	}
	for path, methods := range doc.Paths {
		for method := range maps.Keys(methods) {
			list = append(list, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(list)
	return list
}

// TestDocument: anybody may read the document of the family, and it lists exactly these operations.
func TestDocument(t *testing.T) {
	want := []string{
		"DELETE " + Root + "/tenants/{id}", "GET " + Root + "/openapi.json", "GET " + Root + "/tenants", "GET " + Root + "/tenants/{id}/status",
		"GET " + Root + "/usage", "POST " + Root + "/tenants", "PUT " + Root + "/tenants/{id}",
	}
	if got := operations(t, newRouter(t)); !slices.Equal(got, want) {
		t.Errorf("operations = %q, want %q", got, want)
	}
}

// TestVendorsOnly: every operation but the document refuses a missing or unknown key and the key of
// an administrator, before it reaches the service.
func TestVendorsOnly(t *testing.T) {
	r := newRouter(t)
	rec := &resttest.Recorder{Handler: r}
	for _, op := range operations(t, r) {
		method, path, _ := strings.Cut(op, " ")
		if strings.HasSuffix(path, "/openapi.json") {
			continue
		}
		for key, want := range map[string]int{"": 401, "unknown": 401, "admin": 403} {
			call := resttest.Call{Method: method, Path: strings.ReplaceAll(path, "{id}", "acme"), Key: key}
			if method == "POST" || method == "PUT" {
				call.Body, call.Headers = `{}`, []string{"Content-Type", "application/json"}
			}
			if w := rec.Do(t, call.Request()); w.Code != want {
				t.Errorf("%s with the key %q = %d %s, want %d", op, key, w.Code, w.Body, want)
			}
		}
	}
}

// TestInputs: an input that the schemas do not allow is refused, with the place of each error.
func TestInputs(t *testing.T) {
	rec := &resttest.Recorder{Handler: newRouter(t)}
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		names              string
	}{
		"an unknown member":       {"POST", "/tenants", `{"name":"Acme","administrator":{"email":"a@b.example"},"plan":"pro"}`, 422, "/plan"},
		"no administrator":        {"POST", "/tenants", `{"name":"Acme"}`, 422, "administrator"},
		"a key without scopes":    {"POST", "/tenants", `{"name":"Acme","administrator":{"email":"a@b.example"},"api_keys":[{"name":"k","scopes":7}]}`, 422, "/api_keys/0/scopes"},
		"an unknown status":       {"PUT", "/tenants/acme", `{"status":7}`, 422, "/status"},
		"a tenant id too long":    {"GET", "/tenants/" + strings.Repeat("a", 64) + "/status", "", 404, "not_found"},
		"a month too long":        {"GET", "/usage?from=2026-11-01", "", 400, "from"},
		"an unknown parameter":    {"GET", "/usage?form=2026-11", "", 400, "from"},
		"a language without text": {"GET", "/openapi.json?language=de", "", 400, "language"},
		"a hard delete of maybe":  {"DELETE", "/tenants/acme?hard_delete=maybe", "", 400, "hard_delete"},
	} {
		call := resttest.Call{Method: tc.method, Path: Root + tc.path, Key: "vendor", Body: tc.body}
		if tc.body != "" {
			call.Headers = []string{"Content-Type", "application/json"}
		}
		if w := rec.Do(t, call.Request()); w.Code != tc.status || !strings.Contains(w.Body.String(), tc.names) {
			t.Errorf("%s: %s %s = %d %s, want %d with %s", name, tc.method, tc.path, w.Code, w.Body, tc.status, tc.names)
		}
	}
}
