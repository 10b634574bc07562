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
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// gateway stands before an ACME server, and answers for it as long as fault is set.
type gateway struct {
	directory, caFile string
	fault             atomic.Pointer[func(w http.ResponseWriter)]
}

// gatewayTo starts a gateway.
func gatewayTo(t *testing.T, ca *apptest.Pebble) *gateway {
	t.Helper()
	target, err := url.Parse(ca.Directory)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(ca.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(theirs)
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host})
			r.Out.Host = r.In.Host // the ACME server names its addresses by it
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	g := &gateway{caFile: filepath.Join(t.TempDir(), "ca.pem")}
	authority := apptest.NewCA(t)
	certificate, key := authority.Issue(t, 24*time.Hour, "localhost")
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(g.caFile, []byte(authority.PEM+string(theirs)), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

// answers has the gateway answer in the ACME server's place.
func (g *gateway) answers(fault func(w http.ResponseWriter)) { g.fault.Store(&fault) }

// TestACMEOutage: while the ACME server is down, answers nonsense or is full, tenants lose none of
// the orders that they may make, and nobody makes the server wait for a year. When it is back, the
// certificates come.
func TestACMEOutage(t *testing.T) {
	fulltest.Only(t)
	dns, l, plain := dnstest.Start(t), apptest.NewTLSListener(t, "gate.test"), freeport.Addr(t)
	ca := apptest.StartPebble(t, plain, l.Addr, 90*24*time.Hour)
	g := gatewayTo(t, ca)
	g.answers(func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
	s := apptest.StartTLSServerAt(t, dbtest.SQLite, plain, l, "GATEHOUSE_BASE_DOMAIN=gate.test", "GATEHOUSE_DNS_SERVER="+dns.Addr, "GATEHOUSE_ACME_DIRECTORY="+g.directory,
		"GATEHOUSE_ACME_CA_FILE="+g.caFile, "GATEHOUSE_ACME_AGREE_TERMS=true", "GATEHOUSE_ACME_TENANT_ORDERS=1")
	explain(t, s, ca)
	acme := found(t, s, body{"name": "Acme"})
	const name = "shop.acme.test"
	fails := func(reason string) order {
		t.Helper()
		var o order
		apptest.Eventually(t, time.Minute, func() error {
			o = readOrder(t, acme, name)
			if why := o.Certificate.Error; o.Certificate.Status != "failing" || why == nil || !strings.Contains(*why, reason) {
				return fmt.Errorf("the certificate is %s, %v", o.Certificate.Status, why)
			}
			return nil
		})
		return o
	}
	again := func() { acme.admin.Do(t, "PUT", acme.at("/domains/"+name), body{"acme": true}).Want(200) }
	acme.admin.Do(t, "POST", acme.at("/domains"), body{"domain": name}).Want(201)
	verify(t, dns, acme, name, "acme.gate.test")
	fails("503")
	g.answers(func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>all is well")) })
	again()
	fails("invalid character")
	g.answers(func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "31536000")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	})
	again()
	if o := fails("429"); o.Certificate.NextAt == nil || time.Until(*o.Certificate.NextAt) > 25*time.Hour || time.Until(*o.Certificate.NextAt) < 50*time.Minute {
		t.Errorf("after a limit without an end the certificate is %+v", o.Certificate)
	}
	g.fault.Store(nil)
	again()
	issued(t, l, name, ca.Roots(t), nil)
	if o := readOrder(t, acme, name).Certificate; o.Status != "active" {
		t.Errorf("the certificate is %+v", o)
	}
}
