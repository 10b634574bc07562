package decisions_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestTwinResources checks that there is one resource with the same environment, type, host, path and
// methods, also after parallel creates.
func TestTwinResources(t *testing.T) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(backend, func(t *testing.T) {
			a := apptest.StartServer(t, backend).Admin
			var all sync.WaitGroup
			got := make(chan int, 20)
			for i := range cap(got) {
				all.Go(func() {
					got <- a.Do(t, "POST", "/resources", body{"name": fmt.Sprint("r", i), "type": "api", "path": "/twin", "methods": []string{"GET", "post"}}).Status
				})
			}
			all.Wait()
			close(got)
			made := 0
			for status := range got {
				if status == 201 {
					made++
				} else if status != 409 {
					t.Errorf("POST /resources of an equal resource = %d, want 201 or 409", status)
				}
			}
			if made != 1 {
				t.Errorf("parallel creates made %d equal resources, want 1", made)
			}
			for _, other := range []body{
				{"path": "/twin", "methods": []string{}},
				{"path": "/twin", "methods": []string{"PUT", "HEAD"}},
				{"path": "/twin", "methods": []string{"GET", "POST"}, "type": "page"},
				{"path": "/twin", "methods": []string{"GET", "POST"}, "original_host": "a.example.com"},
				{"path": "/twin", "methods": []string{"GET", "POST"}, "environment": "production"},
				{"path": "/other"},
			} {
				full := body{"name": "x", "type": "api"}
				maps.Copy(full, other)
				a.Do(t, "POST", "/resources", full).Want(201)
			}
			for _, methods := range [][]string{{"GET"}, {"post"}, {"GET", "DELETE"}, {"GET", "POST", "TRACE"}, {"head"}, {"*"}} {
				no := a.Do(t, "POST", "/resources", body{"name": "z", "type": "api", "path": "/twin", "methods": methods}).Want(409)
				if no.Get("error") != "already_exists" || no.Get("resource_id") == nil {
					t.Errorf("POST /resources with the methods %v = %s, want already_exists with the resource", methods, no.Body)
				}
			}
			free := a.Do(t, "POST", "/resources", body{"name": "z", "type": "api", "path": "/twin", "methods": []string{"DELETE"}}).Want(201).ID()
			a.Do(t, "PUT", fmt.Sprintf("/resources/%d", free), body{"methods": []string{"DELETE", "GET"}}).Want(409)
			a.Do(t, "PUT", fmt.Sprintf("/resources/%d", free), body{"methods": []string{"DELETE", "PATCH"}}).Want(200)
			last := a.Do(t, "POST", "/resources", body{"name": "y", "type": "api", "path": "/last"}).Want(201).ID()
			no := a.Do(t, "PUT", fmt.Sprintf("/resources/%d", last), body{"path": "/other"}).Want(409)
			if no.Get("error") != "already_exists" || no.Get("resource_id") == nil {
				t.Errorf("%s", no.Body)
			}
			a.Do(t, "PUT", fmt.Sprintf("/resources/%d", last), body{"description": "the same place"}).Want(200)
		})
	}
}

// TestWhichMethodsDecide: of two resources with one path, a list of methods goes before
// none, and one that names HEAD before one that takes it with GET.
func TestWhichMethodsDecide(t *testing.T) {
	a := apptest.StartServer(t, dbtest.SQLite).Admin
	for name, methods := range map[string][]string{"all": {}, "read": {"GET", "OPTIONS"}, "probe": {"HEAD"}, "write": {"POST"}} {
		id := a.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": "/one", "methods": methods}).Want(201).ID()
		a.Do(t, "POST", "/policies", body{"name": name, "rego_code": "package p\n\nallow := true\n", "status": "active", "resource_id": id}).Want(201)
	}
	for method, want := range map[string]string{"GET": "read", "OPTIONS": "read", "HEAD": "probe", "POST": "write", "DELETE": "all", "PUT": "all"} {
		got := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "u"}, "resource": body{"path": "/one"}, "action": body{"method": method}}).Want(200)
		if got.Get("policy_name") != want {
			t.Errorf("the control for %s is %v, want %s", method, got.Get("policy_name"), want)
		}
	}
}

