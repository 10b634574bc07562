package tenancy_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/dnstest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// overTLS returns the client with requests to a host over TLS.
func overTLS(s *apptest.Server, by *apptest.Client, host string) *apptest.Client {
	cp := *by
	at := s.At(host)
	cp.Base, cp.Over = at.Base, at.Over
	return &cp
}

// verifyDomain adds the DNS records of a domain and verifies it.
func verifyDomain(t testing.TB, dns *dnstest.Server, c company, name, target string) {
	t.Helper()
	var d struct {
		DNS struct {
			Records []struct{ Name, Value string }
		} `json:"dns_instructions"`
	}
	c.admin.Do(t, "GET", c.path("/domains/"+name), nil).Want(200).Into(&d)
	dns.CNAME(name, target)
	dns.TXT(d.DNS.Records[1].Name, d.DNS.Records[1].Value)
	c.admin.Do(t, "POST", c.path("/domains/"+name+"/verify"), nil).Want(200)
}

// waitForCertificate waits until a name gets the certificate with a common name.
func waitForCertificate(t testing.TB, l *apptest.TLSListener, name, want string) {
	t.Helper()
	apptest.Eventually(t, time.Minute, func() error {
		c, err := l.Handshake(name)
		if err != nil {
			return err
		}
		if c.Subject.CommonName != want {
			return fmt.Errorf("%q gets the certificate of %q, want that of %q", name, c.Subject.CommonName, want)
		}
		return nil
	})
}

// waitForOther returns a function that waits until a name gets another certificate than now.
func waitForOther(t *testing.T, l *apptest.TLSListener, name string) (wait func()) {
	t.Helper()
	before, err := l.Handshake(name)
	errtest.Must(t, err)
	return func() {
		t.Helper()
		apptest.Eventually(t, time.Minute, func() error {
			if now, err := l.Handshake(name); err != nil || now.SerialNumber.Cmp(before.SerialNumber) == 0 {
				return fmt.Errorf("%s still gets the old certificate (%v)", name, err)
			}
			return nil
		})
	}
}

// TestTLS checks that the server terminates TLS, that each verified domain gets its tenant's
// certificate and every other name the deployment's, and that a request must be for the name of its
// connection.
func TestTLS(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) { checkTLS(t, backend) })
	}
}

func checkTLS(t *testing.T, backend string) {
	dns, l := dnstest.Start(t), apptest.NewTLSListener(t, "gate.test", "*.gate.test")
	s := apptest.StartTLSServer(t, backend, l, "GATEHOUSE_BASE_DOMAIN=gate.test", "GATEHOUSE_DNS_SERVER="+dns.Addr)
	acme, other := newCompany(t, s, body{"name": "Acme"}), newCompany(t, s, body{"name": "Other"})
	add := func(c company, name string, more body) *apptest.Response {
		certificate, key := l.Authority.Issue(t, 240*time.Hour, name)
		draft := body{"domain": name, "ssl_certificate": certificate, "ssl_private_key": key}
		maps.Copy(draft, more)
		return c.admin.Do(t, "POST", c.path("/domains"), draft).Want(201)
	}
	added := add(acme, "shop.acme.test", body{"hsts_max_age": 300})
	if added.Get("hsts_max_age") != 300.0 || added.Get("acme") != true || !strings.Contains(string(added.Body), `"source":"uploaded","status":"pending"`) {
		t.Errorf("POST /domains = %s, want an uploaded, pending certificate and HSTS", added.Body)
	}
	add(acme, "www.acme.test", nil)
	add(acme, "pending.acme.test", nil)
	add(other, "shop.other.test", nil)
	acme.admin.Do(t, "POST", acme.path("/domains"), body{"domain": "bare.acme.test"}).Want(201)
	for _, name := range []string{"shop.acme.test", "www.acme.test", "bare.acme.test"} {
		verifyDomain(t, dns, acme, name, "acme.gate.test")
	}
	verifyDomain(t, dns, other, "shop.other.test", "other.gate.test")
	for _, name := range []string{"shop.acme.test", "www.acme.test", "shop.other.test"} {
		waitForCertificate(t, l, name, name)
	}
	waitForCertificate(t, l, "SHOP.Acme.Test", "shop.acme.test")
	// A name without its own certificate looks like an unknown name.
	for _, name := range []string{"", "nobody.test", "pending.acme.test", "bare.acme.test", "acme.gate.test", "never-was.gate.test", "x.shop.acme.test"} {
		waitForCertificate(t, l, name, "localhost")
	}
	old := &tls.Config{ServerName: "localhost", RootCAs: l.Authority.Pool, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10} //nolint:gosec // it must be refused
	if c, err := tls.Dial("tcp", l.Addr, old); err == nil {
		c.Close()
		t.Error("the server accepts TLS 1.1, want a refusal")
	}
	t.Run("protocols", func(t *testing.T) { checkProtocols(t, s, acme) })
	t.Run("tenants", func(t *testing.T) { checkAuthorities(t, s, acme, other) })
	t.Run("plain", func(t *testing.T) { checkPlain(t, s, l) })
	t.Run("changes", func(t *testing.T) { checkChanges(t, s, l, acme) })
}

