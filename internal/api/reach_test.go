package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestUnknownParameters: every operation refuses an unknown query parameter and suggests
// the most similar one, except operations of foreign protocols. The API has no services,
// so an admitted request ends in a 500.
func TestUnknownParameters(t *testing.T) {
	r := allowing(t, scope.Scope{Tenant: "t1", Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Key, ID: "1"}})
	for _, op := range r.Routes() {
		path := parameter.ReplaceAllString(strings.NewReplacer("{tenant_id}", "t1", "{environment}", "sandbox").Replace(op.Path), "1")
		free := strings.HasPrefix(path, "/api/v1/bridge/") || strings.HasPrefix(path, "/access/v1/") || strings.HasPrefix(path, "/scim/") || strings.HasPrefix(path, "/v1/data/") ||
			strings.HasPrefix(path, "/api/v1/devdocs") || // pages: links from other sites add parameters
			path == "/api/v1/auth/sso/callback" // identity providers add parameters
		try := func(query string) *httptest.ResponseRecorder {
			req := resttest.Call{Method: op.Method, Path: path + "?" + query, Key: "key"}.Request()
			bear(req, op)
			w := httptest.NewRecorder()
			r.ServeHTTP(w, req)
			return w
		}
		for query, hint := range map[string]string{"no_such_parameter=1": "", "tenat_id=t1": "tenant_id", "Environment=sandbox": "environment", "a=1&b=2": "query.b"} {
			w := try(query)
			refused := w.Code == 400 && strings.Contains(w.Body.String(), hint) && strings.Contains(w.Body.String(), "there is no such parameter here")
			if refused == free {
				t.Errorf("%s ?%s = %d %s, want refused: %t", op.ID, query, w.Code, w.Body, !free)
			}
		}
		for _, query := range []string{"environment=sandbox", "tenant_id=t1"} {
			if w := try(query); strings.Contains(w.Body.String(), "no such parameter") {
				t.Errorf("%s ?%s = %d %s, want the parameter known", op.ID, query, w.Code, w.Body)
			}
		}
	}
}

// allowing returns the API without services. Every credential has the scope sc.
func allowing(t *testing.T, sc scope.Scope) *API {
	t.Helper()
	k := kit()
	k.Authenticate = func(_ context.Context, c rest.Credential) (scope.Scope, rest.Principal, error) {
		return as(c, sc), rest.Principal{}, nil
	}
	r, err := New(Config{Kit: k})
	errtest.Must(t, err)
	return r
}

// narrowed returns the text who, limited to the callers that the operation accepts.
func narrowed(op rest.Op, who string) string {
	return strings.ReplaceAll(map[rest.Callers]string{
		rest.Everybody: "%", rest.PlatformAdmins: "only `platform_admin`", rest.People: "%; people only", rest.Bouncers: "only the token of a bouncer", rest.NoBouncers: "%; no bouncers",
	}[op.Only], "%", who)
}

