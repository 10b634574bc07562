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

// TestDomainChecks checks that a domain that points elsewhere opens an alert and still serves, that
// one that points here again resolves the alert, and that a failing resolver changes nothing.
func TestDomainChecks(t *testing.T) {
	dns := dnstest.Start(t)
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_BASE_DOMAIN=gate.test", "GATEHOUSE_DNS_SERVER="+dns.Addr, "GATEHOUSE_DOMAIN_INTERVAL=100ms")
	acme, other := newCompany(t, s, body{"name": "Acme"}), newCompany(t, s, body{"name": "Other"})
	for _, name := range []string{"shop.acme.test", "probe.acme.test"} {
		acme.admin.Do(t, "POST", acme.path("/domains"), body{"domain": name}).Want(201)
		verifyDomain(t, dns, acme, name, "acme.gate.test")
	}
	// waitForAlert waits until the alert on a domain is none, open or resolved.
	waitForAlert := func(name, want string) {
		t.Helper()
		apptest.Eventually(t, time.Minute, func() error {
			var list []struct {
				Type       string
				Message    string
				ResolvedAt *time.Time `json:"resolved_at"`
			}
			acme.admin.Do(t, "GET", acme.path("/alerts"), nil).Want(200).Into(&list)
			got := "none"
			for _, a := range list { // newest first
				if a.Type == "domain_unresolved" && strings.HasPrefix(a.Message, name+" ") {
					if got = "open"; a.ResolvedAt != nil {
						got = "resolved"
					}
					break
				}
			}
			if got != want {
				return fmt.Errorf("the alert on %s is %s, want %s", name, got, want)
			}
			return nil
		})
	}
	serves := func() {
		t.Helper()
		apptest.WaitForStatus(t, other.key.With("Host", "shop.acme.test"), "/policies", 403, time.Minute)
	}
	serves()
	dns.CNAME("shop.acme.test", "elsewhere.test")
	waitForAlert("shop.acme.test", "open")
	serves()
	if res := acme.admin.Do(t, "GET", acme.path("/domains/shop.acme.test"), nil).Want(200); res.Get("status") != "verified" {
		t.Errorf("the domain that points elsewhere = %s, want verified", res.Body)
	}
	// While the resolver fails, neither alert changes. When it answers again, one domain points here
	// and the other does not.
	dns.Break(true)
	dns.CNAME("shop.acme.test", "acme.gate.test")
	dns.CNAME("probe.acme.test", "")
	before := dns.Asked()
	apptest.Eventually(t, time.Minute, func() error {
		if n := dns.Asked() - before; n < 8 {
			return fmt.Errorf("the resolver got %d queries, want 8", n)
		}
		return nil
	})
	waitForAlert("shop.acme.test", "open")
	waitForAlert("probe.acme.test", "none")
	dns.Break(false)
	waitForAlert("shop.acme.test", "resolved")
	waitForAlert("probe.acme.test", "open")
	serves()
}
