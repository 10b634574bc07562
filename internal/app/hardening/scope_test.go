package hardening_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

var scopeCases = []hardeningCase{
	{"E1 the other environment", otherEnvironment},
	{"E2 each operation with each scope", scopeMatrix},
	{"E2 each operation with each role and kind of key", permissionMatrix},
	{"E3 more than one's own rights", escalation},
	{"E4 promotion", promotion},
}

// bound creates a key that is valid in one environment.
func (r *fixture) bound(t *testing.T, p *party, env string, scopes ...string) *apptest.Client {
	t.Helper()
	c := r.s.WithKey(p.admin.Do(t, "POST", "/developer-portal/api-keys/"+env+"/generate", body{"scopes": scopes}).Want(200, 201).Text("key"))
	tokenOf(c) // now, because it writes a session
	return c
}

// otherEnvironment checks that for a key of one environment, the objects of the other do not exist,
// and that it may not name the other.
func otherEnvironment(t *testing.T, r *fixture) {
	a := r.alpha.admin
	production := r.bound(t, r.alpha, "production", everyScope()...)
	sandbox := r.bound(t, r.alpha, "sandbox", everyScope()...)
	inProduction := a.Do(t, "POST", "/resources", body{"name": "p", "type": "api", "path": "/e1", "environment": "production"}).Want(201).ID()
	r.wantUnchanged(t, func() {
		for _, op := range r.withSecurity() {
			if strings.Contains(op.path, "{policy_id}") || strings.Contains(op.path, "{resource_id}") || strings.Contains(op.path, "{bouncer_id}") || strings.Contains(op.path, "{pep_id}") {
				got := op.send(t, withRequestID(production), op.pathWith(r.alpha.valueOf))
				never := op.send(t, withRequestID(production), op.pathWith(r.alpha.unused))
				if got.Status != never.Status || !bytes.Equal(got.Body, never.Body) || got.Status < 400 || got.Status == 403 && op.id != "promote-policy" && len(op.callers) == 0 || got.Status >= 500 {
					t.Errorf("%s on a sandbox id with a production key = %d %s, want the refusal of an unknown id: %d %s", op.id, got.Status, got.Body, never.Status, never.Body)
				}
			}
			if op.path == "/v1/data/gatehouse/decision" || op.bridge() {
				continue
			}
			path := op.pathWith(r.alpha.valueOf)
			for _, res := range []*apptest.Response{
				op.send(t, sandbox, path+"?environment=production"),
				op.send(t, sandbox.With("X-Environment", "production"), path),
			} {
				res.Expect(op.id+" in production with a sandbox key", 403)
				checkRefusal(t, res, op.id)
			}
			if strings.Contains(op.path, "{environment}") {
				path := strings.Replace(op.path, "{environment}", "production", 1)
				op.send(t, sandbox, path).Expect("with a sandbox key", 403, 404, 422)
			}
		}
		for _, c := range []struct {
			method, path string
			body         any
			want         int
		}{
			{"POST", "/policies", body{"name": "x", "rego_code": "package p", "environment": "production"}, 403},
			{"POST", "/resources", body{"name": "x", "type": "api", "path": "/x", "environment": "production"}, 403},
			{"POST", "/bouncers", body{"name": "x", "hostname": "edge.example", "port": 8443, "environment": "production"}, 403},
			{"POST", "/developer-portal/api-keys/production/generate", body{"scopes": []string{"policies:read"}}, 403},
			{"PUT", "/environments/production/enforcement", body{"mode": "shadow"}, 403},
			{"GET", "/environments/production/enforcement", nil, 403},
			{"GET", fmt.Sprintf("/resources/%d", inProduction), nil, 404},
			{"POST", "/decisions/evaluate?environment=production", body{"user": body{"id": "u"}}, 403},
			{"POST", "/tenants/" + r.alpha.id + "/api-keys", body{"name": "both", "scopes": []string{"policies:read"}}, 403},
			{"GET", "/policies?environment=sandbox&environment=production", nil, 400},
		} {
			r.do(t, sandbox, c.method, c.path, c.want, c.body)
		}
		r.do(t, sandbox.With("X-Environment", "sandbox"), "GET", "/policies?environment=production", 400, nil)
		r.do(t, r.alpha.key, "GET", "/policies?environment=PRODUCTION", 400, nil)
		r.do(t, r.alpha.key, "GET", fmt.Sprintf("/policies/%d?environment=production", r.alpha.policy), 404, nil)
	})
	// Without an environment, a decision is made in the key's, not in production.
	r.do(t, sandbox, "POST", "/decisions/evaluate", 200, body{"user": body{"id": "u"}})
	for _, p := range sandbox.Do(t, "GET", "/resources", nil).Want(200).Get("resources").([]any) {
		if env := p.(map[string]any)["environment"]; env != "sandbox" {
			t.Errorf("GET /resources with a sandbox key lists an object of %v", env)
		}
	}
}

