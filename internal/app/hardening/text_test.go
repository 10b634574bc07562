package hardening_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// literalParameters: SQL, wildcards and escapes in texts are compared as they
// are; nothing makes a 500, and no answer shows more than was asked for.
func literalParameters(t *testing.T, r *rig) {
	p := r.tenant(t, "Literals")
	names := []string{"100%_sure", "100xysure", `back\slash`, "backslash", "quo'te", `dou"ble`, "ÄÖÜ", "percent%"}
	for _, name := range names {
		r.control(t, p, body{"name": name})
	}
	found := func(part string) (out []string) {
		for _, p := range p.key.Do(t, "GET", "/policies?name="+url.QueryEscape(part), nil).Want(200).Get("policies").([]any) {
			name, _ := p.(map[string]any)["name"].(string)
			out = append(out, name)
		}
		return out
	}
	for part, want := range map[string][]string{
		"%": {"100%_sure", "percent%"}, "_": {"100%_sure"}, "%_": {"100%_sure"}, `\`: {`back\slash`}, `\%`: nil, `k\s`: {`back\slash`}, "'": {"quo'te"}, `"`: {`dou"ble`},
		"' OR '1'='1": nil, "%' --": nil, "100": {"100%_sure", "100xysure"}, "*": nil, "?": nil, "[a-z]": nil, "BACK": {`back\slash`, "backslash"}, "äöü": {"ÄÖÜ"},
	} {
		if got := found(part); !slices.Equal(got, want) {
			t.Errorf("name=%q finds %q, want %q", part, got, want)
		}
	}
	hostile := []string{
		"' OR 1=1 --", "'; DROP TABLE policies; --", `" OR ""="`, "1) UNION SELECT 1,2,3 --", "%27%20OR%201=1", "%", "_", `\`, `\\`, "\x00", "\xff", "${jndi:ldap://x}", "../../etc/passwd",
		"{{7*7}}", "$1", "?", "null", "[]", "{}", "-1", strings.Repeat("a", 10_000), "ſ", "İ", "\u202e", "t_" + r.beta.id, "name DESC", "id; SELECT pg_sleep(9)",
	}
	for _, op := range r.secured() {
		if op.method != "GET" || op.bridge() {
			continue
		}
		for _, prm := range op.params {
			if prm.In != "query" || prm.Sch.Type != "string" {
				continue
			}
			for _, text := range hostile {
				root := r.caller(op, p)
				res := root.Do(t, "GET", op.at(p.unused)+"?"+prm.Name+"="+url.QueryEscape(text), nil)
				if res.Status >= 500 || res.Status == 200 && bytes.Contains(res.Body, []byte(r.beta.id)) {
					t.Errorf("%s with %s=%q: %d %.300s", op.id, prm.Name, text, res.Status, res.Body)
				}
				if res.Status >= 400 {
					denial(t, res, op.id)
				}
			}
		}
		// What stands in the path is text too.
		if !strings.Contains(op.path, "{") {
			continue
		}
		for _, text := range hostile {
			path := op.at(func(string) string { return url.PathEscape(text) })
			root := r.caller(op, p)
			res, err := root.Try("GET", path, nil)
			if err == nil && (res.Status >= 500 || res.Status < 400) {
				t.Errorf("%s at %q: %d %.300s", op.id, text, res.Status, res.Body)
			}
		}
	}
	for _, who := range hostile {
		res := r.s.Anonymous().With("X-Tenant-ID", p.id).Do(t, "POST", "/auth/login", body{"username": who, "password": who})
		if res.Status >= 500 || res.Status < 400 {
			t.Errorf("signing in as %q: %d %s", who, res.Status, res.Body)
		}
	}
}

// massAssignment: members that the server sets are not the caller's to set:
// ignored where the server answers them, refused where nobody knows them.
func massAssignment(t *testing.T, r *rig) {
	p := r.tenant(t, "Members")
	set := body{
		"id": 4711, "version": 99, "created_by": "somebody else", "created_at": "2001-01-01T00:00:00Z", "updated_at": "2001-01-01T00:00:00Z",
	}
	for _, c := range []struct {
		kind          string
		create        body
		ignored       body     // known members that are the server's
		refused       []string // members that the kind does not have
		get           func(id any) string
		changeIgnored bool
	}{
		{
			"policies",
			body{"name": "m", "rego_code": "package p"},
			body{"promoted_at": "2001-01-01T00:00:00Z", "deleted_at": "2001-01-01T00:00:00Z", "performance_metrics": body{"total_evaluations": 7}, "sync_errors": []any{body{"message": "x"}}},
			[]string{"tenant_id", "is_default", "verified_at", "valid"},
			func(id any) string { return fmt.Sprintf("/policies/%v", id) }, true,
		},
		{
			"resources",
			body{"name": "m", "type": "api", "path": "/m"},
			body{"auto_discovered": true, "policies": []int{1, 2, 3}},
			[]string{"tenant_id", "deleted_at", "owner_id"},
			func(id any) string { return fmt.Sprintf("/resources/%v", id) }, true,
		},
		{
			"bouncers",
			body{"name": r.name("m"), "hostname": "edge.example", "port": 8443},
			body{"status": "connected", "status_detail": "fine", "last_heartbeat": "2001-01-01T00:00:00Z", "policies_synced": 7, "cache_hit_rate": 1, "requests_per_second": 7},
			[]string{"tenant_id", "token_digest", "labels"},
			func(id any) string { return fmt.Sprintf("/bouncers/%v", id) }, true,
		},
		{
			"users",
			body{"username": "mass", "email": "mass@example.com", "password": apptest.Password},
			body{"permissions": []string{"tenants:write"}, "last_login_at": "2001-01-01T00:00:00Z", "status": "disabled"},
			[]string{"tenant_id", "password_hash", "is_admin", "platform"},
			func(id any) string { return fmt.Sprintf("/users/%v", id) }, false,
		},
	} {
		all := body{}
		for _, m := range []body{set, c.ignored, c.create} {
			for k, v := range m {
				all[k] = v
			}
		}
		if c.kind == "resources" || c.kind == "bouncers" || c.kind == "users" {
			delete(all, "created_by")
		}
		if c.kind == "users" || c.kind == "bouncers" {
			if c.kind == "users" {
				delete(all, "id") // a person's is the caller's to choose
			}
			delete(all, "version") // a bouncer's is its program's, a person has none
		}
		res := p.admin.Do(t, "POST", "/"+c.kind, all).Want(201)
		id := res.Get("id")
		got := p.admin.Do(t, "GET", c.get(id), nil).Want(200)
		for name, sent := range all {
			if _, own := c.create[name]; !own && same(got.Get(name), sent) {
				t.Errorf("%s: a create set %s to %v", c.kind, name, sent)
			}
		}
		// What was read can be sent back, and then nothing but the change's own marks differ.
		var record map[string]any
		got.Into(&record)
		for name, v := range all {
			if _, own := c.create[name]; !own && name != "status" {
				record[name] = v
			}
		}
		p.admin.Do(t, "PUT", c.get(id), record).Want(200)
		after := p.admin.Do(t, "GET", c.get(id), nil).Want(200)
		for name, sent := range record {
			_, ours := all[name]
			if _, own := c.create[name]; ours && !own && name != "status" && same(after.Get(name), sent) {
				t.Errorf("%s: an update set %s to %v", c.kind, name, sent)
			}
		}
		for _, name := range c.refused {
			more := body{name: "x"}
			for k, v := range c.create {
				more[k] = v
			}
			for method, path := range map[string]string{"POST": "/" + c.kind, "PUT": c.get(id)} {
				if method == "PUT" {
					more = body{name: "x"}
				}
				if res := r.do(t, p.admin, method, path, 422, more); !bytes.Contains(res.Body, []byte(`"/`+name+`"`)) {
					t.Errorf("%s %s does not name %s: %s", method, path, name, res.Body)
				}
			}
		}
	}
	// A tenant's own administrator sets neither limits nor plan nor status.
	tenant := "/tenants/" + p.id
	before := p.admin.Do(t, "GET", tenant, nil).Want(200)
	for _, change := range []body{
		{"settings": body{"max_policies": 5}}, {"settings": body{"max_users": nil, "max_bouncers": 1}}, {"plan_type": "enterprise"}, {"status": "suspended"},
	} {
		r.do(t, p.admin, "PUT", tenant, 422, change)
	}
	r.do(t, p.admin, "PUT", tenant, 200, body{"id": r.beta.id, "region": "eu-west-1", "created_at": "2001-01-01T00:00:00Z", "expires_at": "2001-01-01T00:00:00Z", "deleted_at": "2001-01-01T00:00:00Z", "limits": body{"policies_used": 0}, "domain": "evil.example", "custom_domain": "evil.example"})
	after := p.admin.Do(t, "GET", tenant, nil).Want(200)
	for _, name := range []string{"id", "name", "domain", "custom_domain", "region", "plan_type", "status", "created_at", "expires_at", "deleted_at", "settings"} {
		if !same(before.Get(name), after.Get(name)) {
			t.Errorf("the tenant's %s went from %v to %v", name, before.Get(name), after.Get(name))
		}
	}
}

func same(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// oddRequests: other media types, methods and spellings of a path are no way
// around a check, and no foreign page can send a credential.
func oddRequests(t *testing.T, r *rig) {
	key := r.alpha.key
	for _, op := range r.ops {
		if !op.takesJSON() || op.bridge() {
			continue
		}
		c := r.caller(op, r.alpha)
		for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "text/json", "application/json; charset=utf-16", "application/json, text/plain", "*/*", "nonsense"} {
			if base, _, _ := strings.Cut(media, ";"); base != "application/json" && slices.Contains(op.media, base) {
				continue
			}
			res := c.With("Content-Type", media).Do(t, op.method, op.at(r.alpha.valueOf), []byte("{}"))
			if res.Status != op.unsupported() {
				t.Errorf("%s with %s: %d %s", op.id, media, res.Status, res.Body)
			}
		}
	}
	for _, op := range r.secured() {
		path := op.at(r.alpha.valueOf)
		root := &apptest.Client{Base: r.s.URL}
		res := op.send(t, root.With("Origin", "https://evil.example").With("Access-Control-Request-Method", op.method), path)
		preflight := root.With("Origin", "https://evil.example").With("Access-Control-Request-Method", op.method).Do(t, "OPTIONS", path, nil)
		for _, answer := range []*apptest.Response{res, preflight} {
			if answer.Header.Get("Access-Control-Allow-Origin") != "" || answer.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s lets foreign pages in: %v", op.id, answer.Header)
			}
		}
		if op.method == "GET" {
			for _, name := range []string{"X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"} {
				if got := root.With(name, "DELETE").Do(t, "GET", path, nil); got.Status != 401 {
					t.Errorf("%s with %s: %d", op.id, name, got.Status)
				}
			}
			if got := (&apptest.Client{Base: r.s.URL, APIKey: key.APIKey}).Do(t, "TRACE", path, nil); got.Status != 405 && got.Status != 400 {
				t.Errorf("TRACE of %s: %d %s", op.id, got.Status, got.Body)
			}
		}
		r.spellings(t, op, path)
	}
	// An override of a POST does not delete.
	r.do(t, key.With("X-HTTP-Method-Override", "DELETE"), "GET", fmt.Sprintf("/policies/%d", r.alpha.policy), 200, nil)
	r.do(t, key, "GET", fmt.Sprintf("/policies/%d?_method=DELETE", r.alpha.policy), 400, nil)
	r.do(t, key, "GET", fmt.Sprintf("/policies/%d", r.alpha.policy), 200, nil)
	// A host with a dot behind it is the same host.
	r.do(t, key.With("Host", r.beta.id+"."+baseDomain+"."), "GET", "/policies", 403, nil)
	r.do(t, key.With("Host", r.alpha.id+"."+baseDomain+".:80"), "GET", "/policies", 200, nil)
	r.do(t, key.With("Host", strings.ToUpper(r.beta.id+"."+baseDomain)), "GET", "/policies", 403, nil)
}

// spellings checks that a path is served as it is written in the document or an
// alias, with one check, and by no other spelling.
func (r *rig) spellings(t *testing.T, op operation, path string) {
	t.Helper()
	rest, versioned := strings.CutPrefix(path, "/api/v1")
	if versioned {
		for _, alias := range []string{"/api" + rest, "/v1" + rest, "/api/v1/v1" + rest} {
			res := op.send(t, &apptest.Client{Base: r.s.URL}, alias)
			if res.Status != 401 {
				t.Errorf("%s without a credential: %d %s", alias, res.Status, res.Body)
			}
			if op.permission == "" {
				continue
			}
			if res := op.send(t, r.narrow(t), alias); res.Status != 403 && !passes("billing:read", op.permission) {
				t.Errorf("%s without its scope: %d %s", alias, res.Status, res.Body)
			}
		}
	}
	for _, odd := range []string{
		path + ".json", path + "/", "/" + path, strings.Replace(path, "/v1/", "//v1/", 1), strings.ToUpper(path), path + "/.", path + "/x/..",
		strings.Replace(path, "/v1/", "/v1/./", 1), strings.Replace(path, "/v1/", "/v1/../v1/", 1), strings.Replace(path, "/v1/", "/v1%2f", 1), strings.Replace(path, "/v1/", "/v1/%2e%2e/v1/", 1),
		path + "%00", path + ";x", path + "%20", strings.Replace(path, "/v1/", `/v1%5c`, 1),
	} {
		if odd == path {
			continue
		}
		req, err := http.NewRequest(op.method, r.s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = "//" + req.URL.Host + odd
		if c := r.caller(op, r.alpha); c.APIKey != "" {
			req.Header.Set("X-API-Key", c.APIKey)
		} else {
			req.Header.Set("Authorization", "Bearer "+c.Bearer)
		}
		res, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
		if err != nil {
			continue // refused before HTTP
		}
		res.Body.Close()
		// Where the last segment is a name, the spelling is another name: another tenant's, a bouncer's.
		name := strings.HasSuffix(op.path, "{tenant_id}") || strings.HasSuffix(op.path, "{partition}")
		if res.StatusCode != 404 && res.StatusCode != 400 && res.StatusCode != 405 && !((name || op.bridge()) && res.StatusCode == 403) {
			t.Errorf("%s %s: %d", op.method, odd, res.StatusCode)
		}
	}
}

// narrow is a key that may next to nothing; one for all calls.
func (r *rig) narrow(t *testing.T) *apptest.Client {
	t.Helper()
	if r.narrowest == nil {
		_, r.narrowest = r.key(t, r.alpha, body{"name": "narrow", "scopes": []string{"billing:read"}})
	}
	return r.narrowest
}
