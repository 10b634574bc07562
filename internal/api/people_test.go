package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// town is the API with the services for people, tenants and credentials, and with the
// administrator `admin`.
type town struct {
	*rig
	t     *testing.T
	auth  *auth.Service
	admin string // a platform administrator's token
}

const adminPassword = "the first password"

// newTown returns a town on a store. changes change the configuration of its API.
func newTown(t *testing.T, c *db.Cluster, changes ...func(*Config)) *town {
	t.Helper()
	ctx := context.Background()
	// Like the process's clock, it is more precise than the times in a store.
	now := func() time.Time { return time.Now().Truncate(time.Microsecond).Add(789) }
	box, err := secret.New([secret.KeyBytes]byte{1})
	errtest.Must(t, err)
	hasher, err := user.NewHasher(user.Cost{Passes: 1, MemoryKiB: 64, Lanes: 1}, 0, rand.Reader)
	errtest.Must(t, err)
	tenants := &tenant.Service{Stores: c, Now: now, BaseDomain: "gate.example", Counters: map[string]func(context.Context, *db.Tx) (int64, error){tenant.Users: user.Count}}
	people := &user.Service{Stores: c, Hasher: hasher, Now: now, NewID: uuid.NewString, CheckLimit: tenants.CheckLimit, Released: tenants.UpdateUsageAlerts}
	svc, err := auth.New(ctx, auth.Config{
		Stores: c, Tenants: tenants, Users: people, Hasher: hasher, Box: box, Now: now, NewID: uuid.NewString, Random: rand.Reader,
	})
	errtest.Must(t, err)
	t.Cleanup(svc.Close)
	people.Revoke = auth.RevokeUser
	errtest.Must(t, tenants.EnsureDefault(ctx))
	errtest.Must(t, errtest.Of(svc.EnsureAdmin(ctx, adminPassword)))
	g := newRig(t, func(s *Config) {
		s.Kit.Hosts.BaseDomain, s.Kit.Authenticate = "gate.example", authenticator(svc)
		s.Auth, s.Users, s.Tenants = svc, people, tenants
		s.Kit.Idempotency = rest.Idempotency{Cluster: c, Seal: box.Seal, Open: box.Open}
		for _, change := range changes {
			change(s)
		}
	})
	w := &town{rig: g, t: t, auth: svc}
	w.admin = w.login("admin", adminPassword)
	return w
}

// bearer returns the headers with a token.
func bearer(token string, more ...string) []string {
	return append([]string{"Authorization", "Bearer " + token}, more...)
}

// call sends a request, checks the answer against the document, and returns its body.
func (w *town) call(want int, c resttest.Call) map[string]any {
	w.t.Helper()
	rec := w.Do(w.t, c.Request())
	if rec.Code != want {
		w.t.Errorf("%s %s %s = %d, want %d: %s", c.Method, c.Path, c.Body, rec.Code, want, rec.Body)
	}
	body := map[string]any{}
	if rec.Body.Len() > 0 && rec.Body.Bytes()[0] == '{' {
		if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
			w.t.Errorf("%s %s: %v", c.Method, c.Path, err)
		}
	}
	return body
}

// as is call with a token.
func (w *town) as(token string, want int, method, path, body string, more ...string) map[string]any {
	w.t.Helper()
	return w.call(want, resttest.Call{Method: method, Path: "/api/v1" + path, Body: body, Headers: bearer(token, more...)})
}

// login signs a user in and returns the token.
func (w *town) login(name, password string, more ...string) string {
	w.t.Helper()
	body := w.call(200, resttest.Call{Method: "POST", Path: "/api/v1/auth/login", Body: fmt.Sprintf(`{"username":%q,"password":%q}`, name, password), Headers: more})
	if body["token_type"] != "bearer" || body["expires_in"] != 3600.0 {
		w.t.Errorf("POST /auth/login = %v, want a bearer token for an hour", body)
	}
	token, _ := body["access_token"].(string)
	return token
}

