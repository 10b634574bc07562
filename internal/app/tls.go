package app

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/mail"
	"net/url"
	"os"
	"slices"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/wire"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/servertls"
)

// checkTLS returns an error for the first invalid setting of TLS or ACME.
func (c *Config) checkTLS() error {
	if c.TLSListen == "" {
		for name, value := range map[string]string{"GATEHOUSE_TLS_CERT": c.TLSCert, "GATEHOUSE_TLS_KEY": c.TLSKey, "GATEHOUSE_ACME_DIRECTORY": c.ACMEDirectory} {
			if value != "" {
				return fmt.Errorf("%s: needs GATEHOUSE_TLS_LISTEN", name)
			}
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(c.TLSListen); err != nil {
		return fmt.Errorf("GATEHOUSE_TLS_LISTEN: %q is not host:port", c.TLSListen)
	}
	if c.TLSCert == "" || c.TLSKey == "" {
		return fmt.Errorf("GATEHOUSE_TLS_CERT, GATEHOUSE_TLS_KEY: GATEHOUSE_TLS_LISTEN needs both")
	}
	if c.ACMEDirectory == "" {
		return nil
	}
	if err := checkURL("GATEHOUSE_ACME_DIRECTORY", c.ACMEDirectory, "https"); err != nil {
		return err
	}
	if !c.ACMEAgreeTerms {
		return fmt.Errorf("GATEHOUSE_ACME_AGREE_TERMS: read the terms of service of %s and set it to true", c.ACMEDirectory)
	}
	if _, err := mail.ParseAddress(c.ACMEEmail); c.ACMEEmail != "" && err != nil {
		return fmt.Errorf("GATEHOUSE_ACME_EMAIL: %q is not an e-mail address", c.ACMEEmail)
	}
	if len(c.ACMEChallenges) == 0 {
		return fmt.Errorf("GATEHOUSE_ACME_CHALLENGES: at least one is needed")
	}
	for _, name := range c.ACMEChallenges {
		if !slices.Contains([]string{servertls.HTTP01, servertls.TLSALPN01}, name) {
			return fmt.Errorf("GATEHOUSE_ACME_CHALLENGES: %q is neither %s nor %s", name, servertls.HTTP01, servertls.TLSALPN01)
		}
	}
	if c.ACMETenantOrders < 1 {
		return fmt.Errorf("GATEHOUSE_ACME_TENANT_ORDERS: %d is less than 1", c.ACMETenantOrders)
	}
	return nil
}

// startEdge sets up the termination of TLS: certificates by host name, and their orders. It does
// nothing without a TLS listener.
func startEdge(p *parts) error {
	if p.cfg.TLSListen == "" {
		return nil
	}
	var err error
	p.terminator, err = servertls.New(servertls.Config{
		Routes: p.routes, KeyPair: p.domains.KeyPair, CertFile: p.cfg.TLSCert, KeyFile: p.cfg.TLSKey, ACME: p.domains.ACME, Now: p.now, Log: p.log,
	})
	if err != nil {
		return err
	}
	p.task("certificates", p.terminator.Run)
	if !p.domains.ACME {
		return nil
	}
	calls := outbound.Config{Timeout: 30 * time.Second}
	if p.cfg.ACMECAFile != "" {
		text, err := os.ReadFile(p.cfg.ACMECAFile)
		if err != nil {
			return fmt.Errorf("GATEHOUSE_ACME_CA_FILE: %w", err)
		}
		calls.RootCAs = x509.NewCertPool()
		if !calls.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("GATEHOUSE_ACME_CA_FILE: %s has no certificate", p.cfg.ACMECAFile)
		}
	}
	client := outbound.Trusted(calls)
	p.closers.add("ACME", time.Second, func(context.Context) error { client.Close(); return nil })
	orders := servertls.NewOrderer(servertls.OrderConfig{
		Domains: p.domains, Routes: p.routes, Directory: p.cfg.ACMEDirectory, Email: p.cfg.ACMEEmail, Methods: p.cfg.ACMEChallenges,
		Limit: p.cfg.ACMETenantOrders, Now: p.now, Log: p.log,
		Client: func(key crypto.Signer) *acme.Client {
			return &acme.Client{Key: key, DirectoryURL: p.cfg.ACMEDirectory, HTTPClient: client.Bounded(1 << 20), RetryBackoff: acmeBackoff, UserAgent: "gatehouse"}
		},
	})
	watch(p, "orders of certificates", orders.OnChange)
	lead(p, "orders of certificates", 30*time.Second, newID(), orders.Run)
	return nil
}

// acmeBackoff returns how long to wait before a request to an ACME server is repeated. A refused
// nonce is cheap to retry (RFC 8555 section 6.5). A rate limit is not retried: the next order
// respects it.
func acmeBackoff(n int, _ *http.Request, res *http.Response) time.Duration {
	tries, pause := 4, 500*time.Millisecond
	if res != nil {
		switch res.StatusCode {
		case http.StatusTooManyRequests:
			return -1
		case http.StatusBadRequest:
			tries, pause = 12, 20*time.Millisecond
		}
	}
	if n > tries {
		return -1
	}
	return time.Duration(n) * pause
}

// listeners are the server's listeners: the listen address, and one for TLS if it is on.
type listeners struct {
	plain, secure net.Listener
}

func (s *server) listen(ctx context.Context) (err error) {
	limit := framing.NewLimit(framing.Descriptors()/4*3, s.now, s.log) // leave the rest for stores, logs and outbound calls
	if s.listeners.plain, err = framing.Listen(ctx, s.cfg.Listen, limit); err != nil {
		return fmt.Errorf("GATEHOUSE_LISTEN: %w", err)
	}
	if s.terminator == nil {
		return nil
	}
	l, err := framing.Listen(ctx, s.cfg.TLSListen, limit)
	if err != nil {
		_ = s.listeners.plain.Close()
		return fmt.Errorf("GATEHOUSE_TLS_LISTEN: %w", err)
	}
	s.listeners.secure = wire.NewSecureListener(l, s.terminator.TLSConfig())
	return nil
}

// serve serves the API until ctx ends. If TLS is on, the listen address redirects clients to the
// TLS listener.
func (s *server) serve(ctx context.Context, hang func()) error {
	if s.terminator == nil {
		return s.api.Serve(ctx, rest.NewHTTPServer(s.api, s.log), s.listeners.plain, s.cfg.StopDelay, shutdownGrace, hang)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	plain := rest.Plain(s.api.Router, s.cfg.tlsPort(), s.terminator.HTTPChallenge)
	ended := make(chan error, 1)
	go func() {
		err := s.api.Serve(ctx, rest.NewHTTPServer(plain, s.log), s.listeners.plain, s.cfg.StopDelay, shutdownGrace, nil)
		stop(err) // if one listener fails, the other stops
		ended <- err
	}()
	err := s.api.Serve(ctx, rest.NewTLSServer(s.api, s.log), s.listeners.secure, s.cfg.StopDelay, shutdownGrace, hang)
	stop(err)
	if other := <-ended; err == nil {
		err = other
	}
	return err
}

// tlsPort returns the port at which clients reach the TLS listener: that of the public URL,
// otherwise the listener's own.
func (c *Config) tlsPort() string {
	if u, err := url.Parse(c.PublicURL); err == nil && u.Scheme == "https" {
		return u.Port()
	}
	_, port, _ := net.SplitHostPort(c.TLSListen) // checked by check
	return port
}