// checkProtocols checks requests and decisions over HTTP/2 and HTTP/1.1, and HSTS for the domain that
// has it.
func checkProtocols(t *testing.T, s *apptest.Server, acme company) {
	decide := body{"user": body{"id": "u"}, "action": body{"type": "read"}, "resource": body{"type": "doc", "path": "/x"}}
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		over := s.TLS.Transport(s.TLS.Authority.Pool)
		over.ForceAttemptHTTP2 = version == "HTTP/2.0"
		client := http.Client{Transport: over, Timeout: time.Minute}
		for host, want := range map[string]string{"shop.acme.test": "max-age=300", "www.acme.test": "", "acme.gate.test": ""} {
			req, err := http.NewRequest("GET", "https://"+host+"/api/v1/policies", nil)
			errtest.Must(t, err)
			req.Header.Set("X-API-Key", acme.key.APIKey)
			res, err := client.Do(req)
			errtest.Must(t, err)
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.StatusCode != 200 || res.Proto != version || res.Header.Get("Strict-Transport-Security") != want {
				t.Errorf("GET /policies of %s = %d over %s with HSTS %q, want 200 over %s with %q", host, res.StatusCode, res.Proto, res.Header.Get("Strict-Transport-Security"), version, want)
			}
		}
		by := *acme.key
		by.Base, by.Over = "https://shop.acme.test/api/v1", over
		for range 3 { // on one connection
			if res := by.Do(t, "POST", "/decisions/evaluate", decide).Want(200); res.Get("decision") == nil || res.Header.Get("Strict-Transport-Security") != "max-age=300" {
				t.Errorf("a decision over %s = %s with HSTS %q, want a decision with HSTS", version, res.Body, res.Header.Get("Strict-Transport-Security"))
			}
		}
		over.CloseIdleConnections()
	}
	// The cookie of a browser's session is for TLS only.
	page := s.At("shop.acme.test").With("Origin", "https://shop.acme.test")
	res := page.Do(t, "POST", "/auth/sessions", body{"username": "root", "password": apptest.Password}).Want(200, 201)
	if cookie := res.Header.Get("Set-Cookie"); !strings.HasPrefix(cookie, "__Host-gatehouse=") || !strings.Contains(cookie, "Secure") {
		t.Errorf("POST /auth/sessions sets %q, want a secure cookie of the host", cookie)
	}
}

