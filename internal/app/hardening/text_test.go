package hardening_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// literalParameters checks that SQL, wildcards and escapes in a text are compared literally, cause
// no 500, and show no more than the caller asked for.
func literalParameters(t *testing.T, r *fixture) {
	p := r.tenant(t, "Literals")
	names := []string{"100%_sure", "100xysure", `back\slash`, "backslash", "quo'te", `dou"ble`, "ÄÖÜ", "percent%"}
	for _, name := range names {
		r.newControl(t, p, body{"name": name})
	}
	search := func(part string) (out []string) {
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
		if got := search(part); !slices.Equal(got, want) {
			t.Errorf("GET /policies?name=%q finds %q, want %q", part, got, want)
		}
	}
	hostile := []string{
		"' OR 1=1 --", "'; DROP TABLE policies; --", `" OR ""="`, "1) UNION SELECT 1,2,3 --", "%27%20OR%201=1", "%", "_", `\`, `\\`, "\x00", "\xff", "${jndi:ldap://x}", "../../etc/passwd",
		"{{7*7}}", "$1", "?", "null", "[]", "{}", "-1", strings.Repeat("a", 10_000), "ſ", "İ", "\u202e", "t_" + r.beta.id, "name DESC", "id; SELECT pg_sleep(9)",
	}
	for _, op := range r.withSecurity() {
		if op.method != "GET" || op.bridge() {
			continue
		}
		for _, prm := range op.params {
			if prm.In != "query" || prm.Sch.Type != "string" {
				continue
			}
			for _, text := range hostile {
				root := r.callerFor(op, p)
				res := root.Do(t, "GET", op.pathWith(p.unused)+"?"+prm.Name+"="+url.QueryEscape(text), nil)
				if res.Status >= 500 || res.Status == 200 && bytes.Contains(res.Body, []byte(r.beta.id)) {
					t.Errorf("%s with %s=%q = %d %.300s, want no 500 and nothing of another tenant", op.id, prm.Name, text, res.Status, res.Body)
				}
				if res.Status >= 400 {
					checkRefusal(t, res, op.id)
				}
			}
		}
		// A text in the path is literal too.
		if !strings.Contains(op.path, "{") {
			continue
		}
		for _, text := range hostile {
			path := op.pathWith(func(string) string { return url.PathEscape(text) })
			root := r.callerFor(op, p)
			res, err := root.Try("GET", path, nil)
			if err == nil && (res.Status >= 500 || res.Status < 400) {
				t.Errorf("%s at %q = %d %.300s, want a refusal", op.id, text, res.Status, res.Body)
			}
		}
	}
	for _, who := range hostile {
		res := r.s.Anonymous().With("X-Tenant-ID", p.id).Do(t, "POST", "/auth/login", body{"username": who, "password": who})
		if res.Status >= 500 || res.Status < 400 {
			t.Errorf("sign-in as %q = %d %s, want a refusal", who, res.Status, res.Body)
		}
	}
}

// massAssignment checks that a caller cannot set the members that the server sets. Members of an
// answer are ignored in a request, and unknown members are refused.
func massAssignment(t *testing.T, r *fixture) {
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
			maps.Copy(all, m)
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
			if _, own := c.create[name]; !own && equalJSON(got.Get(name), sent) {
				t.Errorf("POST /%s set %s to %v, want it ignored", c.kind, name, sent)
			}
		}
		// A client may send back what it read. That sets nothing that the server sets.
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
			if _, own := c.create[name]; ours && !own && name != "status" && equalJSON(after.Get(name), sent) {
				t.Errorf("PUT %s set %s to %v, want it ignored", c.get(id), name, sent)
			}
		}
		for _, name := range c.refused {
			more := body{name: "x"}
			maps.Copy(more, c.create)
			for method, path := range map[string]string{"POST": "/" + c.kind, "PUT": c.get(id)} {
				if method == "PUT" {
					more = body{name: "x"}
				}
				if res := r.do(t, p.admin, method, path, 422, more); !bytes.Contains(res.Body, []byte(`"/`+name+`"`)) {
					t.Errorf("%s %s with %s = %s, want its pointer", method, path, name, res.Body)
				}
			}
		}
	}
	// A tenant's own administrator may set neither limits nor plan nor status.
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
		if !equalJSON(before.Get(name), after.Get(name)) {
			t.Errorf("PUT %s changed %s from %v to %v", tenant, name, before.Get(name), after.Get(name))
		}
	}
}

// equalJSON reports whether two values have the same JSON.
func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// oddRequests checks that no media type, method or spelling of a path avoids a check, and that no
// page of another origin can send a credential.
func oddRequests(t *testing.T, r *fixture) {
	key := r.alpha.key
	for _, op := range r.ops {
		if !op.takesJSON() || op.bridge() {
			continue
		}
		c := r.callerFor(op, r.alpha)
		for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "text/json", "application/json; charset=utf-16", "application/json, text/plain", "*/*", "nonsense"} {
			if base, _, _ := strings.Cut(media, ";"); base != "application/json" && slices.Contains(op.media, base) {
				continue
			}
			c.With("Content-Type", media).Do(t, op.method, op.pathWith(r.alpha.valueOf), []byte("{}")).Expect(op.id+" with "+media, op.unsupported())
		}
	}
	for _, op := range r.withSecurity() {
		path := op.pathWith(r.alpha.valueOf)
		root := &apptest.Client{Base: r.s.URL}
		res := op.send(t, root.With("Origin", "https://evil.example").With("Access-Control-Request-Method", op.method), path)
		preflight := root.With("Origin", "https://evil.example").With("Access-Control-Request-Method", op.method).Do(t, "OPTIONS", path, nil)
		for _, answer := range []*apptest.Response{res, preflight} {
			if answer.Header.Get("Access-Control-Allow-Origin") != "" || answer.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s admits pages of other origins: %v", op.id, answer.Header)
			}
		}
		if op.method == "GET" {
			for _, name := range []string{"X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"} {
				root.With(name, "DELETE").Do(t, "GET", path, nil).Expect(op.id+" with "+name, 401)
			}
			(&apptest.Client{Base: r.s.URL, APIKey: key.APIKey}).Do(t, "TRACE", path, nil).Expect(op.id, 405, 400)
		}
		r.checkSpellings(t, op, path)
	}
	// A header or a parameter that overrides the method does not delete.
	r.do(t, key.With("X-HTTP-Method-Override", "DELETE"), "GET", fmt.Sprintf("/policies/%d", r.alpha.policy), 200, nil)
	r.do(t, key, "GET", fmt.Sprintf("/policies/%d?_method=DELETE", r.alpha.policy), 400, nil)
	r.do(t, key, "GET", fmt.Sprintf("/policies/%d", r.alpha.policy), 200, nil)
	// A host with a trailing dot is the same host.
	r.do(t, key.With("Host", r.beta.id+"."+baseDomain+"."), "GET", "/policies", 403, nil)
	r.do(t, key.With("Host", r.alpha.id+"."+baseDomain+".:80"), "GET", "/policies", 200, nil)
	r.do(t, key.With("Host", strings.ToUpper(r.beta.id+"."+baseDomain)), "GET", "/policies", 403, nil)
}

// checkSpellings checks that a path is served under its name in the document and its aliases, with
// the same checks, and under no other spelling.
func (r *fixture) checkSpellings(t *testing.T, op operation, path string) {
	t.Helper()
	rest, versioned := strings.CutPrefix(path, "/api/v1")
	if versioned {
		for _, alias := range []string{"/api" + rest, "/v1" + rest, "/api/v1/v1" + rest} {
			res := op.send(t, &apptest.Client{Base: r.s.URL}, alias)
			res.Expect("without a credential", 401)
			if op.permission == "" {
				continue
			}
			if res := op.send(t, r.narrowKey(t), alias); res.Status != 403 && !permits("billing:read", op.permission) {
				t.Errorf("%s %s without its scope = %d %s, want 403", op.method, alias, res.Status, res.Body)
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
		errtest.Must(t, err)
		req.URL.Opaque = "//" + req.URL.Host + odd
		if c := r.callerFor(op, r.alpha); c.APIKey != "" {
			req.Header.Set("X-API-Key", c.APIKey)
		} else {
			req.Header.Set("Authorization", "Bearer "+c.Bearer)
		}
		res, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
		if err != nil {
			continue // refused before HTTP
		}
		res.Body.Close()
		// If the last segment is a name, the spelling is that of another tenant or bouncer.
		name := strings.HasSuffix(op.path, "{tenant_id}") || strings.HasSuffix(op.path, "{partition}")
		if res.StatusCode != 404 && res.StatusCode != 400 && res.StatusCode != 405 && !((name || op.bridge()) && res.StatusCode == 403) {
			t.Errorf("%s %s = %d, want 400, 404 or 405", op.method, odd, res.StatusCode)
		}
	}
}

// narrowKey returns a key that may do almost nothing. All calls share it.
func (r *fixture) narrowKey(t *testing.T) *apptest.Client {
	t.Helper()
	if r.narrowest == nil {
		_, r.narrowest = r.key(t, r.alpha, body{"name": "narrow", "scopes": []string{"billing:read"}})
	}
	return r.narrowest
}
