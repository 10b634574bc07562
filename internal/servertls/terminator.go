// Package servertls ends TLS for the server. It chooses the certificate by the name in the client's
// handshake (SNI): that of a tenant's verified domain, or else the deployment's own. It orders the
// certificates of domains by ACME (RFC 8555), and answers the challenges.
//
// A name without its own certificate gets the deployment's, whether a tenant has claimed the name or
// not. The decision needs one look-up in memory: a flood of names causes no reads of a store, and
// does not reveal which tenants exist.
package servertls

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/gatehouse-dev/gatehouse/internal/domain"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Config is what a Terminator depends on.
type Config struct {
	// Routes has the verified domains.
	Routes *domain.Routes
	// KeyPair reads the certificate of a domain and its fingerprint (domain.Service.KeyPair).
	KeyPair func(ctx context.Context, rt domain.Route) (*tls.Certificate, string, error)
	// CertFile and KeyFile are the deployment's own certificate chain and key, in PEM.
	CertFile, KeyFile string
	// ACME says that certificates are ordered, so that challenges can come.
	ACME bool
	Now  func() time.Time
	Log  *slog.Logger
}

// Terminator chooses certificates. It is safe for concurrent use.
type Terminator struct {
	cfg   Config
	own   atomic.Pointer[tls.Certificate]
	kept  atomic.Pointer[tls.Certificate] // what the files have, while own is used in its place
	files files
	pairs *pairs
}

// New returns a Terminator, after it has read the deployment's certificate. It uses one that is not
// valid now, too, because there is no other.
func New(cfg Config) (*Terminator, error) {
	e := &Terminator{cfg: cfg, pairs: newPairs(maxPairs, cfg.KeyPair, cfg.Now)}
	if _, err := e.files.read(cfg.CertFile, cfg.KeyFile); err != nil {
		return nil, err
	}
	e.own.Store(e.files.pair)
	if period := periodOf(e.files.pair); !period.Holds(cfg.Now()) {
		cfg.Log.Error("the deployment's certificate is not valid now: clients refuse to connect", "not_before", period.Begin, "not_after", period.End)
	}
	return e, nil
}

// TLSConfig returns the configuration of the listener: TLS 1.2 and later, HTTP/2 and HTTP/1.1.
func (e *Terminator) TLSConfig() *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: e.certificate, GetConfigForClient: e.challengeConfig,
	}
	// A session is resumed only while the name still has the certificate with which the session began.
	// A ticket must not outlive the domain.
	config.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		session.Extra = append(session.Extra, []byte(e.fingerprint(state.ServerName)))
		return config.EncryptTicket(state, session)
	}
	config.UnwrapSession = func(ticket []byte, state tls.ConnectionState) (*tls.SessionState, error) {
		session, err := config.DecryptTicket(ticket, state)
		if err != nil || session == nil || len(session.Extra) == 0 || string(session.Extra[len(session.Extra)-1]) != e.fingerprint(state.ServerName) {
			return nil, err
		}
		return session, nil
	}
	return config
}

// certificate returns the certificate for the name in a client's handshake.
func (e *Terminator) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if rt, ok := e.cfg.Routes.Find(strings.ToLower(hello.ServerName)); ok {
		if print := rt.Fingerprint(); print != "" {
			return e.pairs.get(hello.Context(), rt, print)
		}
	}
	return e.own.Load(), nil
}

// fingerprint returns the fingerprint of the certificate for a name; empty: it is the deployment's.
func (e *Terminator) fingerprint(name string) string {
	rt, _ := e.cfg.Routes.Find(strings.ToLower(name))
	return rt.Fingerprint()
}

// challengeConfig answers a challenge of type tls-alpn-01 (RFC 8737). For all other handshakes it
// returns nil, so that TLSConfig applies.
func (e *Terminator) challengeConfig(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if !e.cfg.ACME || !slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto}) {
		return nil, nil
	}
	name := strings.ToLower(hello.ServerName)
	if !e.expectsChallenge(name) {
		return nil, errNoChallenge
	}
	e.cfg.Routes.Refresh(hello.Context()) // the challenge in memory may be that of an earlier order
	rt, _ := e.cfg.Routes.Find(name)
	if rt.Challenge == "" {
		return nil, errNoChallenge
	}
	pair, err := challengePair(name, rt.Challenge, e.cfg.Now())
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{acme.ALPNProto}, Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true}, nil
}