// TestSignInAndOut: a user signs in and out with a token. All failed sign-ins get the same answer.
func TestSignInAndOut(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		w := newTown(t, c)
		me := w.as(w.admin, 200, "GET", "/auth/me", "")
		if me["username"] != "admin" || me["kind"] != "user" || me["tenant_id"] != "default" || len(me["permissions"].([]any)) != 35 {
			t.Errorf("GET /auth/me = %v, want admin with 35 permissions", me)
		}
		if _, there := me["password_hash"]; there {
			t.Error("GET /auth/me shows the hash of the password")
		}
		for _, body := range []string{`{"username":"admin","password":"wrong"}`, `{"username":"nobody","password":"wrong"}`, `{"username":"","password":""}`} {
			got := w.call(401, resttest.Call{Method: "POST", Path: "/api/v1/auth/login", Body: body})
			if got["error"] != "invalid_credentials" || got["message"] != "the user name or the password is wrong" {
				t.Errorf("POST /auth/login of %s = %v, want invalid_credentials", body, got)
			}
		}
		w.call(422, resttest.Call{Method: "POST", Path: "/api/v1/auth/login", Body: `{"username":"admin"}`})
		w.call(422, resttest.Call{Method: "POST", Path: "/api/v1/auth/login", Body: `{"username":"admin","password":"x","otp":1}`})
		w.call(401, resttest.Call{Method: "GET", Path: "/api/v1/auth/me"})
		w.call(400, resttest.Call{Method: "GET", Path: "/api/v1/auth/me", Key: "gh_x", Headers: bearer(w.admin)})
		token := w.login("ADMIN", adminPassword)
		child := w.as(token, 200, "POST", "/developer-portal/token", "")["access_token"].(string)
		w.as(child, 200, "GET", "/auth/me", "")
		w.as(token, 200, "POST", "/auth/logout", "")
		w.as(token, 401, "GET", "/auth/me", "")
		w.as(child, 401, "GET", "/auth/me", "")
		set := w.call(200, resttest.Call{Method: "GET", Path: "/.well-known/jwks.json"})
		if keys := set["keys"].([]any); len(keys) != 1 || keys[0].(map[string]any)["alg"] != "EdDSA" || keys[0].(map[string]any)["d"] != nil {
			t.Errorf("GET /.well-known/jwks.json = %v, want one public EdDSA key", set)
		}
	})
}

