package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
)

// checkKeyChange: an API key of the tenant acme-inc changes by the members that are sent, and a read key
// can be sent back.
func (w *town) checkKeyChange(boss, path, id string, use func(int, string, string, ...string) map[string]any) {
	w.t.Helper()
	made := w.as(boss, 201, "POST", path, `{"name":"to change","scopes":["users:read","tenants:read"]}`)
	key, one := made["key"].(string), path+"/"+made["id"].(string)
	use(200, key, "/users")
	if up := w.as(boss, 200, "PUT", one, `{"scopes":["tenants:read"]}`); up["name"] != "to change" || fmt.Sprint(up["scopes"]) != "[tenants:read]" || up["key"] != nil {
		w.t.Errorf("PUT %s = %v, want only tenants:read", one, up)
	}
	use(403, key, "/users")
	use(200, key, "/tenants")
	got := w.as(boss, 200, "GET", one, "")
	again, _ := json.Marshal(got) // what was read can be sent back
	back := w.as(boss, 200, "PUT", one, string(again))
	delete(back, "last_used_at")
	if delete(got, "last_used_at"); fmt.Sprint(back) != fmt.Sprint(got) {
		w.t.Errorf("PUT of the key as it was read = %v, want %v", back, got)
	}
	for _, bad := range []string{`{"name":null}`, `{"name":""}`, `{"scopes":[]}`, `{"scopes":null}`, `{"scopes":["x"]}`, `{"expires_at":"2001-01-01T00:00:00Z"}`, `{"nmae":"x"}`} {
		w.as(boss, 422, "PUT", one, bad)
	}
	w.as(boss, 404, "PUT", path+"/"+uuid.NewString(), `{"name":"x"}`)
	w.as(boss, 403, "PUT", "/tenants/default/api-keys/"+id, `{"name":"x"}`)
	w.as(boss, 200, "DELETE", one, "")
	w.as(boss, 404, "PUT", one, `{"name":"x"}`)
}

// TestKeyForOneEnvironment: a key is bound to the requested environment, whichever
// operation creates it.
func TestKeyForOneEnvironment(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		w := newTown(t, c)
		const path = "/tenants/default/api-keys"
		made := w.as(w.admin, 201, "POST", path, `{"name":"ci","scopes":["bouncers:read"],"environment":"sandbox"}`)
		key, _ := made["key"].(string)
		if made["environment"] != "sandbox" || !strings.HasPrefix(key, "gh_sandbox_") || made["owner"] != nil {
			t.Errorf("POST %s = %v, want a key of sandbox", path, made)
		}
		if got := w.as(w.admin, 200, "GET", path+"/"+made["id"].(string), ""); got["environment"] != "sandbox" {
			t.Errorf("GET of the key = %v, want sandbox", got)
		}
		w.call(200, resttest.Call{Method: "GET", Path: "/api/v1/environments/sandbox/enforcement", Key: key})
		w.call(403, resttest.Call{Method: "GET", Path: "/api/v1/environments/production/enforcement", Key: key})
		w.as(w.admin, 422, "POST", path, `{"name":"ci","scopes":["bouncers:read"],"environment":"staging"}`)
	})
}

// TestOneTime: the times in the answer to a change equal those of the next read.
func TestOneTime(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		w := newTown(t, c)
		var answer map[string]any
		wantSame := func(what, read string, members ...string) {
			t.Helper()
			got := w.as(w.admin, 200, "GET", read, "")
			for _, m := range members {
				at, _ := answer[m].(string)
				if at != got[m] || !strings.HasSuffix(at, "Z") {
					t.Errorf("%s: %s = %v in the answer, %v in %s", what, m, answer[m], got[m], read)
				}
			}
		}
		answer = w.as(w.admin, 201, "POST", "/users", `{"email":"ada@example.com","username":"ada"}`)
		user := "/users/" + answer["id"].(string)
		wantSame("a user made", user, "created_at")
		answer = w.as(w.admin, 200, "PUT", user, `{"department":"IT"}`)
		wantSame("a user changed", user, "created_at", "updated_at")
		answer = w.as(w.admin, 200, "PUT", user+"/roles", `{"roles":["viewer"]}`)
		wantSame("a user's roles", user, "created_at", "updated_at")

		answer = w.as(w.admin, 201, "POST", "/tenants", `{"name":"acme"}`)
		wantSame("a tenant made", "/tenants/acme", "created_at", "updated_at")
		answer = w.as(w.admin, 200, "PUT", "/tenants/acme", `{"name":"Acme"}`)
		wantSame("a tenant changed", "/tenants/acme", "created_at", "updated_at")
		answer = w.as(w.admin, 200, "DELETE", "/tenants/acme", "")
		wantSame("a tenant deleted", "/tenants/acme", "deleted_at")

		const keys = "/tenants/default/api-keys"
		end := time.Now().Add(time.Hour).In(time.FixedZone("", 2*3600)).Format("2006-01-02T15:04:05.999999999Z07:00")
		answer = w.as(w.admin, 201, "POST", keys, fmt.Sprintf(`{"name":"k","scopes":["users:read"],"expires_at":%q}`, end))
		wantSame("a key made", keys+"/"+answer["id"].(string), "created_at", "expires_at")
		answer = w.as(w.admin, 200, "PUT", keys+"/"+answer["id"].(string), fmt.Sprintf(`{"expires_at":%q}`, end))
		wantSame("a key changed", keys+"/"+answer["id"].(string), "created_at", "expires_at")
		answer = w.as(w.admin, 201, "POST", keys+"/"+answer["id"].(string)+"/rotate", "")
		wantSame("a key replaced", keys+"/"+answer["id"].(string), "created_at", "expires_at")
		answer = w.as(w.admin, 201, "POST", "/developer-portal/api-keys/sandbox/generate", fmt.Sprintf(`{"expires_at":%q}`, end))
		wantSame("a key generated", keys+"/"+answer["id"].(string), "created_at", "expires_at")

		answer = w.as(w.admin, 200, "PUT", "/environments/sandbox/enforcement", `{"mode":"enforce"}`)
		wantSame("an environment switched", "/environments/sandbox/enforcement", "updated_at")
	})
}