// permits reports whether one scope is enough for a permission.
func permits(scope, permission string) bool {
	area, verb, _ := strings.Cut(permission, ":")
	return scope == permission || verb == "read" && scope == area+":write" || verb == "edit" && scope == area+":write"
}

// scopeMatrix calls each operation with each single scope, as a key and as a token made with it.
// Only the scope in the document permits it.
func scopeMatrix(t *testing.T, r *fixture) {
	p := r.tenant(t, "Matrix")
	ops := r.withSecurity()
	var clients []*apptest.Client
	scopes := everyScope()
	for _, scope := range scopes {
		clients = append(clients, r.keyAndToken(t, p, scope)...)
	}
	for _, op := range ops {
		if op.permission == "" {
			continue
		}
		if !slices.Contains(scopes, op.permission) && op.permission != "resources:edit" {
			t.Errorf("%s needs the permission %q, which no scope has", op.id, op.permission)
		}
		path := op.pathWith(p.unused)
		for i, c := range clients {
			scope := scopes[i/2]
			path := path
			if op.id == "delete-tenant" && permits(scope, op.permission) { // it deletes its own tenant
				doomed := r.tenant(t, "Doomed")
				c, path = r.keyAndToken(t, doomed, scope)[i%2], op.pathWith(doomed.unused)
			}
			res := op.send(t, c, path)
			open := op.takes("api_key") && permits(scope, op.permission) && (op.also == "" || permits(scope, op.also))
			wrong := open == (res.Status == 401 || res.Status == 403) || res.Status >= 500
			if wrong {
				t.Errorf("%s (%s) with the scope %s = %d %s, admitted should be %v", op.id, op.permission, scope, res.Status, res.Body, open)
			}
			if res.Status >= 400 {
				checkRefusal(t, res, op.id)
			}
		}
		op.send(t, r.s.Anonymous(), path).Expect(op.id+" without a credential", 401)
		r.checkWrongMethod(t, op, p, path)
	}
	r.do(t, p.key, "GET", "/no/such/thing", 404, nil)
	r.do(t, p.key, "GET", "/policies/", 404, nil)
}

// keyAndToken returns a key with one scope, and a client with a token that was made with it.
func (r *fixture) keyAndToken(t *testing.T, p *party, scope string) []*apptest.Client {
	t.Helper()
	_, key := r.key(t, p, body{"name": scope, "scopes": []string{scope}})
	token := r.s.WithToken(key.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Text("access_token"))
	return []*apptest.Client{key, token}
}

// checkWrongMethod checks that a method that a path does not have is answered 405 with Allow.
func (r *fixture) checkWrongMethod(t *testing.T, op operation, p *party, path string) {
	t.Helper()
	var allowed []string
	for _, other := range r.ops {
		if other.path == op.path {
			allowed = append(allowed, other.method)
		}
	}
	root := *p.key
	root.Base = r.s.URL
	for _, verb := range []string{"PATCH", "PUT", "POST", "DELETE", "TRACE", "FOO"} {
		if slices.Contains(allowed, verb) {
			continue
		}
		res := root.Do(t, verb, path, nil)
		if res.Status != 405 || !strings.Contains(res.Header.Get("Allow"), op.method) {
			t.Errorf("%s %s = %d with Allow %q, want 405 with %s: %s", verb, path, res.Status, res.Header.Get("Allow"), op.method, res.Body)
		}
		return // one method for each path is enough
	}
}

