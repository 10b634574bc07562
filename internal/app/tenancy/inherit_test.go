package tenancy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestIDsAreNotInherited checks that a person who gets the id of a deleted person gets none of
// their credentials, roles, documents, simulations and answers.
func TestIDsAreNotInherited(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		acme := newCompany(t, s, body{"name": "Acme"})
		person := func(name, role string) *apptest.Client {
			t.Helper()
			acme.admin.Do(t, "POST", "/users", body{"id": "emp-7", "username": name, "email": name + "@acme.example", "password": apptest.Password, "roles": []string{role}}).Want(201)
			return s.LoginTo(t, acme.id, name, apptest.Password)
		}
		first := person("ann", "admin")
		key, token, browser := s.Anonymous(), s.Anonymous(), s.Anonymous().With("Sec-Fetch-Site", "same-origin")
		key.APIKey = first.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{}).Want(201).Text("key")
		token.Bearer = first.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Text("access_token")
		begun := browser.With("X-Tenant-ID", acme.id).Do(t, "POST", "/auth/sessions", body{"username": "ann", "password": apptest.Password}).Want(200)
		cookie, _, _ := strings.Cut(begun.Header.Get("Set-Cookie"), ";")
		browser = browser.With("Cookie", cookie)

		draft := body{"name": "p", "rego_code": "package p\n\nallow if input.user.id == \"secret-input\"\n"}
		generate := func(c *apptest.Client) *apptest.Response {
			return c.With("Idempotency-Key", "k-1").Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{"name": "again"}).Want(201)
		}
		kept := generate(first)
		control := first.Do(t, "POST", "/policies", draft).Want(201).ID()
		first.Do(t, "POST", fmt.Sprintf("/pis/policies/%d/simulate?environment=sandbox", control), body{"input_json": body{"user": body{"id": "secret-input"}}}).Want(200)
		document := first.Do(t, "POST", "/ide-integration/editor-a-server", body{"action": "sync", "policy_content": "package secret_document"}).Want(200).Get("session_id")

		old := map[string]*apptest.Client{"token": first, "key": key, "token of the portal": token, "cookie": browser}
		for _, c := range old {
			c.Do(t, "GET", "/policies", nil).Want(200)
		}
		acme.admin.Do(t, "DELETE", "/users/emp-7", nil).Want(200)
		second := person("bob", "admin")
		for what, c := range old {
			c.Do(t, "GET", "/policies", nil).Expect("the deleted person's "+what, 401)
		}
		if again := generate(second); again.Header.Get("Idempotent-Replayed") != "" || again.Get("key") == kept.Get("key") {
			t.Errorf("the new person's request with the deleted person's Idempotency-Key = %s, want a new key", again.Body)
		}
		if runs := second.Do(t, "GET", "/pis/test-history", nil).Want(200); strings.Contains(string(runs.Body), "secret-input") {
			t.Errorf("GET /pis/test-history shows the deleted person's simulations: %s", runs.Body)
		}
		if res := second.Do(t, "POST", "/ide-integration/editor-a-server", body{"action": "get_context", "session_id": document}); strings.Contains(string(res.Body), "secret_document") {
			t.Errorf("the editor shows the deleted person's document: %s", res.Body)
		}
		acme.admin.Do(t, "PUT", "/users/emp-7/roles", body{"roles": []string{"viewer"}}).Want(200)
		s.Anonymous().With("X-Tenant-ID", acme.id).Do(t, "POST", "/auth/login", body{"username": "ann", "password": apptest.Password}).Expect("the deleted person's name", 401)
	})
}
