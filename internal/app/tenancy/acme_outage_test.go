package tenancy_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/dnstest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// gateway is a proxy of an ACME server. It answers itself while fault is set.
type gateway struct {
	directory, caFile string
	fault             atomic.Pointer[func(w http.ResponseWriter)]
}

// gatewayTo starts a gateway.
func gatewayTo(t *testing.T, ca *apptest.Pebble) *gateway {
	t.Helper()
	target, err := url.Parse(ca.Directory)
	errtest.Must(t, err)
	theirs, err := os.ReadFile(ca.CAFile)
	errtest.Must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(theirs)
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host})
			r.Out.Host = r.In.Host // the ACME server uses it in its addresses
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	g := &gateway{caFile: filepath.Join(t.TempDir(), "ca.pem")}
	authority := apptest.NewCA(t)
	certificate, key := authority.Issue(t, 24*time.Hour, "localhost")
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	errtest.Must(t, err)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if fault := g.fault.Load(); fault != nil {
			(*fault)(w)
			return
		}
		forward.ServeHTTP(w, req)
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	g.directory = strings.Replace(srv.URL, "127.0.0.1", "localhost", 1) + target.Path
	errtest.Must(t, os.WriteFile(g.caFile, []byte(authority.PEM+string(theirs)), 0o600))
	return g
}

// setFault makes the gateway answer itself.
func (g *gateway) setFault(fault func(w http.ResponseWriter)) { g.fault.Store(&fault) }

// TestACMEOutage checks that while the ACME server is down, sends nonsense or refuses orders,
// tenants lose none of their orders and the next attempt comes within a day. When it is back, it
// issues the certificates.
func TestACMEOutage(t *testing.T) {
	fulltest.Only(t)
	dns, l, plain := dnstest.Start(t), apptest.NewTLSListener(t, "gate.test"), freeport.Addr(t)
	ca := apptest.StartPebble(t, plain, l.Addr, 90*24*time.Hour)
	g := gatewayTo(t, ca)
	g.setFault(func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
	s := apptest.StartTLSServerAt(t, dbtest.SQLite, plain, l, "GATEHOUSE_BASE_DOMAIN=gate.test", "GATEHOUSE_DNS_SERVER="+dns.Addr, "GATEHOUSE_ACME_DIRECTORY="+g.directory,
		"GATEHOUSE_ACME_CA_FILE="+g.caFile, "GATEHOUSE_ACME_AGREE_TERMS=true", "GATEHOUSE_ACME_TENANT_ORDERS=1")
	logOnFailure(t, s, ca)
	acme := newCompany(t, s, body{"name": "Acme"})
	const name = "shop.acme.test"
	waitForFailure := func(reason string) order {
		t.Helper()
		var o order
		apptest.Eventually(t, time.Minute, func() error {
			o = readOrder(t, acme, name)
			if why := o.Certificate.Error; o.Certificate.Status != "failing" || why == nil || !strings.Contains(*why, reason) {
				return fmt.Errorf("the certificate is %s because of %s, want failing because of %s", o.Certificate.Status, o.reason(), reason)
			}
			return nil
		})
		return o
	}
	again := func() { acme.admin.Do(t, "PUT", acme.path("/domains/"+name), body{"acme": true}).Want(200) }
	acme.admin.Do(t, "POST", acme.path("/domains"), body{"domain": name}).Want(201)
	verifyDomain(t, dns, acme, name, "acme.gate.test")
	waitForFailure("503")
	g.setFault(func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>all is well")) })
	again()
	waitForFailure("invalid character")
	g.setFault(func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "31536000")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	})
	again()
	if o := waitForFailure("429"); o.Certificate.NextAt == nil || time.Until(*o.Certificate.NextAt) > 25*time.Hour || time.Until(*o.Certificate.NextAt) < 50*time.Minute {
		t.Errorf("the certificate after Retry-After of a year is %+v, want the next order within 50 minutes to 25 hours", o.Certificate)
	}
	g.fault.Store(nil)
	again()
	waitForIssued(t, l, name, ca.Roots(t), nil)
	if o := readOrder(t, acme, name).Certificate; o.Status != "active" {
		t.Errorf("the certificate is %+v, want active", o)
	}
}