// TestTokenEndpoint: the token endpoint takes forms, Basic authentication and JSON, and answers errors as
// OAuth 2.0 has them.
func TestTokenEndpoint(t *testing.T) {
	w := newTown(t, dbtest.Open(t, dbtest.SQLite))
	key := w.as(w.admin, 201, "POST", "/tenants/default/api-keys", `{"name":"ci","scopes":["users:read","tenants:read"]}`)["key"].(string)
	form := func(want int, values url.Values, more ...string) map[string]any {
		t.Helper()
		return w.call(want, resttest.Call{Method: "POST", Path: "/api/v1/auth/token", Body: values.Encode(), Headers: append(more, "Content-Type", "application/x-www-form-urlencoded")})
	}
	got := form(200, url.Values{"grant_type": {"client_credentials"}, "client_id": {"me"}, "client_secret": {key}, "scope": {"users:read"}})
	if got["scope"] != "users:read" {
		t.Errorf("POST /auth/token for users:read = %v", got)
	}
	w.as(got["access_token"].(string), 200, "GET", "/users", "")
	w.as(got["access_token"].(string), 403, "GET", "/tenants", "")
	form(200, url.Values{"grant_type": {"password"}, "username": {"admin"}, "password": {adminPassword}, "whatever": {"x"}})
	basic := resttest.Call{Method: "POST", Path: "/"}.Request()
	basic.SetBasicAuth("me", key)
	form(200, url.Values{"grant_type": {"client_credentials"}}, "Authorization", basic.Header.Get("Authorization"))
	for want, c := range map[string]struct {
		status int
		values url.Values
	}{
		"invalid_grant":          {400, url.Values{"grant_type": {"password"}, "username": {"admin"}, "password": {"x"}}},
		"invalid_client":         {401, url.Values{"grant_type": {"client_credentials"}, "client_secret": {key[:len(key)-1]}}},
		"invalid_scope":          {400, url.Values{"grant_type": {"client_credentials"}, "client_secret": {key}, "scope": {"users:write"}}},
		"unsupported_grant_type": {400, url.Values{"grant_type": {"implicit"}}},
		"invalid_request":        {400, url.Values{"grant_type": {"password", "password"}}},
	} {
		got := form(c.status, c.values)
		if got["error"] != want || got["error_description"] == "" {
			t.Errorf("POST /auth/token = %v, want %s", got, want)
		}
	}
	w.call(200, resttest.Call{Method: "POST", Path: "/api/v1/auth/token", Body: fmt.Sprintf(`{"grant_type":"client_credentials","client_secret":%q}`, key), Headers: []string{"Content-Type", "application/json"}})
	w.call(400, resttest.Call{Method: "POST", Path: "/api/v1/auth/token", Body: `{"grant_type":7}`, Headers: []string{"Content-Type", "application/json"}})
	typo := w.call(400, resttest.Call{Method: "POST", Path: "/api/v1/auth/token", Body: fmt.Sprintf(`{"grant_type":"client_credentials","client_secret":%q,"scpoe":"users:read"}`, key), Headers: []string{"Content-Type", "application/json"}})
	if typo["error"] != "invalid_request" || !strings.Contains(fmt.Sprint(typo["error_description"]), "/scpoe") {
		t.Errorf("POST /auth/token with an unknown member = %v, want it named", typo)
	}
	w.call(415, resttest.Call{Method: "POST", Path: "/api/v1/auth/token", Body: `x`, Headers: []string{"Content-Type", "text/plain"}})
}

// TestUsers: users are created, read, changed and deleted over HTTP.
func TestUsers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		w := newTown(t, c)
		made := w.as(w.admin, 201, "POST", "/users", `{"email":"ada@example.com","username":"ada","password":"correct horse","roles":["Policy Author"],"department":"R&D","attributes":{"clearance":3}}`)
		if made["message"] == "" || fmt.Sprint(made["roles"]) != "[policy_author]" || made["password"] != nil {
			t.Errorf("POST /users = %v", made)
		}
		id := made["id"].(string)
		w.as(w.admin, 409, "POST", "/users", `{"email":"x@example.com","username":"ADA"}`)
		for _, bad := range []string{`{"username":"x"}`, `{"email":"nope","username":"x"}`, `{"email":"x@example.com","username":"x","password":"short"}`, `{"email":"x@example.com","username":"x","roles":"admin"}`, `{"email":"x@example.com","username":"x","rolez":[]}`} {
			w.as(w.admin, 422, "POST", "/users", bad)
		}
		got := w.as(w.admin, 200, "GET", "/users/"+id, "")
		again, _ := json.Marshal(got) // what was read can be sent back
		back := w.as(w.admin, 200, "PUT", "/users/"+id, string(again))
		if delete(got, "updated_at"); back["id"] != id || back["created_at"] != got["created_at"] || fmt.Sprint(back["attributes"]) != fmt.Sprint(got["attributes"]) {
			t.Errorf("PUT of the user as it was read = %v, want %v", back, got)
		}
		w.as(w.admin, 404, "GET", "/users/"+uuid.NewString(), "")
		if page := w.as(w.admin, 200, "GET", "/users?search=ADA&limit=1", ""); page["total"] != 1.0 || len(page["users"].([]any)) != 1 {
			t.Errorf("GET /users?search=ADA = %v, want one", page)
		}
		w.as(w.admin, 400, "GET", "/users?limit=0", "")
		ada := w.login("ada@example.com", "correct horse")
		w.as(ada, 403, "GET", "/users", "")
		w.as(ada, 403, "PUT", "/users/"+id+"/roles", `{"roles":["admin"]}`)
		w.as(w.admin, 200, "PUT", "/users/"+id+"/roles", `{"roles":["viewer","astronaut"],"reason":"moved"}`)
		w.as(ada, 401, "GET", "/auth/me", "") // the role change ended the session
		w.as(w.admin, 409, "PUT", "/users/"+w.as(w.admin, 200, "GET", "/auth/me", "")["id"].(string)+"/roles", `{"roles":[]}`)
		if gone := w.as(w.admin, 200, "DELETE", "/users/"+id, ""); gone["id"] != id {
			t.Errorf("deleted %v", gone)
		}
		w.as(w.admin, 404, "DELETE", "/users/"+id, "")
	})
}

