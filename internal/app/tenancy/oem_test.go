package tenancy_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// vendorClient returns a client of the API for vendors, with a key.
func vendorClient(s *apptest.Server, key string) *apptest.Client {
	return &apptest.Client{Base: s.URL + "/api/v2/oem", APIKey: key}
}

// newVendor registers a vendor.
func newVendor(t testing.TB, s *apptest.Server, draft body) (id string, client *apptest.Client) {
	t.Helper()
	made := s.Admin.Do(t, "POST", "/vendors", draft).Want(201)
	return made.Text("id"), vendorClient(s, made.Text("key"))
}

// TestVendorProvisions goes through the life of a vendor's tenant: one call creates it, a repetition
// after a kill of the server gets the same answer, its credentials are valid until it is suspended, and
// its deletion ends them.
func TestVendorProvisions(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		id, vendor := newVendor(t, s, body{"name": "Widgets", "max_tenants": 2})
		request := body{
			"name": "Acme", "plan_type": "pro", "region": "eu-west-1", "settings": body{"max_policies": 5},
			"administrator": body{"email": "root@acme.example", "username": "root"},
			"api_keys":      []body{{"name": "deploy", "scopes": []string{"policies:write", "decisions:read"}}, {"name": "check", "scopes": []string{"decisions:read"}, "environment": "production"}},
			"bouncer":       body{"name": "edge", "hostname": "edge.acme.example", "port": 8443, "environment": "production"},
		}
		made := vendor.With("Idempotency-Key", "order-1").Do(t, "POST", "/tenants", request).Want(201)
		s.Kill()
		s.Start()
		vendor.Base = s.URL + "/api/v2/oem"
		again := vendor.With("Idempotency-Key", "order-1").Do(t, "POST", "/tenants", request).Want(201)
		if string(made.Body) != string(again.Body) {
			t.Errorf("the repeated POST /tenants = %s, want %s", again.Body, made.Body)
		}
		request["name"] = "Acme Limited"
		vendor.With("Idempotency-Key", "order-1").Do(t, "POST", "/tenants", request).ExpectError("the key with another body", 422, "idempotency_key_reused")
		if made.Get("tenant", "region") != "eu-west-1" || made.Get("tenant", "plan_type") != "pro" || made.Get("administrator", "username") != "root" {
			t.Errorf("POST /tenants = %s, want the region, the plan and the administrator of the request", made.Body)
		}
		tenantID := made.Text("tenant", "id")
		key := s.WithKey(made.Text("api_keys", "0", "key"))
		key.Do(t, "GET", "/policies", nil).Want(200)
		s.Anonymous().With("X-Tenant-ID", tenantID).Do(t, "POST", "/auth/login", body{"username": "root", "password": made.Get("administrator", "password")}).Want(200)
		s.WithToken(made.Text("bouncer", "token")).Do(t, "GET", "/bridge/self", nil).Want(200)

		status := vendor.Do(t, "GET", "/tenants/"+tenantID+"/status", nil).Want(200)
		if status.Get("limits", "users_used") != 1.0 || status.Get("bouncers", "0", "name") != "edge" || status.Get("status") != "active" {
			t.Errorf("GET /tenants/%s/status = %s, want one person and the bouncer", tenantID, status.Body)
		}
		if changed := vendor.Do(t, "PUT", "/tenants/"+tenantID, body{"plan_type": "enterprise", "settings": body{"max_users": 7}}).Want(200); changed.Get("settings", "max_users") != 7.0 || changed.Get("settings", "max_policies") != 5.0 || changed.Get("plan_type") != "enterprise" {
			t.Errorf("PUT /tenants/%s = %s, want the new plan and limit, and the old limit", tenantID, changed.Body)
		}
		vendor.Do(t, "PUT", "/tenants/"+tenantID, body{"status": "suspended"}).Want(200)
		key.Do(t, "GET", "/policies", nil).Want(403)
		vendor.Do(t, "PUT", "/tenants/"+tenantID, body{"status": "active"}).Want(200)
		key.Do(t, "GET", "/policies", nil).Want(200)
		usage := vendor.Do(t, "GET", "/usage", nil).Want(200)
		if calls, _ := usage.Get("usage", "0", "months", "0", "api_calls").(float64); calls < 2 || usage.Get("usage", "0", "tenant_id") != tenantID || usage.Get("usage", "0", "bouncers") != 1.0 {
			t.Errorf("GET /usage = %s, want at least 2 calls and 1 bouncer of the tenant", usage.Body)
		}
		vendor.Do(t, "GET", "/usage?from=2026-1", nil).Want(400)
		vendor.Do(t, "DELETE", "/tenants/"+tenantID, nil).Want(200)
		key.Do(t, "GET", "/policies", nil).Want(401)
		vendor.Do(t, "DELETE", "/tenants/"+tenantID+"?hard_delete=true", nil).Want(200)
		vendor.Do(t, "GET", "/tenants/"+tenantID+"/status", nil).Want(404)

		s.Admin.Do(t, "DELETE", "/vendors/"+id, nil).Want(200)
		vendor.Do(t, "GET", "/tenants", nil).Want(401)
	})
}