// checkAuthorities checks which names name a tenant over TLS.
func checkAuthorities(t *testing.T, s *apptest.Server, acme, other company) {
	for _, c := range []struct {
		what            string
		by              *apptest.Client
		sni, host, head string
		status          int
		code            any
	}{
		{"its key", acme.key, "shop.acme.test", "", "", 200, nil},
		{"its key and its name", acme.key, "shop.acme.test", "", "acme", 200, nil},
		{"another's key", other.key, "shop.acme.test", "", "", 403, "tenant_access_denied"},
		{"another in a header", acme.key, "shop.acme.test", "", "other", 400, "tenant_conflict"},
		{"the subdomain", acme.key, "acme.gate.test", "", "", 200, nil},
		{"the subdomain and another's key", other.key, "acme.gate.test", "", "", 403, "tenant_access_denied"},
		{"a second domain of the tenant", acme.key, "shop.acme.test", "www.acme.test", "", 200, nil},
		{"a port and a dot", acme.key, "shop.acme.test", "SHOP.acme.test.:8443", "", 200, nil},
		{"the tenant's subdomain", acme.key, "shop.acme.test", "acme.gate.test", "", 200, nil},
		{"the tenant's domain without a certificate", acme.key, "shop.acme.test", "bare.acme.test", "", 200, nil},
		{"another tenant's domain", other.key, "shop.acme.test", "shop.other.test", "", 421, "misdirected_request"},
		{"another tenant's subdomain", other.key, "shop.acme.test", "other.gate.test", "", 421, "misdirected_request"},
		{"the base domain on a tenant's connection", acme.key, "shop.acme.test", "gate.test", "", 421, "misdirected_request"},
		{"nobody's name on a tenant's connection", acme.key, "shop.acme.test", "nobody.test", "", 421, "misdirected_request"},
		{"a tenant's domain on the deployment's connection", acme.key, "gate.test", "shop.acme.test", "", 421, "misdirected_request"},
		{"a tenant's domain on another subdomain's connection", acme.key, "other.gate.test", "shop.acme.test", "", 421, "misdirected_request"},
		{"another subdomain on one wildcard", other.key, "acme.gate.test", "other.gate.test", "", 200, nil},
		{"a domain without a certificate on the deployment's connection", acme.key, "gate.test", "bare.acme.test", "", 200, nil},
	} {
		by := overTLS(s, c.by, c.sni)
		if c.host != "" {
			by = by.With("Host", c.host)
			delete(by.Header, "Host") // HTTP/2 has it as :authority
			by.Header["Host"] = []string{c.host}
		}
		if c.head != "" {
			by = by.With("X-Tenant-ID", c.head)
		}
		by.Do(t, "GET", "/policies", nil).ExpectError(c.what, c.status, c.code)
	}
}

// checkPlain checks that without TLS, the server serves only health and redirects.
func checkPlain(t *testing.T, s *apptest.Server, l *apptest.TLSListener) {
	_, port, _ := strings.Cut(l.Addr, ":")
	plain := &apptest.Client{Base: s.URL}
	for _, path := range []string{"/health", "/api/v1/health", "/health/ready", "/health/live"} {
		plain.Do(t, "GET", path, nil).Want(200)
	}
	for _, c := range []struct{ method, path, host, to string }{
		{"GET", "/api/v1/policies?limit=3", "shop.acme.test", "https://shop.acme.test:" + port + "/api/v1/policies?limit=3"},
		{"POST", "/api/v1/auth/login", "gate.test:8080", "https://gate.test:" + port + "/api/v1/auth/login"},
		{"POST", "/api/v1/decisions/evaluate", "gate.test", "https://gate.test:" + port + "/api/v1/decisions/evaluate"},
		{"GET", "/", "[::1]:80", "https://[::1]:" + port + "/"},
		{"GET", "//evil.test/x", "gate.test", "https://gate.test:" + port + "//evil.test/x"},
		{"GET", "/.well-known/acme-challenge/abc", "shop.acme.test", "https://shop.acme.test:" + port + "/.well-known/acme-challenge/abc"},
	} {
		res := plain.With("Host", c.host).Do(t, c.method, c.path, nil)
		if res.Status != 308 || res.Header.Get("Location") != c.to || res.Header.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s %s of %s = %d to %q, want 308 to %q", c.method, c.path, c.host, res.Status, res.Header.Get("Location"), c.to)
		}
	}
}