// TestTenantsAndTheirKeys follows a tenant, its limits, its administrator and its keys from the creation to
// the deletion.
func TestTenantsAndTheirKeys(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		w := newTown(t, c)
		acme := w.as(w.admin, 201, "POST", "/tenants", `{"name":"Acme Inc","domain":"acme.example","plan_type":"pro","region":"eu-west-1","settings":{"max_users":2,"x-theme":"dark"}}`)
		if acme["id"] != "acme-inc" || acme["status"] != "active" || fmt.Sprint(acme["settings"]) != "map[max_users:2 x-theme:dark]" || fmt.Sprint(acme["limits"]) != "map[bouncers_used:0 policies_used:0 users_used:0]" {
			t.Errorf("POST /tenants = %v", acme)
		}
		for _, bad := range []string{`{"name":""}`, `{"name":"x","region":"mars-1"}`, `{"name":"x","plan_type":"free"}`, `{"name":"x","settings":{"max_users":-1}}`, `{"name":"x","settings":{"max_users":"2"}}`, `{"name":"x","domain":"not a domain"}`} {
			w.as(w.admin, 422, "POST", "/tenants", bad)
		}
		in := []string{"X-Tenant-ID", "acme-inc"}
		w.as(w.admin, 201, "POST", "/users", `{"email":"boss@acme.example","username":"boss","password":"correct horse","roles":["Admin"]}`, in...)
		w.as(w.admin, 201, "POST", "/users", `{"email":"two@acme.example","username":"two"}`, in...)
		full := w.as(w.admin, 403, "POST", "/users", `{"email":"three@acme.example","username":"three"}`, in...)
		if full["error"] != "limit_exceeded" || full["limit"] != 2.0 || full["used"] != 2.0 {
			t.Errorf("POST /users over the limit = %v, want limit_exceeded with 2 of 2", full)
		}
		boss := w.login("boss", "correct horse", in...)
		rec := w.Do(t, resttest.Call{Method: "GET", Path: "/api/v1/tenants/acme-inc/alerts", Headers: bearer(boss)}.Request())
		if rec.Code != 200 || strings.Count(rec.Body.String(), `"usage_limit"`) != 2 || rec.Body.Bytes()[0] != '[' {
			t.Errorf("GET of the alerts = %d %s, want 2 of usage_limit", rec.Code, rec.Body)
		}
		got := w.as(boss, 200, "GET", "/tenants/acme-inc", "")
		again, _ := json.Marshal(got)
		w.as(boss, 200, "PUT", "/tenants/acme-inc", string(again))
		w.as(boss, 422, "PUT", "/tenants/acme-inc", `{"settings":{"max_users":100}}`)
		w.as(boss, 422, "PUT", "/tenants/acme-inc", `{"plan_type":"enterprise"}`)
		w.as(boss, 422, "PUT", "/tenants/acme-inc", `{"status":"suspended"}`)
		w.as(boss, 403, "POST", "/tenants", `{"name":"Mine"}`)
		if up := w.as(boss, 200, "PUT", "/tenants/acme-inc", `{"name":"Acme","settings":{"four_eyes":true,"x-theme":null}}`); fmt.Sprint(up["settings"]) != "map[four_eyes:true max_users:2]" || up["id"] != "acme-inc" {
			t.Errorf("PUT /tenants/acme-inc = %v", up)
		}
		for _, path := range []string{"/tenants/default", "/tenants/nowhere", "/tenants/default/api-keys", "/tenants/nowhere/api-keys", "/tenants/default/alerts"} {
			if no := w.as(boss, 403, "GET", path, ""); no["error"] != "tenant_access_denied" || no["tenant_id"] != strings.Split(path, "/")[2] {
				t.Errorf("GET %s = %v, want tenant_access_denied", path, no)
			}
		}
		if no := w.as(w.admin, 404, "GET", "/tenants/nowhere", ""); no["error"] != "tenant_not_found" || no["tenant_id"] != "nowhere" {
			t.Errorf("GET /tenants/nowhere = %v, want tenant_not_found", no)
		}
		w.as(w.admin, 404, "GET", "/tenants/nowhere/api-keys", "")
		w.checkKeys(boss)
		w.as(w.admin, 200, "PUT", "/tenants/acme-inc", `{"status":"suspended"}`)
		w.as(boss, 403, "GET", "/auth/me", "")
		w.as(w.admin, 200, "DELETE", "/tenants/acme-inc", "")
		w.as(boss, 401, "GET", "/auth/me", "")
		w.as(w.admin, 200, "DELETE", "/tenants/acme-inc?hard_delete=true", "")
		w.as(w.admin, 404, "GET", "/tenants/acme-inc", "")
		w.as(w.admin, 409, "DELETE", "/tenants/default", "")
	})
}