// TestDeletedTenantsAreBounded checks that a vendor that creates and deletes tenants gets only a few
// more stores than its limit of tenants, and that a purge makes room.
func TestDeletedTenantsAreBounded(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		_, vendor := newVendor(t, s, body{"name": "Widgets", "max_tenants": 1})
		create := func() *apptest.Response {
			return vendor.Do(t, "POST", "/tenants", body{"name": "Short", "administrator": body{"email": "root@short.example"}})
		}
		var last string
		for range 20 {
			last = create().Want(201).Text("tenant", "id")
			vendor.Do(t, "DELETE", "/tenants/"+last, nil).Want(200)
		}
		if res := create(); res.Status != 403 || res.Get("error") != "limit_exceeded" || res.Get("limit") != 20.0 || res.Get("used") != 20.0 {
			t.Errorf("POST /tenants after 20 deleted tenants = %d %s, want 403 limit_exceeded", res.Status, res.Body)
		}
		vendor.Do(t, "PUT", "/tenants/"+last, body{"status": "active"}).Want(200)
		vendor.Do(t, "DELETE", "/tenants/"+last+"?hard_delete=true", nil).Want(200)
		create().Want(201)
	})
}

// TestVendorKeysDoNothingElse checks that a vendor's key is valid only for the operations of vendors,
// and no other credential is, and that the key has its own rate limit, in the headers.
func TestVendorKeysDoNothingElse(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_RATE_LIMIT=plan")
	_, vendor := newVendor(t, s, body{"name": "Widgets", "requests_per_hour": 6})
	elsewhere := s.WithKey(vendor.APIKey)
	for _, path := range []string{"/auth/me", "/tenants", "/policies", "/vendors"} {
		elsewhere.Do(t, "GET", path, nil).ExpectError(path, 403, "permission_denied")
	}
	s.Admin.Do(t, "GET", "/tenants", nil).Want(200)
	platform := vendorClient(s, "")
	platform.Bearer = s.Admin.Bearer
	platform.Do(t, "GET", "/tenants", nil).Want(403)
	answer := vendor.Do(t, "GET", "/tenants", nil).Want(200)
	if answer.Header.Get("X-RateLimit-Limit") != "6" || answer.Header.Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("GET /tenants has the headers %v, want a limit of 6 with 1 remaining", answer.Header)
	}
	vendor.Do(t, "GET", "/tenants", nil).Want(200)
	over := vendor.Do(t, "GET", "/tenants", nil).Want(429)
	if over.Header.Get("Retry-After") == "" || over.Get("error") != "rate_limit_exceeded" {
		t.Errorf("GET /tenants over the limit = %v %s, want rate_limit_exceeded with Retry-After", over.Header, over.Body)
	}
}
