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

// order is what a domain says of its certificate.
type order struct {
	SSLExpiresAt *time.Time `json:"ssl_expires_at"`
	Certificate  struct {
		Source, Status string
		NotAfter       *time.Time `json:"not_after"`
		NextAt         *time.Time `json:"next_order_at"`
		Error          *string
	}
}

func readOrder(t testing.TB, c company, name string) order {
	t.Helper()
	var o order
	c.admin.Do(t, "GET", c.at("/domains/"+name), nil).Want(200).Into(&o)
	return o
}

// issued waits until a name gets a certificate that pool trusts, and not the one before.
func issued(t testing.TB, l *apptest.TLSListener, name string, pool *x509.CertPool, before *x509.Certificate) *x509.Certificate {
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
			return fmt.Errorf("%s gets the certificate that it had", name)
		}
		got = c
		return nil
	})
	return got
}

// explain shows what both sides logged of a test that failed.
func explain(t *testing.T, s *apptest.Server, ca *apptest.Pebble) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server:\n%s\nthe ACME server:\n%s", s.Log, ca.Log)
		}
	})
}

// TestACME: a verified domain gets a certificate from an ACME server without anybody doing
// anything, by each type of challenge, and a new one before it ends. Any replica answers the
// challenge, and all show the certificate.
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
	asked, askedPlain := first, plain // the replica that the ACME server asks
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
	explain(t, s, ca)
	acme := found(t, s, body{"name": "Acme"})
	for _, name := range []string{"shop.acme.test", "pending.acme.test", "without.acme.test"} {
		acme.admin.Do(t, "POST", acme.at("/domains"), body{"domain": name, "acme": name != "without.acme.test"}).Want(201)
	}
	verify(t, dns, acme, "shop.acme.test", "acme.gate.test")
	verify(t, dns, acme, "without.acme.test", "acme.gate.test")

	roots := ca.Roots(t)
	one := issued(t, first, "shop.acme.test", roots, nil)
	issued(t, asked, "shop.acme.test", roots, nil)
	if o := readOrder(t, acme, "shop.acme.test"); o.Certificate.Source != "acme" || o.Certificate.Status == "failing" || o.Certificate.NotAfter == nil || o.SSLExpiresAt == nil || o.Certificate.NextAt == nil || !o.Certificate.NextAt.Before(*o.Certificate.NotAfter) {
		t.Errorf("the certificate is %+v", o)
	}
	for name, want := range map[string]string{"pending.acme.test": "acme pending", "without.acme.test": "deployment active"} {
		if o := readOrder(t, acme, name).Certificate; o.Source+" "+o.Status != want {
			t.Errorf("%s has %+v, want %s", name, o, want)
		}
		if strings.Contains(ca.Log.String(), name) {
			t.Errorf("%s was ordered", name)
		}
	}
	// It is renewed, and the new one is shown everywhere.
	next := issued(t, first, "shop.acme.test", roots, one)
	issued(t, asked, "shop.acme.test", roots, one)
	if !next.NotAfter.After(one.NotAfter) {
		t.Errorf("renewed, it ends at %s and not after %s", next.NotAfter, one.NotAfter)
	}
	apptest.Eventually(t, time.Minute, func() error {
		if log := string(acme.admin.Do(t, "GET", "/audit/events", nil).Want(200).Body); !strings.Contains(log, "DOMAIN_CERTIFICATE_ISSUED") {
			return fmt.Errorf("the log: %s", log)
		}
		return nil
	})
	noKeyOnDisk(t, s.Dir)

	s.Kill() // what was issued outlives the process
	s.Start()
	issued(t, first, "shop.acme.test", roots, nil)
	acme.admin.Do(t, "DELETE", acme.at("/domains/shop.acme.test"), nil).Want(200)
	shown(t, first, "shop.acme.test", "localhost")
	shown(t, asked, "shop.acme.test", "localhost")
}

// noKeyOnDisk: no file of a data directory holds a private key in clear.
func noKeyOnDisk(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) { // removed meanwhile
			return nil
		}
		if strings.Contains(string(text), "PRIVATE KEY") {
			t.Errorf("%s holds a private key", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}
}

