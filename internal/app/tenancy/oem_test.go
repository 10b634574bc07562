package tenancy_test

import (
	"strconv"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// oemOf is a client of the API for vendors, with a key.
func oemOf(s *apptest.Server, key string) *apptest.Client {
	return &apptest.Client{Base: s.URL + "/api/v2/oem", APIKey: key}
}

// registered registers a vendor.
func registered(t testing.TB, s *apptest.Server, draft body) (id string, client *apptest.Client) {
	t.Helper()
	made := s.Admin.Do(t, "POST", "/vendors", draft).Want(201)
	key, _ := made.Get("key").(string)
	id, _ = made.Get("id").(string)
	return id, oemOf(s, key)
}

// TestVendorProvisions goes through a tenant's life as a vendor does: one call makes it, a
// repetition after the server was killed gets the same answer, its credentials work until
// it is suspended, and its deletion ends them.
func TestVendorProvisions(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		id, vendor := registered(t, s, body{"name": "Widgets", "max_tenants": 2})
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
			t.Errorf("the answers differ:\n%s\n%s", made.Body, again.Body)
		}
		request["name"] = "Acme Limited"
		if code := vendor.With("Idempotency-Key", "order-1").Do(t, "POST", "/tenants", request).Want(422).Get("error"); code != "idempotency_key_reused" {
			t.Errorf("the key with another body: %v", code)
		}
		if made.Get("tenant", "region") != "eu-west-1" || made.Get("tenant", "plan_type") != "pro" || made.Get("administrator", "username") != "root" {
			t.Errorf("made %s", made.Body)
		}
		tenantID, _ := made.Get("tenant", "id").(string)
		key := s.Anonymous()
		key.APIKey, _ = member(t, made, "api_keys", "0", "key").(string)
		key.Do(t, "GET", "/policies", nil).Want(200)
		s.Anonymous().With("X-Tenant-ID", tenantID).Do(t, "POST", "/auth/login", body{"username": "root", "password": made.Get("administrator", "password")}).Want(200)
		token, _ := made.Get("bouncer", "token").(string)
		bouncer := s.Anonymous()
		bouncer.Bearer = token
		bouncer.Do(t, "GET", "/bridge/self", nil).Want(200)

		status := vendor.Do(t, "GET", "/tenants/"+tenantID+"/status", nil).Want(200)
		if status.Get("limits", "users_used") != 1.0 || member(t, status, "bouncers", "0", "name") != "edge" || status.Get("status") != "active" {
			t.Errorf("status %s", status.Body)
		}
		if changed := vendor.Do(t, "PUT", "/tenants/"+tenantID, body{"plan_type": "enterprise", "settings": body{"max_users": 7}}).Want(200); changed.Get("settings", "max_users") != 7.0 || changed.Get("settings", "max_policies") != 5.0 || changed.Get("plan_type") != "enterprise" {
			t.Errorf("changed %s", changed.Body)
		}
		vendor.Do(t, "PUT", "/tenants/"+tenantID, body{"status": "suspended"}).Want(200)
		key.Do(t, "GET", "/policies", nil).Want(403)
		vendor.Do(t, "PUT", "/tenants/"+tenantID, body{"status": "active"}).Want(200)
		key.Do(t, "GET", "/policies", nil).Want(200)
		usage := vendor.Do(t, "GET", "/usage", nil).Want(200)
		if calls, _ := member(t, usage, "usage", "0", "months", "0", "api_calls").(float64); calls < 2 || member(t, usage, "usage", "0", "tenant_id") != tenantID || member(t, usage, "usage", "0", "bouncers") != 1.0 {
			t.Errorf("usage %s", usage.Body)
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

// TestDeletedTenantsAreBounded: a vendor that makes and deletes tenants in turn does not get
// more stores than it may have tenants, beyond a few; a purge makes room.
func TestDeletedTenantsAreBounded(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		_, vendor := registered(t, s, body{"name": "Widgets", "max_tenants": 1})
		create := func() *apptest.Response {
			return vendor.Do(t, "POST", "/tenants", body{"name": "Short", "administrator": body{"email": "root@short.example"}})
		}
		var last string
		for range 20 {
			last, _ = create().Want(201).Get("tenant", "id").(string)
			vendor.Do(t, "DELETE", "/tenants/"+last, nil).Want(200)
		}
		if res := create(); res.Status != 403 || res.Get("error") != "limit_exceeded" || res.Get("limit") != 20.0 || res.Get("used") != 20.0 {
			t.Errorf("one more: %d %s", res.Status, res.Body)
		}
		vendor.Do(t, "PUT", "/tenants/"+last, body{"status": "active"}).Want(200)
		vendor.Do(t, "DELETE", "/tenants/"+last+"?hard_delete=true", nil).Want(200)
		create().Want(201)
	})
}

// TestVendorKeysDoNothingElse: the key of a vendor opens no other operation, whatever
// tenant it names, and no other credential opens those of vendors; it has its own limit
// of requests, in the headers.
func TestVendorKeysDoNothingElse(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_RATE_LIMIT=plan")
	_, vendor := registered(t, s, body{"name": "Widgets", "requests_per_hour": 6})
	elsewhere := s.Anonymous()
	elsewhere.APIKey = vendor.APIKey
	for _, path := range []string{"/auth/me", "/tenants", "/policies", "/vendors"} {
		if code := elsewhere.Do(t, "GET", path, nil).Want(403).Get("error"); code != "permission_denied" {
			t.Errorf("%s: %v", path, code)
		}
	}
	s.Admin.Do(t, "GET", "/tenants", nil).Want(200)
	platform := oemOf(s, "")
	platform.Bearer = s.Admin.Bearer
	platform.Do(t, "GET", "/tenants", nil).Want(403)
	answer := vendor.Do(t, "GET", "/tenants", nil).Want(200)
	if answer.Header.Get("X-RateLimit-Limit") != "6" || answer.Header.Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("headers %v", answer.Header)
	}
	vendor.Do(t, "GET", "/tenants", nil).Want(200)
	over := vendor.Do(t, "GET", "/tenants", nil).Want(429)
	if over.Header.Get("Retry-After") == "" || over.Get("error") != "rate_limit_exceeded" {
		t.Errorf("over the limit: %v %s", over.Header, over.Body)
	}
}

// member is a member of an answer, through objects and lists; nil where there is none.
func member(t testing.TB, r *apptest.Response, path ...string) any {
	t.Helper()
	var v any
	r.Into(&v)
	for _, p := range path {
		switch at := v.(type) {
		case map[string]any:
			v = at[p]
		case []any:
			n, err := strconv.Atoi(p)
			if err != nil || n >= len(at) {
				return nil
			}
			v = at[n]
		default:
			return nil
		}
	}
	return v
}