// escalation checks that nobody can create a credential or a person, or make a change, beyond their
// own rights.
func escalation(t *testing.T, r *fixture) {
	p := r.tenant(t, "Ladder")
	r.addObjects(t, p)
	keys := "/tenants/" + p.id + "/api-keys"
	soon := "2099-01-01T00:00:00Z"
	_, narrow := r.key(t, p, body{"name": "narrow", "scopes": []string{"tenants:write", "users:write", "policies:write"}, "expires_at": soon})
	viewerID, viewer := r.newPerson(t, p, "viewer")
	adminID := p.admin.Do(t, "GET", "/auth/me", nil).Want(200).Text("id")
	policy := fmt.Sprintf("/policies/%d", p.policy)
	r.wantUnchanged(t, func() {
		for _, c := range []struct {
			who          *apptest.Client
			method, path string
			want         int
			body         body
		}{
			{narrow, "POST", keys, 403, body{"name": "wider", "scopes": []string{"audit:read"}}},
			{narrow, "POST", keys, 403, body{"name": "wider", "scopes": []string{"policies:read", "bouncers:write"}}},
			{narrow, "POST", keys, 403, body{"name": "longer", "scopes": []string{"policies:read"}}},
			{narrow, "POST", keys, 403, body{"name": "longer", "scopes": []string{"policies:read"}, "expires_at": "2100-01-01T00:00:00Z"}},
			{narrow, "POST", keys, 422, body{"name": "all", "scopes": []string{"*"}}},
			{narrow, "POST", keys, 422, body{"name": "all", "scopes": []string{"*:*"}}},
			{narrow, "POST", keys, 422, body{"name": "all", "scopes": []string{"policies:admin"}}},
			{narrow, "POST", keys, 422, body{"name": "all", "scopes": []string{"POLICIES:READ"}}},
			{narrow, "POST", keys, 422, body{"name": "all", "scopes": []string{"resources:edit"}}},
			{narrow, "POST", keys, 422, body{"name": "none", "scopes": []string{}}},
			{narrow, "POST", keys, 422, body{"name": "past", "scopes": []string{"policies:read"}, "expires_at": "2001-01-01T00:00:00Z"}},
			{narrow, "POST", keys, 422, body{"name": "env", "scopes": []string{"policies:read"}, "tenant_id": r.beta.id}},
			{narrow, "POST", "/tenants/" + r.beta.id + "/api-keys", 403, body{"name": "theirs", "scopes": []string{"policies:read"}}},
			{narrow, "POST", "/developer-portal/token", 403, body{"scopes": []string{"audit:read"}}},
			{narrow, "POST", "/developer-portal/api-keys/sandbox/generate", 403, body{"scopes": []string{"audit:read"}}},
			{narrow, "POST", "/users", 403, body{"username": "x", "email": "x@example.com", "password": apptest.Password, "roles": []string{"admin"}}},
			{narrow, "POST", "/users", 403, body{"username": "x", "email": "x@example.com", "password": apptest.Password, "roles": []string{"Admin"}}},
			{narrow, "POST", "/users", 403, body{"username": "x", "email": "x@example.com", "password": apptest.Password, "roles": []string{" operator "}}},
			{narrow, "PUT", "/users/" + viewerID + "/roles", 403, body{"roles": []string{"admin"}}},
			{narrow, "PUT", "/users/" + viewerID, 403, body{"roles": []string{"auditor"}}},
			{narrow, "PUT", "/users/" + adminID, 403, body{"password": "taken over 123456"}},
			{narrow, "PUT", "/users/" + adminID, 403, body{"email": "mine@example.com"}},
			{narrow, "DELETE", "/users/" + adminID, 403, nil},
			{viewer, "PUT", "/users/" + viewerID + "/roles", 403, body{"roles": []string{"admin"}}},
			{viewer, "PUT", "/users/" + viewerID, 403, body{"roles": []string{"admin"}}},
			{viewer, "POST", keys, 403, body{"name": "k", "scopes": []string{"policies:read"}}},
			{viewer, "POST", "/developer-portal/api-keys/production/generate", 403, body{"scopes": []string{"policies:write"}}},
			{viewer, "POST", policy + "/promote", 403, body{}},
			{p.admin, "PUT", policy, 422, body{"environment": "production"}},
			{p.admin, "PUT", policy, 409, body{"status": "inactive"}},
			{p.admin, "PUT", policy, 422, body{"status": "deployed"}},
			{p.admin, "PUT", "/tenants/" + p.id, 422, body{"plan_type": "enterprise"}},
			{p.admin, "PUT", "/tenants/" + p.id, 422, body{"status": "deleted"}},
			{p.admin, "PUT", "/tenants/" + p.id, 422, body{"settings": body{"max_policies": 100000}}},
			{p.admin, "DELETE", "/tenants/" + p.id + "?hard_delete=true", 403, nil},
		} {
			r.do(t, c.who, c.method, c.path, c.want, c.body)
		}
	})
	portal := viewer.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{}).Want(201)
	mine := r.s.WithKey(portal.Text("key"))
	r.do(t, mine, "GET", "/policies", 200, nil)
	r.do(t, mine, "POST", "/policies", 403, body{"name": "x", "rego_code": "package p"})
	// A person's key has the person's permissions, also after they were reduced.
	p.admin.Do(t, "PUT", "/users/"+viewerID+"/roles", body{"roles": []string{"nothing in particular"}}).Want(200)
	r.do(t, mine, "GET", "/policies", 403, nil)
}

