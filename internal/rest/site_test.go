package rest

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rest/site"
)

// TestHSTS: answers over TLS have the header if the domain asks for it.
func TestHSTS(t *testing.T) {
	proxy := netip.MustParsePrefix("192.0.2.0/24")
	for _, c := range []struct {
		what, host, proto string
		tls, trusted      bool
		want              string
	}{
		{"over TLS", "shop.a.test", "", true, false, "max-age=60"},
		{"in another spelling", "Shop.A.test.:443", "", true, false, "max-age=60"},
		{"at a domain that does not ask", "www.a.test", "", true, false, ""},
		{"at a subdomain", "a.gate.test", "", true, false, ""},
		{"without TLS", "shop.a.test", "", false, false, ""},
		{"with a header of an untrusted client", "shop.a.test", "https", false, false, ""},
		{"behind a proxy with TLS", "shop.a.test", "https", false, true, "max-age=60"},
		{"behind a proxy without TLS", "shop.a.test", "http", false, true, ""},
	} {
		r := &Router{cfg: Config{Hosts: site.Hosts{BaseDomain: "gate.test", Find: func(host string) (site.Site, bool) {
			return site.Site{Tenant: "a", HSTS: map[string]int64{"shop.a.test": 60}[host]}, true
		}}}}
		if c.trusted {
			r.cfg.TrustedProxies = []netip.Prefix{proxy}
		}
		req := httptest.NewRequest("GET", "/x", nil)
		req.Host, req.RemoteAddr = c.host, "192.0.2.7:1"
		if c.proto != "" {
			req.Header.Set("X-Forwarded-Proto", c.proto)
		}
		if c.tls {
			req.TLS = &tls.ConnectionState{ServerName: "shop.a.test"}
		}
		h := http.Header{}
		visit{r, req}.sendHSTS(h)
		if got := h.Get("Strict-Transport-Security"); got != c.want {
			t.Errorf("Strict-Transport-Security %s = %q, want %q", c.what, got, c.want)
		}
	}
}
