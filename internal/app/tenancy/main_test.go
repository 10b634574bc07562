// Package tenancy_test holds the tests of the whole program about what tenants own,
// use and pay.
package tenancy_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

type body = apptest.Body

func TestMain(m *testing.M) { apptest.Main(m) }

// company is a tenant with its administrator and a key of its own.
type company struct {
	id         string
	admin, key *apptest.Client
}

// found makes a tenant.
func found(t testing.TB, s *apptest.Server, draft body) company {
	t.Helper()
	id, _ := s.Admin.Do(t, "POST", "/tenants", draft).Want(201).Get("id").(string)
	s.Admin.With("X-Tenant-ID", id).Do(t, "POST", "/users", body{
		"username": "root", "email": "root@" + id + ".example", "password": apptest.Password, "roles": []string{"admin"},
	}).Want(201)
	c := company{id: id, admin: s.Anonymous(), key: s.Anonymous()}
	c.admin.Bearer, _ = c.admin.With("X-Tenant-ID", id).Do(t, "POST", "/auth/login", body{"username": "root", "password": apptest.Password}).Want(200).Get("access_token").(string)
	c.key.APIKey, _ = c.admin.Do(t, "POST", c.at("/api-keys"), body{
		"name": "test", "scopes": []string{"tenants:read", "billing:read", "policies:write", "decisions:read"},
	}).Want(201).Get("key").(string)
	return c
}

// at is a path below the company's own.
func (c company) at(path string) string { return "/tenants/" + c.id + path }