// TestACMEFails: an order that fails is told to the tenant and tried again, by another
// challenge; what one tenant may order is bounded, and another's orders are its own.
func TestACMEFails(t *testing.T) {
	dns, l, plain := dnstest.Start(t), apptest.NewTLSListener(t, "gate.test"), freeport.Addr(t)
	ca := apptest.StartPebble(t, plain, freeport.Addr(t), 90*24*time.Hour) // nobody answers tls-alpn-01
	s := apptest.StartTLSServerAt(t, dbtest.SQLite, plain, l, "GATEHOUSE_BASE_DOMAIN=gate.test", "GATEHOUSE_DNS_SERVER="+dns.Addr, "GATEHOUSE_ACME_DIRECTORY="+ca.Directory,
		"GATEHOUSE_ACME_CA_FILE="+ca.CAFile, "GATEHOUSE_ACME_AGREE_TERMS=true", "GATEHOUSE_ACME_TENANT_ORDERS=3")
	explain(t, s, ca)
	acme, other := found(t, s, body{"name": "Acme"}), found(t, s, body{"name": "Other"})
	wait := func(c company, name, status, reason string) {
		t.Helper()
		apptest.Eventually(t, 3*time.Minute, func() error {
			o := readOrder(t, c, name).Certificate
			if o.Status != status || (o.Error == nil) != (reason == "") || o.Error != nil && !strings.Contains(*o.Error, reason) {
				why := ""
				if o.Error != nil {
					why = *o.Error
				}
				return fmt.Errorf("the certificate is %s: %s", o.Status, why)
			}
			return nil
		})
	}
	// tells waits until a path says something: the tenant's own store has it a moment after
	// the outcome of the order is known.
	tells := func(c company, path, want string) {
		t.Helper()
		apptest.Eventually(t, time.Minute, func() error {
			if text := string(c.admin.Do(t, "GET", path, nil).Want(200).Body); !strings.Contains(text, want) {
				return fmt.Errorf("%s does not say %s: %s", path, want, text)
			}
			return nil
		})
	}
	begin := func(c company, name string) {
		t.Helper()
		c.admin.Do(t, "POST", c.at("/domains"), body{"domain": name}).Want(201)
		verify(t, dns, c, name, c.id+".gate.test")
		wait(c, name, "failing", "authorization")
	}
	again := func(c company, name string) {
		t.Helper()
		c.admin.Do(t, "PUT", c.at("/domains/"+name), body{"acme": true}).Want(200)
	}
	begin(acme, "shop.acme.test")
	if o := readOrder(t, acme, "shop.acme.test").Certificate; o.NextAt == nil || time.Until(*o.NextAt) > 2*time.Minute {
		t.Errorf("the next attempt: %+v", o)
	}
	tells(acme, acme.at("/alerts"), "domain_certificate_order")
	tells(acme, "/audit/events", "DOMAIN_CERTIFICATE_FAILED")
	shown(t, l, "shop.acme.test", "localhost")
	again(acme, "shop.acme.test") // the next attempt uses http-01
	wait(acme, "shop.acme.test", "active", "")
	issued(t, l, "shop.acme.test", ca.Roots(t), nil)
	tells(acme, acme.at("/alerts"), `"resolved_at":"2`)

	begin(acme, "www.acme.test") // the third order
	again(acme, "www.acme.test")
	wait(acme, "www.acme.test", "failing", "has used its 3 orders")
	acme.admin.Do(t, "DELETE", acme.at("/domains/www.acme.test"), nil).Want(200) // which gives none back
	acme.admin.Do(t, "POST", acme.at("/domains"), body{"domain": "www.acme.test"}).Want(201)
	verify(t, dns, acme, "www.acme.test", "acme.gate.test")
	wait(acme, "www.acme.test", "failing", "has used its 3 orders")
	begin(other, "shop.other.test")
	again(other, "shop.other.test")
	wait(other, "shop.other.test", "active", "")
	if text := string(other.admin.Do(t, "GET", other.at("/alerts"), nil).Want(200).Body); strings.Contains(text, "acme.test") {
		t.Errorf("the alerts of another tenant: %s", text)
	}
}
