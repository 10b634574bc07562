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

// TestDomainChecks: a domain that leads elsewhere opens an alert and keeps serving; one that
// leads here again resolves it; a resolver that fails changes nothing.
func TestDomainChecks(t *testing.T) {
	dns := dnstest.Start(t)
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_BASE_DOMAIN=gate.test", "GATEHOUSE_DNS_SERVER="+dns.Addr, "GATEHOUSE_DOMAIN_INTERVAL=100ms")
	acme, other := found(t, s, body{"name": "Acme"}), found(t, s, body{"name": "Other"})
	for _, name := range []string{"shop.acme.test", "probe.acme.test"} {
		acme.admin.Do(t, "POST", acme.at("/domains"), body{"domain": name}).Want(201)
		verify(t, dns, acme, name, "acme.gate.test")
	}
	// alert waits until the alert on a domain is open or over.
	alert := func(name, want string) {
		t.Helper()
		apptest.Eventually(t, time.Minute, func() error {
			var list []struct {
				Type       string
				Message    string
				ResolvedAt *time.Time `json:"resolved_at"`
			}
			acme.admin.Do(t, "GET", acme.at("/alerts"), nil).Want(200).Into(&list)
			got := "none"
			for _, a := range list { // the newest first
				if a.Type == "domain_unresolved" && strings.HasPrefix(a.Message, name+" ") {
					if got = "open"; a.ResolvedAt != nil {
						got = "over"
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
		apptest.Eventually(t, time.Minute, func() error {
			if res := other.key.With("Host", "shop.acme.test").Do(t, "GET", "/policies", nil); res.Status != 403 {
				return fmt.Errorf("the domain names nobody: %d", res.Status)
			}
			return nil
		})
	}
	serves()
	dns.CNAME("shop.acme.test", "elsewhere.test")
	alert("shop.acme.test", "open")
	serves()
	if res := acme.admin.Do(t, "GET", acme.at("/domains/shop.acme.test"), nil).Want(200); res.Get("status") != "verified" {
		t.Errorf("it lost something: %s", res.Body)
	}
	// While the resolver fails, neither alert moves. That it was asked meanwhile shows when it
	// answers again: by then, one domain leads here and the other one does not.
	dns.Break(true)
	dns.CNAME("shop.acme.test", "acme.gate.test")
	dns.CNAME("probe.acme.test", "")
	before := dns.Asked()
	apptest.Eventually(t, time.Minute, func() error {
		if n := dns.Asked() - before; n < 8 {
			return fmt.Errorf("the resolver was asked %d times", n)
		}
		return nil
	})
	alert("shop.acme.test", "open")
	alert("probe.acme.test", "none")
	dns.Break(false)
	alert("shop.acme.test", "over")
	alert("probe.acme.test", "open")
	serves()
}