// TestDocumentPermissions: the table in docs/permissions.md agrees with the operations:
// who may call them, and with which keys.
func TestDocumentPermissions(t *testing.T) {
	const page = "../../docs/permissions.md"
	const begin, end = "<!-- operations: make docs -->\n", "<!-- end -->"
	text, err := os.ReadFile(page)
	errtest.Must(t, err)
	before, rest, ok := bytes.Cut(text, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has no marks around the table of operations", page)
	}
	var table bytes.Buffer
	table.Write(before)
	table.WriteString(begin + "| Operation | Permission | Reach | Roles |\n|---|---|---|---|\n")
	for _, op := range whole(t).Routes() {
		if op.Public {
			continue
		}
		var roles []string
		for _, role := range []string{user.RoleAdmin, user.RolePolicyAuthor, user.RoleResourceManager, user.RoleOperator, user.RoleAuditor, user.RoleViewer} {
			ps, _ := user.Permissions("t1", []string{role})
			if (op.Permission == "" || ps.Has(op.Permission)) && (op.Also == "" || ps.Has(op.Also)) {
				roles = append(roles, role)
			}
		}
		permission, who := "none", "all"
		if op.Caller != "" {
			fmt.Fprintf(&table, "| `%s %s` | none | %s | only the key of a %s |\n", op.Method, op.Path, op.Reach, op.Caller)
			continue
		}
		if op.Permission != "" {
			permission = "`" + string(op.Permission) + "`"
			if op.Also != "" {
				permission += " and `" + string(op.Also) + "`"
			}
		}
		if len(roles) < 6 {
			who = strings.Join(roles, ", ")
		}
		who = narrowed(op, who)
		fmt.Fprintf(&table, "| `%s %s` | %s | %s | %s |\n", op.Method, op.Path, permission, op.Reach, who)
	}
	table.WriteString(end)
	table.Write(after)
	if *update {
		errtest.Must(t, os.WriteFile(page, table.Bytes(), 0o600))
		return
	}
	if !bytes.Equal(text, table.Bytes()) {
		t.Errorf("%s differs from the operations: review the difference after make docs", page)
	}
}

// TestReachOfPermissions: the second permission (Also) of an operation in reach of a bound
// credential is one that bound credentials can use.
func TestReachOfPermissions(t *testing.T) {
	r := whole(t)
	for _, op := range r.Routes() {
		if op.Also != "" && op.Reach != rest.ReachTenant && !slices.Contains(r.BoundPermissions(), op.Also) {
			t.Errorf("%s is in reach of bound credentials, and %s is not", op.ID, op.Also)
		}
	}
}

// TestReach: a bound credential is accepted exactly where the document says so, whatever
// permissions it has, under every alias. The refusal says why.
func TestReach(t *testing.T) {
	for _, bound := range []scope.Env{scope.Sandbox, scope.Production} {
		r := allowing(t, scope.Scope{
			Tenant: "t1", Env: bound, EnvBound: true, Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Key, ID: "1"},
		})
		for _, op := range r.Routes() {
			if op.Public {
				continue
			}
			for _, named := range []scope.Env{scope.Sandbox, scope.Production} {
				path := parameter.ReplaceAllString(strings.NewReplacer("{tenant_id}", "t1", "{environment}", string(named)).Replace(op.Path), "1")
				denied := op.Reach == rest.ReachTenant || op.Reach == rest.ReachSandbox && bound != scope.Sandbox ||
					op.Reach == rest.ReachEnvironment && strings.Contains(op.Path, "{environment}") && bound != named
				for _, path := range aliases(path) {
					req := resttest.Call{Method: op.Method, Path: path, Key: "key", Headers: []string{"Content-Type", "text/nothing"}}.Request()
					bear(req, op)
					w := httptest.NewRecorder()
					r.ServeHTTP(w, req)
					refused := w.Code == 403 && environmentDenied(w.Body.Bytes())
					if denied != refused {
						t.Errorf("%s %s with a key of %s = %d %s, want refused: %t", op.Method, path, bound, w.Code, w.Body, denied)
					}
				}
			}
		}
	}
}

// aliases returns the paths under which an operation is served.
func aliases(path string) []string {
	paths := []string{path}
	if tail, ok := strings.CutPrefix(path, rest.Root); ok {
		paths = append(paths, "/api"+tail, "/api/v1/v1"+tail)
	}
	return paths
}

// environmentDenied reports whether an error body, in the form of any area, says that the
// credential is not valid for the environment.
func environmentDenied(body []byte) bool {
	var message string // an error of AuthZEN is one text
	if json.Unmarshal(body, &message) != nil {
		var doc map[string]any
		if err := json.Unmarshal(body, &doc); err != nil {
			return false
		}
		message = fmt.Sprint(doc["error"], doc["detail"], doc["message"], doc["errors"], doc["code"])
	}
	return slices.ContainsFunc([]string{"environment_denied", "valid for sandbox only", "valid for production only"}, func(s string) bool { return strings.Contains(message, s) })
}