// checkKeys: API keys of the tenant acme-inc do what their scopes and environment allow, until they are
// rotated or revoked.
func (w *town) checkKeys(boss string) {
	w.t.Helper()
	const path = "/tenants/acme-inc/api-keys"
	once := []string{"Idempotency-Key", "one"}
	made := w.as(boss, 201, "POST", path, `{"name":"ci","scopes":["users:read","tenants:read"]}`, once...)
	if again := w.as(boss, 201, "POST", path, `{"name":"ci","scopes":["users:read","tenants:read"]}`, once...); again["key"] != made["key"] {
		w.t.Errorf("POST %s twice = %v and %v, want the same key", path, made, again)
	}
	w.as(boss, 422, "POST", path, `{"name":"ci","scopes":["users:write"]}`, once...)
	key, id := made["key"].(string), made["id"].(string)
	use := func(want int, key, path string, more ...string) map[string]any {
		w.t.Helper()
		return w.call(want, resttest.Call{Method: "GET", Path: "/api/v1" + path, Key: key, Headers: more})
	}
	if me := use(200, key, "/auth/me"); me["kind"] != "api_key" || me["tenant_id"] != "acme-inc" || fmt.Sprint(me["permissions"]) != "[tenants:read users:read]" {
		w.t.Errorf("GET /auth/me of a key = %v", me)
	}
	use(200, key, "/users")
	use(200, key, "/users?tenant_id=acme-inc", "X-Tenant-ID", "acme-inc")
	use(400, key, "/users?tenant_id=default", "X-Tenant-ID", "acme-inc")
	use(403, key, "/users", "X-Tenant-ID", "default")
	use(403, key, "/environments/sandbox/enforcement")
	use(401, key+"x", "/users")
	w.as(boss, 422, "POST", path, `{"name":"x","scopes":["everything:read"]}`)
	w.as(boss, 422, "POST", path, `{"name":"x","scopes":[]}`)
	if page := w.as(boss, 200, "GET", path, ""); page["total"] != 1.0 || page["api_keys"].([]any)[0].(map[string]any)["key"] != nil {
		w.t.Errorf("GET %s = %v, want one key without its text", path, page)
	}
	w.as(boss, 200, "GET", path+"/"+id, "")
	w.checkKeyChange(boss, path, id, use)
	fresh := w.as(boss, 201, "POST", path+"/"+id+"/rotate", `{"grace_seconds":60}`)
	use(200, key, "/users")
	last := w.as(boss, 201, "POST", path+"/"+fresh["id"].(string)+"/rotate", "")
	use(401, fresh["key"].(string), "/users")
	w.as(boss, 200, "DELETE", path+"/"+last["id"].(string), "")
	use(401, last["key"].(string), "/users")
	w.as(boss, 404, "DELETE", path+"/"+last["id"].(string), "")

	least := w.as(boss, 201, "POST", "/developer-portal/api-keys/sandbox/generate", "")
	if got := fmt.Sprint(least["scopes"]); got != "[decisions:read policies:read resources:read]" {
		w.t.Errorf("scopes of a key for which none were requested = %s", got)
	}
	bound := w.as(boss, 201, "POST", "/developer-portal/api-keys/sandbox/generate", `{"scopes":["bouncers:write","users:write","tenants:write","policies:read"]}`)
	if got := fmt.Sprint(bound["scopes"]); got != "[bouncers:write policies:read]" {
		w.t.Errorf("scopes of a key of one environment = %s", got)
	}
	w.as(boss, 422, "POST", "/developer-portal/api-keys/sandbox/generate", `{"scopes":["users:read"]}`)
	sandbox := bound["key"].(string)
	if bound["environment"] != "sandbox" || !strings.HasPrefix(sandbox, "gh_sandbox_") {
		w.t.Errorf("generated key = %v, want one of sandbox", bound)
	}
	use(200, sandbox, "/environments/sandbox/enforcement")
	use(403, sandbox, "/environments/production/enforcement")
	use(403, sandbox, "/users?environment=production")
	use(403, sandbox, "/users", "X-Environment", "production")
	w.as(boss, 404, "POST", "/developer-portal/api-keys/staging/generate", "")
	w.as(boss, 409, "PUT", "/environments/production/enforcement", `{"mode":"enforce"}`)
	w.as(boss, 200, "PUT", "/environments/sandbox/enforcement", `{"mode":"enforce"}`)
	if e := w.as(boss, 200, "PUT", "/environments/production/enforcement", `{"mode":"enforce"}`); e["mode"] != "enforce" || e["updated_by"] != "boss" {
		w.t.Errorf("PUT of the enforcement = %v, want enforce by boss", e)
	}
	w.as(boss, 422, "PUT", "/environments/sandbox/enforcement", `{"mode":"panic"}`)
	w.as(boss, 404, "GET", "/environments/staging/enforcement", "")
}

