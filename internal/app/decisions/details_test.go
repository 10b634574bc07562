package decisions_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestTwinResources: of resources with equal environment, type, host, path and
// methods there is one, also when they are made at once.
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
					t.Errorf("status %d", status)
				}
			}
			if made != 1 {
				t.Errorf("%d equal resources were made", made)
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
				for k, v := range other {
					full[k] = v
				}
				a.Do(t, "POST", "/resources", full).Want(201)
			}
			for _, methods := range [][]string{{"GET"}, {"post"}, {"GET", "DELETE"}, {"GET", "POST", "TRACE"}, {"head"}, {"*"}} {
				no := a.Do(t, "POST", "/resources", body{"name": "z", "type": "api", "path": "/twin", "methods": methods}).Want(409)
				if no.Get("error") != "already_exists" || no.Get("resource_id") == nil {
					t.Errorf("%v: %s", methods, no.Body)
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
			t.Errorf("%s is decided by %v, want %s", method, got.Get("policy_name"), want)
		}
	}
}

// TestTenantComesBack: a deleted tenant that is made active again has its data
// and none of its credentials.
func TestTenantComesBack(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	id, _ := s.Admin.Do(t, "POST", "/tenants", body{"name": "Back"}).Want(201).Get("id").(string)
	at := s.Admin.With("X-Tenant-ID", id)
	at.Do(t, "POST", "/users", body{"username": "boss", "email": "boss@example.com", "password": apptest.Password, "roles": []string{"admin"}}).Want(201)
	signIn := func() *apptest.Response {
		return s.Anonymous().With("X-Tenant-ID", id).Do(t, "POST", "/auth/login", body{"username": "boss", "password": apptest.Password})
	}
	person, key, guard := s.Anonymous(), s.Anonymous(), s.Anonymous()
	person.Bearer, _ = signIn().Want(200).Get("access_token").(string)
	key.APIKey, _ = person.Do(t, "POST", "/tenants/"+id+"/api-keys", body{"name": "k", "scopes": []string{"policies:read"}}).Want(201).Get("key").(string)
	guard.Bearer, _ = person.Do(t, "POST", "/bouncers", body{"name": "b", "hostname": "h", "port": 1}).Want(201).Get("token").(string)
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
		t.Errorf("its data: %s", kept.Body)
	}
}

// TestUnresolvedResource: a number that no resource has decides alone, whoever
// asks; tenant-wide controls decide then, and without one the reason names it.
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
			t.Errorf("%v: evaluate %s, OPA's query %v, bulk %v", resource, res.Body, opa, bulk)
		}
		return fmt.Sprint(res.Get("decision")), fmt.Sprint(res.Get("reason"))
	}
	if d, _ := ask(body{"path": "/r"}); d != "PERMIT" {
		t.Errorf("by path: %s", d)
	}
	if d, _ := ask(body{"id": "999", "path": "/r"}); d != "PERMIT" {
		t.Errorf("by path, with a text as id: %s", d)
	}
	if d, why := ask(body{"id": 999, "path": "/r", "type": "api"}); d != "DENY" || !strings.Contains(why, "999") {
		t.Errorf("by a number that is not there: %s %s", d, why)
	}
	a.Do(t, "POST", "/policies", body{"name": "wide", "rego_code": "package w\n\nallow := true\n", "environment": "production", "status": "active"}).Want(201)
	if d, _ := ask(body{"id": 999, "path": "/r"}); d != "PERMIT" {
		t.Errorf("with a tenant-wide control: %s", d)
	}
}