// HTTPChallenge returns the answer to a challenge of type http-01 (RFC 8555, section 8.3); false:
// there is no such challenge.
func (e *Terminator) HTTPChallenge(ctx context.Context, host, token string) (string, bool) {
	if !e.cfg.ACME || token == "" || !e.expectsChallenge(host) {
		return "", false
	}
	rt, _ := e.cfg.Routes.Find(host)
	if !strings.HasPrefix(rt.Challenge, token+".") { // another replica may just have stored it
		e.cfg.Routes.Refresh(ctx)
		rt, _ = e.cfg.Routes.Find(host)
	}
	return rt.Challenge, strings.HasPrefix(rt.Challenge, token+".")
}

// expectsChallenge reports whether a challenge may come for a name: it must be a verified domain of an
// active tenant that uses ACME and has no uploaded certificate.
func (e *Terminator) expectsChallenge(name string) bool {
	rt, ok := e.cfg.Routes.Find(name)
	return ok && rt.ACME && rt.Pair == "" && rt.Status == tenant.Active
}

// longestWarning is how long before its end the deployment's certificate causes a warning. A
// certificate of less than 84 days does so in the last sixth of its life: one that is renewed when a
// third is left, as usual, causes none.
const longestWarning = 14 * 24 * time.Hour

// Period is when a certificate is valid: from Begin until End. Its end should be warned of from Warn
// on.
type Period struct{ Begin, Warn, End time.Time }

func periodOf(pair *tls.Certificate) Period {
	begin, end := pair.Leaf.NotBefore, pair.Leaf.NotAfter
	return Period{begin, end.Add(-min(longestWarning, end.Sub(begin)/6)), end}
}

// Holds reports whether the certificate is valid at a time.
func (p Period) Holds(at time.Time) bool { return !at.Before(p.Begin) && at.Before(p.End) }

// Left returns how long the certificate is still valid at a time. If it is not valid, Left is
// negative: the time since its end, or until its begin.
func (p Period) Left(at time.Time) time.Duration {
	if at.Before(p.Begin) {
		return at.Sub(p.Begin)
	}
	return p.End.Sub(at)
}

// Own returns when the deployment's own certificate is valid, the one that is in use.
func (e *Terminator) Own() Period { return periodOf(e.own.Load()) }

// Kept returns when the certificate in the files is valid, if the server does not use it because it
// is not valid now.
func (e *Terminator) Kept() (Period, bool) {
	pair := e.kept.Load()
	if pair == nil {
		return Period{}, false
	}
	return periodOf(pair), true
}

// reloadEvery is how often the files of the deployment's certificate are read again.
const reloadEvery = 2 * time.Second

// Run reads the deployment's certificate again when its files change, and drops the keys of domains
// that have none any more, until ctx ends.
func (e *Terminator) Run(ctx context.Context) error {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		e.reload()
		e.pairs.prune(e.fingerprint)
	}
}

// reload uses the certificate of the files if they changed. If the new one cannot be used, reload logs
// it once and keeps the old one. A certificate that is not valid now does not replace a valid one; it
// does so as soon as it is valid, or the other one is not any more.
func (e *Terminator) reload() {
	changed, err := e.files.read(e.cfg.CertFile, e.cfg.KeyFile)
	if changed && err != nil {
		e.cfg.Log.Warn("the deployment's new certificate cannot be used; the old one stays", "error", err)
	}
	now, fresh, old := e.cfg.Now(), e.files.pair, e.own.Load()
	if fresh == nil || fresh == old {
		e.kept.Store(nil)
		return
	}
	period := periodOf(fresh)
	if !period.Holds(now) && periodOf(old).Holds(now) {
		e.kept.Store(fresh)
		if changed {
			e.cfg.Log.Warn("the deployment's new certificate is not valid now; the old one stays until then, or until it ends", "not_before", period.Begin, "not_after", period.End)
		}
		return
	}
	e.own.Store(fresh)
	e.kept.Store(nil)
	e.cfg.Log.Info("the deployment's certificate was replaced", "not_before", period.Begin, "not_after", period.End)
}
