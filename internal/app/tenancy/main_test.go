// Package tenancy_test tests tenants with the whole program: their data, people, limits, usage and bills.
package tenancy_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

type body = apptest.Body

func TestMain(m *testing.M) { apptest.Main(m) }

// company is a tenant with its administrator and a key.
type company struct {
	id         string
	admin, key *apptest.Client
}

// newCompany creates a tenant.
func newCompany(t testing.TB, s *apptest.Server, draft body) company {
	t.Helper()
	id := s.Admin.Do(t, "POST", "/tenants", draft).Want(201).Text("id")
	s.Admin.With("X-Tenant-ID", id).Do(t, "POST", "/users", body{
		"username": "root", "email": "root@" + id + ".example", "password": apptest.Password, "roles": []string{"admin"},
	}).Want(201)
	c := company{id: id, admin: s.LoginTo(t, id, "root", apptest.Password)}
	c.key = c.newKey(t, s, "tenants:read", "billing:read", "policies:write", "decisions:read")
	return c
}

// newKey creates a key of the company with the scopes.
func (c company) newKey(t testing.TB, s *apptest.Server, scopes ...string) *apptest.Client {
	t.Helper()
	return s.WithKey(c.admin.Do(t, "POST", c.path("/api-keys"), body{"name": "test", "scopes": scopes}).Want(201).Text("key"))
}

// path returns a path below the company's own.
func (c company) path(path string) string { return "/tenants/" + c.id + path }
