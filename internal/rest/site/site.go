// Package site finds the tenant of a host name, and decides which TLS connections may carry
// requests for it and whether browsers must use TLS.
package site

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Site is a verified custom domain.
type Site struct {
	Tenant scope.TenantID
	// HSTS is the max-age of Strict-Transport-Security, in seconds; 0: the header is not sent.
	HSTS int64
	// Certificate is true if the domain has a certificate of its own, instead of the deployment's.
	Certificate bool
}

// Hosts are the host names of a deployment.
type Hosts struct {
	// BaseDomain is the domain under which tenants have subdomains. Empty: none have.
	BaseDomain string
	// Find finds a verified custom domain by its name in lower case. Nil: there is none.
	Find func(host string) (Site, bool)
}

// Name returns the name in a Host header in canonical form: without the port, in lower case, and
// without the trailing dot of the DNS root.
func Name(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// IsEmpty reports whether no host names a tenant.
func (h Hosts) IsEmpty() bool { return h.BaseDomain == "" && h.Find == nil }

// At returns the verified custom domain of a name; the zero Site for none.
func (h Hosts) At(name string) Site {
	if h.Find == nil || !strings.Contains(name, ".") {
		return Site{}
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return Site{}
	}
	found, _ := h.Find(name)
	return found
}

// Tenant returns the tenant with a subdomain or custom domain of this name; empty for none.
func (h Hosts) Tenant(name string) scope.TenantID {
	if base := h.BaseDomain; base != "" {
		if name == base {
			return ""
		}
		if sub, ok := strings.CutSuffix(name, "."+base); ok {
			if IsLabel(sub) {
				return scope.TenantID(sub)
			}
			return ""
		}
	}
	return h.At(name).Tenant
}

// IsLabel reports whether s is a DNS label in lower case.
func IsLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// certified returns the tenant of a domain that has a certificate of its own; empty for names that
// the deployment's certificate covers.
func (h Hosts) certified(name string) scope.TenantID {
	if s := h.At(name); s.Certificate {
		return s.Tenant
	}
	return ""
}

// Check refuses a request whose host does not match its connection (RFC 9110, section 7.4). A
// client that connected with a tenant's own certificate may only request that tenant's domains, and
// such a domain cannot be requested on any other connection. A trusted proxy is exempt: it requests
// many hosts on one connection, and chooses its own SNI.
func (h Hosts) Check(req *http.Request, trusted bool) error {
	if !framing.Consistent(req.ProtoMajor, req.Host, req.RequestURI, req.Header, req.ContentLength) {
		return fault.New(fault.BadRequest, "ambiguous_request", "the request names its host, its target or its length in two ways")
	}
	if req.TLS == nil || trusted {
		return nil
	}
	named, called := Name(req.TLS.ServerName), Name(req.Host)
	if named == called {
		return nil
	}
	own, other := h.certified(named), h.certified(called)
	if own == other || own != "" && other == "" && h.Tenant(called) == own {
		return nil
	}
	return fault.New(fault.Misdirected, "misdirected_request", "this connection was made for another domain: connect to this one")
}
