package tenancy_test

import (
	"crypto/x509"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/dnstest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// order has the members of a domain about its certificate.
type order struct {
	SSLExpiresAt *time.Time `json:"ssl_expires_at"`
	Certificate  struct {
		Source, Status string
		NotAfter       *time.Time `json:"not_after"`
		NextAt         *time.Time `json:"next_order_at"`
		Error          *string
	}
}

// reason returns why the last order failed.
func (o order) reason() string {
	if o.Certificate.Error == nil {
		return ""
	}
	return *o.Certificate.Error
}

func readOrder(t testing.TB, c company, name string) order {
	t.Helper()
	var o order
	c.admin.Do(t, "GET", c.path("/domains/"+name), nil).Want(200).Into(&o)
	return o
}

// waitForIssued waits until a name gets a certificate that pool trusts and that is not before.
func waitForIssued(t testing.TB, l *apptest.TLSListener, name string, pool *x509.CertPool, before *x509.Certificate) *x509.Certificate {
	t.Helper()
	var got *x509.Certificate
	apptest.Eventually(t, 3*time.Minute, func() error {
		c, err := l.Handshake(name)
		if err != nil {
			return err
		}
		if err := c.VerifyHostname(name); err != nil {
			return err
		}
		if _, err := c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: c.NotBefore.Add(time.Second), Intermediates: pool}); err != nil && c.Issuer.CommonName == "Authority of a test" {
			return err
		}
		if before != nil && c.SerialNumber.Cmp(before.SerialNumber) == 0 {
			return fmt.Errorf("%s still gets the old certificate", name)
		}
		got = c
		return nil
	})
	return got
}

// logOnFailure logs the output of both servers if the test fails.
func logOnFailure(t *testing.T, s *apptest.Server, ca *apptest.Pebble) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server:\n%s\nthe ACME server:\n%s", s.Log, ca.Log)
		}
	})
}

// TestACME checks that a verified domain automatically gets a certificate from an ACME server, with
// each type of challenge, and a new one before it expires. Any replica answers the challenge, and
// all use the certificate.
func TestACME(t *testing.T) {
	for _, c := range []struct {
		backend, method string
		full            bool
	}{
		{dbtest.SQLite, "tls-alpn-01", false},
		{dbtest.SQLite, "http-01", true},
		{dbtest.Postgres, "tls-alpn-01", true},
		{dbtest.Postgres, "http-01", true},
	} {
		t.Run(c.backend+" "+c.method, func(t *testing.T) {
			if c.full {
				fulltest.Only(t)
			}
			checkACME(t, c.backend, c.method)
		})
	}
}

func checkACME(t *testing.T, backend, method string) {
	dns, first, plain := dnstest.Start(t), apptest.NewTLSListener(t, "gate.test"), freeport.Addr(t)
	asked, askedPlain := first, plain // the replica that the ACME server calls
	if backend == dbtest.Postgres {
		asked, askedPlain = apptest.NewTLSListener(t, "gate.test"), freeport.Addr(t)
	}
	ca := apptest.StartPebble(t, askedPlain, asked.Addr, 15*time.Second)
	env := []string{
		"GATEHOUSE_BASE_DOMAIN=gate.test", "GATEHOUSE_DNS_SERVER=" + dns.Addr, "GATEHOUSE_ACME_DIRECTORY=" + ca.Directory, "GATEHOUSE_ACME_CA_FILE=" + ca.CAFile,
		"GATEHOUSE_ACME_AGREE_TERMS=true", "GATEHOUSE_ACME_EMAIL=ops@gate.test", "GATEHOUSE_ACME_CHALLENGES=" + method, "GATEHOUSE_ACME_TENANT_ORDERS=1000",
	}
	s := apptest.StartTLSServerAt(t, backend, plain, first, env...)
	if asked != first {
		s.TLSReplica(t, askedPlain, asked, env...)
	}
	logOnFailure(t, s, ca)
	acme := newCompany(t, s, body{"name": "Acme"})
	for _, name := range []string{"shop.acme.test", "pending.acme.test", "without.acme.test"} {
		acme.admin.Do(t, "POST", acme.path("/domains"), body{"domain": name, "acme": name != "without.acme.test"}).Want(201)
	}
	verifyDomain(t, dns, acme, "shop.acme.test", "acme.gate.test")
	verifyDomain(t, dns, acme, "without.acme.test", "acme.gate.test")

	roots := ca.Roots(t)
	one := waitForIssued(t, first, "shop.acme.test", roots, nil)
	waitForIssued(t, asked, "shop.acme.test", roots, nil)
	if o := readOrder(t, acme, "shop.acme.test"); o.Certificate.Source != "acme" || o.Certificate.Status == "failing" || o.Certificate.NotAfter == nil || o.SSLExpiresAt == nil || o.Certificate.NextAt == nil || !o.Certificate.NextAt.Before(*o.Certificate.NotAfter) {
		t.Errorf("the certificate is %+v, want one from ACME with the next order before its end", o)
	}
	for name, want := range map[string]string{"pending.acme.test": "acme pending", "without.acme.test": "deployment active"} {
		if o := readOrder(t, acme, name).Certificate; o.Source+" "+o.Status != want {
			t.Errorf("the certificate of %s is %+v, want %s", name, o, want)
		}
		if strings.Contains(ca.Log.String(), name) {
			t.Errorf("the ACME server got an order for %s, want none", name)
		}
	}
	// The server renews the certificate, and all replicas use the new one.
	next := waitForIssued(t, first, "shop.acme.test", roots, one)
	waitForIssued(t, asked, "shop.acme.test", roots, one)
	if !next.NotAfter.After(one.NotAfter) {
		t.Errorf("the renewed certificate ends at %s, want after %s", next.NotAfter, one.NotAfter)
	}
	apptest.Eventually(t, time.Minute, func() error {
		if log := string(acme.admin.Do(t, "GET", "/audit/events", nil).Want(200).Body); !strings.Contains(log, "DOMAIN_CERTIFICATE_ISSUED") {
			return fmt.Errorf("the audit = %s, want DOMAIN_CERTIFICATE_ISSUED", log)
		}
		return nil
	})
	wantNoKeyOnDisk(t, s.Dir)

	s.Kill() // the certificate outlives the process
	s.Start()
	waitForIssued(t, first, "shop.acme.test", roots, nil)
	acme.admin.Do(t, "DELETE", acme.path("/domains/shop.acme.test"), nil).Want(200)
	waitForCertificate(t, first, "shop.acme.test", "localhost")
	waitForCertificate(t, asked, "shop.acme.test", "localhost")
}

