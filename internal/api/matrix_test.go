package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// TestMatrix: under all paths of all operations, a request without a valid credential or without the
// permission is refused before its body is read. The API has no services here, so an admitted request
// would panic.
func TestMatrix(t *testing.T) {
	var all []scope.Permission
	for _, area := range []string{"policies", "resources", "decisions", "audit", "users", "agents", "bouncers", "pip", "webhooks", "notifications", "integrations", "telemetry", "simulator", "tenants", "billing", "dashboard", "editor"} {
		all = append(all, scope.Permission(area+":read"), scope.Permission(area+":write"))
	}
	all = append(all, "resources:edit")
	var held scope.Permissions
	k := kit()
	k.Authenticate = func(_ context.Context, c rest.Credential) (scope.Scope, rest.Principal, error) {
		return as(c, scope.Scope{Tenant: "t1", Permissions: held, Actor: scope.Actor{Kind: scope.Key, ID: "1"}, RequestID: c.RequestID}), rest.Principal{}, nil
	}
	r, err := New(Config{Kit: k})
	errtest.Must(t, err)
	known := map[scope.Permission]bool{"": true}
	for _, p := range all {
		known[p] = true
	}
	for _, op := range r.Routes() {
		path := strings.ReplaceAll(op.Path, "{tenant_id}", "t1")
		path = parameter.ReplaceAllString(path, "1")
		paths := []string{path}
		if tail, ok := strings.CutPrefix(path, rest.Root); ok {
			paths = append(paths, "/api"+tail, "/api/v1/v1"+tail)
			if canonical("/v1"+tail) == path {
				paths = append(paths, "/v1"+tail)
			}
		}
		if !known[op.Permission] {
			t.Errorf("%s needs %q, which is no permission", op.ID, op.Permission)
		}
		for _, path := range paths {
			send := func(req *http.Request) *httptest.ResponseRecorder {
				req.Body = unread{t, op.ID}
				w := httptest.NewRecorder()
				r.ServeHTTP(w, req)
				return w
			}
			try := func(key string) *httptest.ResponseRecorder {
				req := resttest.Call{Method: op.Method, Path: path, Key: key}.Request()
				if key != "" {
					bear(req, op)
				}
				return send(req)
			}
			tryAs := func(key string) *httptest.ResponseRecorder {
				return send(resttest.Call{Method: op.Method, Path: path, Headers: []string{"Authorization", "Bearer " + key}}.Request())
			}
			if op.Public || op.Optional {
				continue
			}
			if w := try(""); w.Code != 401 || !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s %s without a credential = %d %s, want 401", op.Method, path, w.Code, w.Body)
			}
			other := "vendor"
			if op.Caller != "" {
				other = "key"
			}
			held = scope.Permissions{All: true}
			if w := tryAs(other); !op.Token && w.Code != 403 {
				t.Errorf("%s %s with the key of another kind of caller = %d %s, want 403", op.Method, path, w.Code, w.Body)
			}
			if op.Permission == "" {
				continue
			}
			held = scope.Permissions{}
			for _, p := range all {
				if p != op.Permission {
					held.List = append(held.List, p)
				}
			}
			if w := try("key"); w.Code != 403 {
				t.Errorf("%s %s without %s = %d %s, want 403", op.Method, path, op.Permission, w.Code, w.Body)
			}
		}
	}
}

// as returns the scope of a credential in these tests. The name of a kind of caller is a
// credential of that kind.
func as(c rest.Credential, sc scope.Scope) scope.Scope {
	switch kind := scope.ActorKind(c.APIKey + c.Bearer); {
	case kind.Dedicated() || kind == scope.Person || kind == scope.Bouncer:
		sc.Actor.Kind = kind
	case kind == platformAdmin:
		sc.Platform = true
	}
	return sc
}

// platformAdmin is the credential of a platform administrator in these tests.
const platformAdmin = "platform_admin"

// admitted returns the credential of a caller whom an operation accepts.
func admitted(op rest.Op) string {
	only := map[rest.Callers]string{rest.PlatformAdmins: platformAdmin, rest.People: string(scope.Person), rest.Bouncers: string(scope.Bouncer)}[op.Only]
	return cmp.Or(string(op.Caller), only, "key")
}

// unread is a body that must not be read.
type unread struct {
	t  *testing.T
	op string
}

func (u unread) Read([]byte) (int, error) {
	u.t.Errorf("%s reads the body of a request that is not admitted", u.op)
	return 0, context.Canceled
}

func (unread) Close() error { return nil }

// bear sets a credential that the operation accepts, in the header where it expects it.
func bear(req *http.Request, op rest.Op) {
	credential := admitted(op)
	req.Header.Set("X-API-Key", credential)
	if op.Token {
		credential = "a.signed.token"
	}
	if op.Bearer || op.Token {
		req.Header.Del("X-API-Key")
		req.Header.Set("Authorization", "Bearer "+credential)
	}
}
