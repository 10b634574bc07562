// Package outboundtest gives tests clients that may call this machine.
package outboundtest

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// Loopback is the network of this machine.
const Loopback = "127.0.0.0/8"

// Local returns a client that may also call this machine.
func Local(t testing.TB) *outbound.Client {
	t.Helper()
	return New(t, outbound.Config{}, Loopback)
}

// New returns a client with a configuration that may also call the allowed networks, without TLS
// too. It is closed when the test ends.
func New(t testing.TB, cfg outbound.Config, allow ...string) *outbound.Client {
	t.Helper()
	cfg.PlainToAllowed = true
	for _, network := range allow {
		cfg.AllowCIDRs = append(cfg.AllowCIDRs, netip.MustParsePrefix(network))
	}
	c := outbound.New(cfg)
	t.Cleanup(c.Close)
	return c
}

// Certificate returns a certificate for this machine, and the authority that a client must trust.
func Certificate(t testing.TB) (*tls.Config, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS12}, roots
}