// wantNoKeyOnDisk checks that no file of a data directory has a private key in clear.
func wantNoKeyOnDisk(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) { // deleted meanwhile
			return nil
		}
		if strings.Contains(string(text), "PRIVATE KEY") {
			t.Errorf("the file %s has a private key in clear", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("the data directory has %d files (%v), want some", files, err)
	}
}

// TestACMEFails checks that a failed order is shown to the tenant and repeated with another
// challenge, and that a tenant has a limit of orders that other tenants do not share.
func TestACMEFails(t *testing.T) {
	dns, l, plain := dnstest.Start(t), apptest.NewTLSListener(t, "gate.test"), freeport.Addr(t)
	ca := apptest.StartPebble(t, plain, freeport.Addr(t), 90*24*time.Hour) // no server answers tls-alpn-01
	s := apptest.StartTLSServerAt(t, dbtest.SQLite, plain, l, "GATEHOUSE_BASE_DOMAIN=gate.test", "GATEHOUSE_DNS_SERVER="+dns.Addr, "GATEHOUSE_ACME_DIRECTORY="+ca.Directory,
		"GATEHOUSE_ACME_CA_FILE="+ca.CAFile, "GATEHOUSE_ACME_AGREE_TERMS=true", "GATEHOUSE_ACME_TENANT_ORDERS=3")
	logOnFailure(t, s, ca)
	acme, other := newCompany(t, s, body{"name": "Acme"}), newCompany(t, s, body{"name": "Other"})
	waitForStatus := func(c company, name, status, reason string) {
		t.Helper()
		apptest.Eventually(t, 3*time.Minute, func() error {
			o := readOrder(t, c, name).Certificate
			if o.Status != status || (o.Error == nil) != (reason == "") || o.Error != nil && !strings.Contains(*o.Error, reason) {
				return fmt.Errorf("the certificate is %s because of %q, want %s because of %q", o.Status, order{Certificate: o}.reason(), status, reason)
			}
			return nil
		})
	}
	// waitForText waits until an answer has a text. The tenant's own store gets the outcome of an
	// order a moment later.
	waitForText := func(c company, path, want string) {
		t.Helper()
		apptest.Eventually(t, time.Minute, func() error {
			if text := string(c.admin.Do(t, "GET", path, nil).Want(200).Body); !strings.Contains(text, want) {
				return fmt.Errorf("GET %s = %s, want %s", path, text, want)
			}
			return nil
		})
	}
	addFailing := func(c company, name string) {
		t.Helper()
		c.admin.Do(t, "POST", c.path("/domains"), body{"domain": name}).Want(201)
		verifyDomain(t, dns, c, name, c.id+".gate.test")
		waitForStatus(c, name, "failing", "authorization")
	}
	again := func(c company, name string) {
		t.Helper()
		c.admin.Do(t, "PUT", c.path("/domains/"+name), body{"acme": true}).Want(200)
	}
	addFailing(acme, "shop.acme.test")
	if o := readOrder(t, acme, "shop.acme.test").Certificate; o.NextAt == nil || time.Until(*o.NextAt) > 2*time.Minute {
		t.Errorf("the certificate after a failed order is %+v, want the next order within 2 minutes", o)
	}
	waitForText(acme, acme.path("/alerts"), "domain_certificate_order")
	waitForText(acme, "/audit/events", "DOMAIN_CERTIFICATE_FAILED")
	waitForCertificate(t, l, "shop.acme.test", "localhost")
	again(acme, "shop.acme.test") // the next attempt uses http-01
	waitForStatus(acme, "shop.acme.test", "active", "")
	waitForIssued(t, l, "shop.acme.test", ca.Roots(t), nil)
	waitForText(acme, acme.path("/alerts"), `"resolved_at":"2`)

	addFailing(acme, "www.acme.test") // the third order
	again(acme, "www.acme.test")
	waitForStatus(acme, "www.acme.test", "failing", "has used its 3 orders")
	acme.admin.Do(t, "DELETE", acme.path("/domains/www.acme.test"), nil).Want(200) // which returns no order
	acme.admin.Do(t, "POST", acme.path("/domains"), body{"domain": "www.acme.test"}).Want(201)
	verifyDomain(t, dns, acme, "www.acme.test", "acme.gate.test")
	waitForStatus(acme, "www.acme.test", "failing", "has used its 3 orders")
	addFailing(other, "shop.other.test")
	again(other, "shop.other.test")
	waitForStatus(other, "shop.other.test", "active", "")
	if text := string(other.admin.Do(t, "GET", other.path("/alerts"), nil).Want(200).Body); strings.Contains(text, "acme.test") {
		t.Errorf("GET /alerts shows another tenant's domain: %s", text)
	}
}