// promotion checks that a promotion that is not allowed is refused with a reason and changes
// nothing.
func promotion(t *testing.T, r *fixture) {
	p := r.tenant(t, "Promoters")
	failing := r.newControl(t, p, body{"test_cases": []body{{"name": "no", "input": body{}, "expected": false}}})
	deleted := r.newControl(t, p, nil)
	p.admin.Do(t, "DELETE", fmt.Sprintf("/policies/%d", deleted), nil).Want(200)
	done := r.newControl(t, p, body{"environment": "production"})
	good := r.newControl(t, p, nil)
	production, sandbox := r.bound(t, p, "production", everyScope()...), r.bound(t, p, "sandbox", everyScope()...)
	promote := func(id int64) string { return fmt.Sprintf("/policies/%d/promote", id) }
	r.wantUnchanged(t, func() {
		failed := r.do(t, p.admin, "POST", promote(failing), 422, body{})
		if !bytes.Contains(failed.Body, []byte("tests_failed")) {
			t.Errorf("promotion of a control with failing tests = %s, want tests_failed", failed.Body)
		}
		r.do(t, p.admin, "POST", promote(deleted), 404, body{})
		r.do(t, p.admin, "POST", promote(done), 409, body{})
		r.do(t, p.admin, "POST", promote(good)+"?environment=production", 404, body{})
		// A key of one environment cannot promote to the other.
		r.do(t, production, "POST", promote(good), 403, body{})
		r.do(t, sandbox, "POST", promote(good), 403, body{})
		r.do(t, p.admin.With("If-Match", `"7"`), "POST", promote(good), 412, body{})
		r.do(t, p.admin, "POST", promote(good), 422, body{"environment": "production", "skip_tests": true})
	})
	// Four eyes: nobody approves their own promotion. An approver must be a person of this tenant
	// who could promote the control.
	p.admin.Do(t, "PUT", "/tenants/"+p.id, body{"settings": body{"four_eyes": true}}).Want(200)
	second, author := r.newPerson(t, p, "policy_author")
	auditor, _ := r.newPerson(t, p, "auditor", "resource_manager")
	disabled, _ := r.newPerson(t, p, "admin")
	p.admin.Do(t, "PUT", "/users/"+disabled, body{"status": "disabled"}).Want(200)
	foreign, _ := r.newPerson(t, r.beta, "admin")
	r.wantUnchanged(t, func() {
		for _, approver := range []string{"", "root", "ROOT", "root@" + p.id + ".example", "nobody at all", auditor, disabled, foreign} {
			r.do(t, p.admin, "POST", promote(good), 422, body{"approver": approver})
		}
		r.do(t, author, "POST", promote(good), 422, body{"approver": second})
	})
	r.do(t, p.admin, "POST", promote(good), 200, body{"approver": second})
}
