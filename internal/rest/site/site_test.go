package site

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// hosts returns the hosts of a deployment at gate.test with two tenants that have domains.
func hosts() Hosts {
	known := map[string]Site{
		"shop.a.test": {Tenant: "a", Certificate: true, HSTS: 60},
		"www.a.test":  {Tenant: "a", Certificate: true},
		"bare.a.test": {Tenant: "a"},
		"shop.b.test": {Tenant: "b", Certificate: true},
	}
	return Hosts{BaseDomain: "gate.test", Find: func(host string) (Site, bool) {
		s, ok := known[host]
		return s, ok
	}}
}

// TestAuthority: a request may only name a host that its connection was made for. The test has its
// own version of the rule, and compares both for all pairs of names.
func TestAuthority(t *testing.T) {
	r := hosts()
	certificate := map[string]string{"shop.a.test": "a", "www.a.test": "a", "shop.b.test": "b"}
	owner := map[string]scope.TenantID{"shop.a.test": "a", "www.a.test": "a", "bare.a.test": "a", "a.gate.test": "a", "shop.b.test": "b", "b.gate.test": "b"}
	names := []string{"", "gate.test", "a.gate.test", "b.gate.test", "never.gate.test", "shop.a.test", "www.a.test", "bare.a.test", "shop.b.test", "nobody.test", "127.0.0.1"}
	for _, sni := range names {
		for _, host := range names {
			made, asked := certificate[sni], certificate[host]
			want := made == asked || asked == "" && owner[host] == scope.TenantID(made)
			for _, spelt := range []string{host, host + ":8443"} {
				if host == "" {
					spelt = ""
				}
				req := httptest.NewRequest("GET", "/x", nil)
				req.Host, req.TLS = spelt, &tls.ConnectionState{ServerName: sni}
				err := r.Check(req, false)
				if (err == nil) != want || err != nil && !fault.Is(err, fault.Misdirected) {
					t.Errorf("Check of %q on a connection for %q = %v, want accepted: %v", spelt, sni, err, want)
				}
				req.TLS = nil
				if err := r.Check(req, false); err != nil {
					t.Errorf("Check of %q without TLS = %v, want accepted", spelt, err)
				}
			}
		}
	}
	// A proxy chooses its SNI for itself, and has none in most settings.
	req := httptest.NewRequest("GET", "/x", nil)
	req.Host, req.TLS = "shop.a.test", &tls.ConnectionState{ServerName: "shop.b.test"}
	if err := r.Check(req, true); err != nil {
		t.Errorf("Check behind a trusted proxy = %v, want accepted", err)
	}
	// HTTP/2 can name the host twice.
	req = httptest.NewRequest("GET", "/x", nil)
	req.Host, req.ProtoMajor, req.TLS = "shop.a.test", 2, &tls.ConnectionState{ServerName: "shop.a.test"}
	req.Header.Set("Host", "shop.b.test")
	if err := r.Check(req, false); !fault.Is(err, fault.BadRequest) {
		t.Errorf("Check of two hosts = %v, want a bad request", err)
	}
}

// TestPlainRedirects: a redirect of the listener without TLS leads to the same address over TLS,
// and to no other host.
func TestPlainRedirects(t *testing.T) {
	for _, c := range []struct{ port, host, target, want string }{
		{"", "gate.test", "/a/b?c=d", "https://gate.test/a/b?c=d"},
		{"443", "gate.test:80", "/", "https://gate.test/"},
		{"8443", "gate.test:8080", "/a%2Fb", "https://gate.test:8443/a%2Fb"},
		{"", "[::1]:8080", "/", "https://[::1]/"},
		{"8443", "[::1]", "/", "https://[::1]:8443/"},
		{"", "127.0.0.1", "/", "https://127.0.0.1/"},
		{"", "gate.test", "//evil.test", "https://gate.test//evil.test"},
		{"", "gate.test", "/x/.well-known/acme-challenge/t", "https://gate.test/x/.well-known/acme-challenge/t"},
		{"", "gate.test", "/.well-known/acme-challenge/other", "https://gate.test/.well-known/acme-challenge/other"},
		{"", "user@gate.test", "/", ""},
		{"", "gate.test/x", "/", ""},
		{"", "gate.test#", "/", ""},
		{"", "", "/", ""},
	} {
		h := Plain{Port: c.port, Open: func(req *http.Request) bool { return req.URL.Path == "/open" }, Challenge: func(_ context.Context, host, token string) (string, bool) {
			return "token.proof", host == "shop.a.test" && token == "token"
		}, API: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })}
		req := httptest.NewRequest("POST", "/", nil)
		u, err := req.URL.Parse("http://x" + c.target)
		errtest.Must(t, err)
		req.URL, req.Host = u, c.host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		status := http.StatusPermanentRedirect
		if c.want == "" {
			status = http.StatusBadRequest
		}
		if w.Code != status || w.Header().Get("Location") != c.want {
			t.Errorf("POST %s of %q = %d to %q, want %d to %q", c.target, c.host, w.Code, w.Header().Get("Location"), status, c.want)
		}
		req = httptest.NewRequest("GET", "/.well-known/acme-challenge/token", nil)
		req.Host = "Shop.a.test:80"
		w = httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != 200 || w.Body.String() != "token.proof" {
			t.Errorf("GET of the challenge = %d %q, want 200 with the proof", w.Code, w.Body)
		}
		w = httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest("GET", "/open", nil)); w.Code != http.StatusTeapot {
			t.Errorf("GET /open = %d, want %d", w.Code, http.StatusTeapot)
		}
	}
}
