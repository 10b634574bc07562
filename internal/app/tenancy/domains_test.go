package tenancy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/dnstest"
)

// TestTenantsByTheirDomains checks that a verified domain and a subdomain name their tenant on all
// paths, that another tenant in the same request is refused, and that an unverified domain names no
// tenant.
func TestTenantsByTheirDomains(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			dns := dnstest.Start(t)
			s := apptest.StartServer(t, backend, "GATEHOUSE_BASE_DOMAIN=gate.test", "GATEHOUSE_DNS_SERVER="+dns.Addr)
			acme, other := newCompany(t, s, body{"name": "Acme", "custom_domain": "claimed.acme.test"}), newCompany(t, s, body{"name": "Other"})
			added := acme.admin.Do(t, "POST", acme.path("/domains"), body{"domain": "Shop.Acme.test"}).Want(201)
			if added.Get("domain") != "shop.acme.test" || added.Get("status") != "pending" || added.Get("ssl_status") != "pending" || added.Get("is_default") != false {
				t.Errorf("POST /domains = %s, want the domain in lower case and pending", added.Body)
			}
			var instructions struct {
				DNS struct {
					CNAME   string `json:"cname_record"`
					TXT     string `json:"txt_record"`
					Records []struct{ Type, Name, Value string }
				} `json:"dns_instructions"`
			}
			added.Into(&instructions)
			if instructions.DNS.CNAME != "shop.acme.test CNAME acme.gate.test" || !strings.HasPrefix(instructions.DNS.TXT, "_gatehouse-challenge.shop.acme.test TXT ") {
				t.Errorf("POST /domains has the records %+v, want a CNAME and a TXT record", instructions)
			}
			at := acme.path("/domains/shop.acme.test")
			if res := acme.admin.Do(t, "POST", at+"/verify", nil); res.Status != 422 || res.Get("error") != "verification_failed" || !strings.Contains(string(res.Body), "dns.txt_record") {
				t.Errorf("verify without records = %d %s, want 422 verification_failed with the record", res.Status, res.Body)
			}
			dns.Break(true)
			if res := acme.admin.Do(t, "POST", at+"/verify", nil); res.Status != 503 || res.Get("error") != "dns_unavailable" || res.Header.Get("Retry-After") == "" {
				t.Errorf("verify without a resolver = %d %s, want 503 dns_unavailable with Retry-After", res.Status, res.Body)
			}
			dns.Break(false)
			dns.CNAME(instructions.DNS.Records[0].Name, instructions.DNS.Records[0].Value)
			dns.TXT(instructions.DNS.Records[1].Name, instructions.DNS.Records[1].Value)
			if res := acme.admin.Do(t, "POST", at+"/verify", nil).Want(200); res.Get("status") != "verified" || res.Get("ssl_status") != "active" || res.Get("verified_at") == nil {
				t.Errorf("verify with records = %s, want verified", res.Body)
			}
			var list []struct {
				Domain, Status string
				IsDefault      bool `json:"is_default"`
			}
			acme.key.Do(t, "GET", acme.path("/domains"), nil).Want(200).Into(&list)
			if fmt.Sprint(list) != "[{acme.gate.test active true} {claimed.acme.test pending false} {shop.acme.test active false}]" {
				t.Errorf("GET /domains = %v, want the subdomain, the pending and the active domain", list)
			}

			apptest.WaitForStatus(t, other.key.With("Host", "shop.acme.test"), "/policies", 403, time.Minute)
			for _, c := range []struct {
				what               string
				by                 *apptest.Client
				host, header, path string
				status             int
				code               any
			}{
				{"its key", acme.key, "shop.acme.test", "", "/policies", 200, nil},
				{"a port and a dot", acme.key, "SHOP.acme.test.:8443", "", "/policies", 200, nil},
				{"the same in a header", acme.key, "shop.acme.test", "acme", "/policies", 200, nil},
				{"the same in the query", acme.key, "shop.acme.test", "", "/policies?tenant_id=acme", 200, nil},
				{"another's key", other.key, "shop.acme.test", "", "/policies", 403, "tenant_access_denied"},
				{"another in a header", acme.key, "shop.acme.test", "other", "/policies", 400, "tenant_conflict"},
				{"another in the query", acme.key, "shop.acme.test", "", "/policies?tenant_id=other", 400, "tenant_conflict"},
				{"another's header, another's key", other.key, "shop.acme.test", "other", "/policies", 400, "tenant_conflict"},
				{"the subdomain", acme.key, "acme.gate.test", "", "/policies", 200, nil},
				{"the subdomain and another's key", other.key, "acme.gate.test", "", "/policies", 403, "tenant_access_denied"},
				{"the subdomain and another in a header", acme.key, "acme.gate.test", "other", "/policies", 400, "tenant_conflict"},
				{"a subdomain of nobody", acme.key, "never-was.gate.test", "", "/policies", 403, "tenant_access_denied"},
				{"a domain that is not verified", other.key, "claimed.acme.test", "", "/policies", 200, nil},
				{"a subdomain of a verified domain", other.key, "www.shop.acme.test", "", "/policies", 200, nil},
				{"the base domain", acme.key, "gate.test", "", "/policies", 200, nil},
				{"the platform in the domain", s.Admin, "shop.acme.test", "", "/users", 200, nil},
			} {
				by := c.by.With("Host", c.host)
				if c.header != "" {
					by = by.With("X-Tenant-ID", c.header)
				}
				by.Do(t, "GET", c.path, nil).ExpectError(c.what, c.status, c.code)
			}
			// Only a trusted proxy may name another host.
			other.key.With("X-Forwarded-Host", "shop.acme.test").Do(t, "GET", "/policies", nil).Want(200)
			// People sign in at their tenant's domain.
			signIn := body{"username": "root", "password": apptest.Password}
			person := s.WithToken(s.Anonymous().With("Host", "shop.acme.test").Do(t, "POST", "/auth/login", signIn).Want(200).Text("access_token"))
			if me := person.Do(t, "GET", "/auth/me", nil).Want(200); me.Get("email") != "root@acme.example" {
				t.Errorf("GET /auth/me = %s, want root of Acme", me.Body)
			}

			for _, c := range []struct{ method, path string }{
				{"GET", "/domains"},
				{"POST", "/domains"},
				{"GET", "/domains/shop.acme.test"},
				{"PUT", "/domains/shop.acme.test"},
				{"DELETE", "/domains/shop.acme.test"},
				{"POST", "/domains/shop.acme.test/verify"},
			} {
				var sent any
				if c.method == "POST" && c.path == "/domains" || c.method == "PUT" {
					sent = body{"domain": "shop.acme.test"}
				}
				other.admin.Do(t, c.method, acme.path(c.path), sent).ExpectError("another tenant", 403, "tenant_access_denied")
				if strings.Contains(c.path, "shop") && c.method != "PUT" {
					other.admin.Do(t, c.method, other.path(c.path), nil).Expect("the same domain below the own tenant", 404)
				}
			}
			other.admin.Do(t, "POST", other.path("/domains"), body{"domain": "shop.acme.test"}).ExpectError("another tenant's domain", 409, "already_exists")
			acme.key.Do(t, "POST", acme.path("/domains"), body{"domain": "x.acme.test"}).Want(403) // reads only
			acme.admin.Do(t, "DELETE", acme.path("/domains/acme.gate.test"), nil).Want(409)
			log := string(acme.admin.Do(t, "GET", "/audit/events", nil).Want(200).Body)
			for _, kind := range []string{"DOMAIN_ADDED", "DOMAIN_VERIFIED"} {
				if !strings.Contains(log, kind) {
					t.Errorf("the audit lacks %s", kind)
				}
			}

			s.Kill() // a verified domain stays, from the first request on
			s.Start()
			other.key.With("Host", "shop.acme.test").Do(t, "GET", "/policies", nil).Want(403)
			acme.admin.Do(t, "DELETE", at, nil).Want(200)
			apptest.WaitForStatus(t, other.key.With("Host", "shop.acme.test"), "/policies", 200, time.Minute)
			acme.admin.Do(t, "GET", at, nil).Want(404)
		})
	}
}