// TestTenantComesBack checks that a deleted tenant that becomes active again has its data and none of its
// credentials.
func TestTenantComesBack(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	id := s.Admin.Do(t, "POST", "/tenants", body{"name": "Back"}).Want(201).Text("id")
	at := s.Admin.With("X-Tenant-ID", id)
	at.Do(t, "POST", "/users", body{"username": "boss", "email": "boss@example.com", "password": apptest.Password, "roles": []string{"admin"}}).Want(201)
	signIn := func() *apptest.Response {
		return s.Anonymous().With("X-Tenant-ID", id).Do(t, "POST", "/auth/login", body{"username": "boss", "password": apptest.Password})
	}
	person, key, guard := s.Anonymous(), s.Anonymous(), s.Anonymous()
	person.Bearer = signIn().Want(200).Text("access_token")
	key.APIKey = person.Do(t, "POST", "/tenants/"+id+"/api-keys", body{"name": "k", "scopes": []string{"policies:read"}}).Want(201).Text("key")
	guard.Bearer = person.Do(t, "POST", "/bouncers", body{"name": "b", "hostname": "h", "port": 1}).Want(201).Text("token")
	person.Do(t, "POST", "/resources", body{"name": "kept", "type": "api", "path": "/kept"}).Want(201)
	key.Do(t, "GET", "/policies", nil).Want(200)
	guard.Do(t, "GET", "/bridge/self", nil).Want(200)
	s.Admin.Do(t, "DELETE", "/tenants/"+id, nil).Want(200)
	s.Admin.Do(t, "PUT", "/tenants/"+id, body{"status": "active"}).Want(200)
	person.Do(t, "GET", "/auth/me", nil).Want(401)
	key.Do(t, "GET", "/policies", nil).Want(401)
	guard.Do(t, "GET", "/bridge/self", nil).Want(401)
	signIn().Want(401)
	if kept := at.Do(t, "GET", "/resources", nil).Want(200); !strings.Contains(string(kept.Body), `"kept"`) {
		t.Errorf("GET /resources of the active tenant = %s, want its resource", kept.Body)
	}
}

// TestUnresolvedResource checks that for an id that no resource has, only tenant-wide controls decide in
// each API, and that without one the reason names the id.
func TestUnresolvedResource(t *testing.T) {
	a := apptest.StartServer(t, dbtest.SQLite).Admin
	id := a.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/r", "environment": "production"}).Want(201).ID()
	a.Do(t, "POST", "/policies", body{"name": "p", "rego_code": "package p\n\nallow := true\n", "environment": "production", "status": "active", "resource_id": id}).Want(201)
	ask := func(resource body) (string, string) {
		t.Helper()
		res := a.Do(t, "POST", "/decisions/evaluate?environment=production", body{"user": body{"id": "u"}, "resource": resource, "action": body{"method": "GET"}}).Want(200)
		opa := (&apptest.Client{Base: strings.TrimSuffix(a.Base, "/api/v1"), Bearer: a.Bearer}).Do(t, "POST", "/v1/data/gatehouse/decision",
			body{"input": body{"user": body{"id": "u"}, "resource": resource, "action": body{"method": "GET"}}}).Want(200).Get("result").(map[string]any)
		bulk := a.Do(t, "POST", "/decisions/evaluate/bulk", body{"decisions": []body{{"decision_id": "x", "user": body{"id": "u"}, "resource": resource}}}).Want(200).Get("results").([]any)[0].(map[string]any)
		if opa["decision"] != res.Get("decision") || bulk["decision"] != res.Get("decision") || opa["reason"] != res.Get("reason") {
			t.Errorf("the decisions on %v are %s, %v by OPA's API and %v in bulk, want the same", resource, res.Body, opa, bulk)
		}
		return fmt.Sprint(res.Get("decision")), fmt.Sprint(res.Get("reason"))
	}
	if d, _ := ask(body{"path": "/r"}); d != "PERMIT" {
		t.Errorf("the decision by path = %s, want PERMIT", d)
	}
	if d, _ := ask(body{"id": "999", "path": "/r"}); d != "PERMIT" {
		t.Errorf("the decision by path, with a text as id, = %s, want PERMIT", d)
	}
	if d, why := ask(body{"id": 999, "path": "/r", "type": "api"}); d != "DENY" || !strings.Contains(why, "999") {
		t.Errorf("the decision on an unknown id = %s %s, want DENY with the id", d, why)
	}
	a.Do(t, "POST", "/policies", body{"name": "wide", "rego_code": "package w\n\nallow := true\n", "environment": "production", "status": "active"}).Want(201)
	if d, _ := ask(body{"id": 999, "path": "/r"}); d != "PERMIT" {
		t.Errorf("the decision on an unknown id with a tenant-wide control = %s, want PERMIT", d)
	}
}