// checkChanges replaces and removes certificates of a tenant, and replaces the deployment's own.
func checkChanges(t *testing.T, s *apptest.Server, l *apptest.TLSListener, acme company) {
	session := tls.NewLRUClientSessionCache(8)
	connect := func(name string) (resumed bool) {
		t.Helper()
		d := &tls.Config{ServerName: name, RootCAs: l.Authority.Pool, ClientSessionCache: session, NextProtos: []string{"http/1.1"}}
		c, err := tls.Dial("tcp", l.Addr, d)
		errtest.Must(t, err)
		defer c.Close()
		// The session's ticket comes with the answer.
		fmt.Fprintf(c, "GET /health/live HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name)
		errtest.Must(t, errtest.Of(io.Copy(io.Discard, c)))
		return c.ConnectionState().DidResume
	}
	connect("shop.acme.test")
	if !connect("shop.acme.test") {
		t.Error("the second connection did not resume the session")
	}
	certificate, key := l.Authority.Issue(t, 240*time.Hour, "shop.acme.test")
	waitForShop := waitForOther(t, l, "shop.acme.test")
	path := acme.path("/domains/shop.acme.test")
	acme.admin.Do(t, "PUT", path, body{"ssl_certificate": certificate, "ssl_private_key": key}).Want(200)
	waitForShop()
	if connect("shop.acme.test") {
		t.Error("the server resumed a session of the old certificate")
	}

	// The server does not use a suspended tenant's certificate.
	s.Admin.Do(t, "PUT", "/tenants/acme", body{"status": "suspended"}).Want(200)
	waitForCertificate(t, l, "shop.acme.test", "localhost")
	s.Admin.Do(t, "PUT", "/tenants/acme", body{"status": "active"}).Want(200)
	waitForCertificate(t, l, "shop.acme.test", "shop.acme.test")

	off := acme.admin.Do(t, "PUT", path, body{"ssl_certificate": nil, "ssl_private_key": nil, "hsts_max_age": 0}).Want(200)
	if off.Get("hsts_max_age") != 0.0 || off.Get("ssl_expires_at") != nil {
		t.Errorf("PUT /domains without a certificate = %s, want no HSTS and no end", off.Body)
	}
	waitForCertificate(t, l, "shop.acme.test", "localhost")
	waitForCertificate(t, l, "www.acme.test", "www.acme.test")
	acme.admin.Do(t, "DELETE", acme.path("/domains/www.acme.test"), nil).Want(200)
	waitForCertificate(t, l, "www.acme.test", "localhost")

	waitForOwn := waitForOther(t, l, "gate.test")
	l.Replace(t, 240*time.Hour, "gate.test", "*.gate.test")
	waitForOwn()
	s.Anonymous().Do(t, "GET", "/health", nil).Want(200)
	checkEnd(t, s, l)
}

// checkEnd: operators are warned before the deployment's own certificate ends, and of a certificate in
// its files that is not valid now, by an alert, until it is replaced. Clients never get that one. The
// state of the decision log does not change.
func checkEnd(t *testing.T, s *apptest.Server, l *apptest.TLSListener) {
	over := l.Transport(l.Authority.Pool)
	over.TLSClientConfig.InsecureSkipVerify = true // a client must be able to ask when the certificate has ended
	admin := *s.Admin
	admin.Over = over
	host := admin
	host.Base = strings.TrimSuffix(admin.Base, "/api/v1")
	alerts := func() string {
		var list []struct {
			Type, Severity, Message string
			Resolved                *string `json:"resolved_at"`
		}
		admin.Do(t, "GET", "/tenants/default/alerts", nil).Want(200).Into(&list)
		out := ""
		for _, a := range list {
			if a.Resolved == nil && a.Type == "deployment_certificate" {
				out += a.Severity + ": " + a.Message
			}
		}
		return out
	}
	left := func() string {
		for line := range strings.Lines(string(host.Do(t, "GET", "/metrics", nil).Want(200).Body)) {
			if of, found := strings.CutPrefix(line, "gatehouse_tls_certificate_left_seconds "); found {
				return of
			}
		}
		return "absent"
	}
	if got := alerts(); got != "" || strings.HasPrefix(left(), "-") || left() == "absent" {
		t.Fatalf("a certificate of ten days: %q, %s s are left", got, left())
	}
	for _, c := range []struct {
		from, until time.Duration
		want        string
	}{
		{-time.Hour, 5 * time.Minute, "warning: the deployment's own certificate ends at"},
		{-time.Hour, -time.Minute, "warning: the certificate in the files ended at"},
		{24 * time.Hour, 240 * time.Hour, "warning: the certificate in the files is not valid before"},
	} {
		l.ReplaceBetween(t, c.from, c.until, "gate.test")
		apptest.Eventually(t, time.Minute, func() error {
			if got := alerts(); !strings.Contains(got, c.want) || strings.HasPrefix(left(), "-") {
				return fmt.Errorf("a certificate from %v to %v: %q, %s s are left, want %s", c.from, c.until, got, left(), c.want)
			}
			return nil
		})
		if leaf, err := l.Handshake("gate.test"); err != nil || time.Now().After(leaf.NotAfter) || time.Now().Before(leaf.NotBefore) {
			t.Errorf("a certificate from %v to %v: clients get one that is not valid (%v)", c.from, c.until, err)
		}
		l.Replace(t, 240*time.Hour, "gate.test", "*.gate.test")
		apptest.Eventually(t, time.Minute, func() error {
			if got := alerts(); got != "" {
				return fmt.Errorf("with a new certificate: %q", got)
			}
			return nil
		})
	}
	if h := host.Do(t, "GET", "/health", nil).Want(200); h.Get("status") != "healthy" {
		t.Errorf("the certificate changes the state of the decision log: %s", h.Body)
	}
}