// TestEveryOffence: a refusal by a service names every error, like a refusal by the
// schema.
func TestEveryOffence(t *testing.T) {
	w := newTown(t, dbtest.Open(t, dbtest.SQLite))
	for _, c := range []struct {
		method, path, body string
		want               []string
	}{
		{"POST", "/tenants/default/api-keys", `{"name":"  ","scopes":["zzz"],"expires_at":"2001-01-01T00:00:00Z"}`, []string{"/expires_at", "/name", "/scopes/0"}},
		{"POST", "/developer-portal/api-keys/sandbox/generate", `{"scopes":["zzz"],"expires_at":"2001-01-01T00:00:00Z"}`, []string{"/expires_at", "/scopes/0"}},
		{"POST", "/tenants/default/api-keys", `{"name":"  ","scopes":["zzz"],"environment":"mars"}`, []string{"/environment", "/name", "/scopes/0"}},
		{"POST", "/users", `{"username":" ","email":"Bob <b@x.io>","password":"short"}`, []string{"/email", "/password", "/username"}},
		{"POST", "/tenants", `{"name":" ","domain":"not a domain","plan_type":"free"}`, []string{"/domain", "/name", "/plan_type"}},
		{"POST", "/users", `{"username":"\u00a0","email":"Bob <b@x.io>"}`, []string{"/email", "/username"}},
		{"POST", "/tenants", `{"name":" ","domain":"not a domain","custom_domain":"-"}`, []string{"/custom_domain", "/domain", "/name"}},
	} {
		var at []string
		details, _ := w.as(w.admin, 422, c.method, c.path, c.body)["details"].([]any)
		for _, d := range details {
			pointer, _ := d.(map[string]any)["pointer"].(string)
			at = append(at, pointer)
		}
		if slices.Sort(at); !slices.Equal(at, c.want) {
			t.Errorf("%s %s names %v, want %v", c.method, c.path, at, c.want)
		}
	}
}

// TestCallerWithoutPermissions: the list is present, and empty.
func TestCallerWithoutPermissions(t *testing.T) {
	w := newTown(t, dbtest.Open(t, dbtest.SQLite))
	w.as(w.admin, 201, "POST", "/users", `{"email":"ada@example.com","username":"ada","password":"correct horse"}`)
	if ps, ok := w.as(w.login("ada", "correct horse"), 200, "GET", "/auth/me", "")["permissions"].([]any); !ok || len(ps) != 0 {
		t.Errorf("permissions = %v, want an empty list", ps)
	}
}

// TestTokenNamesATenant: a request that names the default tenant differs from one that
// names none.
func TestTokenNamesATenant(t *testing.T) {
	w := newTown(t, dbtest.Open(t, dbtest.SQLite))
	w.as(w.admin, 201, "POST", "/tenants", `{"name":"acme"}`)
	key := w.as(w.admin, 201, "POST", "/tenants/acme/api-keys", `{"name":"ci","scopes":["users:read"]}`)["key"].(string)
	ask := func(want int, path string, headers ...string) map[string]any {
		t.Helper()
		return w.call(want, resttest.Call{Method: "POST", Path: "/api/v1/auth/token" + path, Body: fmt.Sprintf(`{"grant_type":"client_credentials","client_secret":%q}`, key), Headers: append(headers, "Content-Type", "application/json")})
	}
	ask(200, "")
	ask(200, "", "X-Tenant-ID", "acme")
	for _, no := range []map[string]any{ask(403, "", "X-Tenant-ID", "default"), ask(403, "?tenant_id=default"), ask(403, "", "X-Tenant-ID", "t2")} {
		if no["error"] != "tenant_access_denied" || no["error_description"] == "" {
			t.Errorf("refusal = %v, want tenant_access_denied with a description", no)
		}
	}
}