// TestTenantBySubdomain: the host names the tenant. A request that names another one, too, is
// refused first.
func TestTenantBySubdomain(t *testing.T) {
	w := newTown(t, dbtest.Open(t, dbtest.SQLite))
	at := func(want int, host string, more ...string) map[string]any {
		t.Helper()
		req := resttest.Call{Method: http.MethodGet, Path: "/api/v1/auth/me", Headers: bearer(w.admin, more...)}.Request()
		req.Host = host
		rec := w.Do(t, req)
		body := map[string]any{}
		if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil || rec.Code != want {
			t.Errorf("GET /auth/me of %s = %d, want %d: %s", host, rec.Code, want, rec.Body)
		}
		return body
	}
	if me := at(200, "t2.gate.example:8443"); me["tenant_id"] != "t2" {
		t.Errorf("GET /auth/me in t2 = %v", me)
	}
	if me := at(200, "gate.example"); me["tenant_id"] != string(scope.DefaultTenant) {
		t.Errorf("GET /auth/me at the base domain = %v", me)
	}
	at(200, "T2.Gate.Example", "X-Tenant-ID", "t2")
	at(404, "nowhere.gate.example")
	if no := at(400, "t2.gate.example", "X-Tenant-ID", "default"); no["error"] != "tenant_conflict" {
		t.Errorf("GET with two tenants = %v, want tenant_conflict", no)
	}
	at(400, "gate.example", "X-Tenant-ID", "t2", "X-Tenant-ID", "t2")
	at(400, "gate.example", "X-Tenant-ID", "t2,default")
	at(400, "gate.example", "X-Tenant-ID", "T2")
}
