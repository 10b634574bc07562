// Package auth authenticates callers. It turns an API key or a session token into a scope.Scope,
// and is the only package that creates one.
//
//	credential ─sha256─▶ entry in process ─────────────────────────▶ scope   (the hot path: no store)
//	                        │ not there, or its tenant has changed
//	                        ▼
//	             API key: format, checksum, digest in the system store, row in the tenant's
//	             token:   signature, fixed claims, session row in the tenant's store
//
// A cachedTenant is what one replica knows about one tenant: its status, its plan and a generation. Every
// change of people, keys, roles or sessions increments the tenant's revision `auth` in its own
// transaction. db.Watch then increments the generation, and each entry of the tenant is loaded
// again when it is next used. The revision is also checked every two seconds, in case a
// notification is lost. So a revocation applies at once on its replica, and within five seconds on
// every other.
//
// Refusals reveal nothing. An unknown, a wrong and a disabled credential get the same answer after
// the same work, and a name can be locked whether it has an account or not.
package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/factor"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/lockout"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TokenLife is how long a session token is valid.
const TokenLife = time.Hour

// maxCredential is the largest size of a credential in bytes; longer ones are refused
// without a check.
const maxCredential = 4096

// maxEntries is the largest number of credentials that are cached.
const maxEntries = 100_000

// Credential is what a request sends to authenticate: one of Bearer, APIKey and Cookie, and
// the tenant and environment that it names.
type Credential struct {
	Bearer, APIKey string
	// Cookie is the value of a browser's session cookie.
	Cookie string
	// Idle is set when a page makes a request on its own, with nobody at the screen: the
	// request does not keep the session from expiring.
	Idle bool
	// Enrolling is set for requests that enrol a second factor. A session that must enrol first
	// may make only these.
	Enrolling     bool
	TenantHint    scope.TenantID
	EnvHint       scope.Env
	IP, RequestID string
}

// Principal holds further facts about a caller.
type Principal struct {
	// KeyID is set for API keys, and for tokens made from one.
	KeyID string
	// Tenant is the key's own tenant, in which its requests are counted.
	Tenant scope.TenantID
	// Plan is the tenant's plan, which sets the key's rate limit.
	Plan string
	// RateLimited is set for keys: people and bouncers have no rate limit.
	RateLimited bool
	// Limit is the caller's own limit in requests an hour; 0: that of the plan.
	Limit int64
}

// Config is what a Service needs. Issuer, the bouncer fields, Rotate and Blind are
// optional.
type Config struct {
	Stores  *db.Cluster
	Tenants *tenant.Service
	Users   *user.Service
	Hasher  *user.Hasher
	// Box encrypts the signing keys and the secrets of second factors.
	Box *secret.Box
	Now func() time.Time
	// Logger receives failures that change no answer; nil: nobody does.
	Logger *slog.Logger
	// NewID returns a new, random id; Random is the source of key material.
	NewID  func() string
	Random io.Reader
	// Issuer is the `iss` of session tokens; the same on all replicas.
	Issuer string
	// Rotate is how long a signing key is used for new tokens; 0: 30 days.
	Rotate time.Duration
	// Blind is how long cached credentials stay valid while the store does not answer; 0:
	// DefaultBlind; negative: not at all.
	Blind time.Duration
	// Pause waits for a duration or until the context ends; nil: by the clock.
	Pause func(ctx context.Context, d time.Duration) error
	// Bouncer finds the bouncer with a token's hash in its tenant's store. Fault: NotFound.
	// Nil: bouncers' tokens are refused.
	Bouncer func(ctx context.Context, tx *db.Tx, digest string) (BouncerIdentity, error)
	// Holders find the holder of a dedicated key by id, in its tenant's store. Fault: NotFound
	// for a holder that no longer exists. Keys of a kind without an entry are refused.
	Holders Holders
	// SessionLife is how long a browser's session lasts at most (0: 12 hours); SessionIdle
	// is how long it lasts without a request (0: one hour).
	SessionLife, SessionIdle time.Duration
	// PasswordsOff reports whether a tenant forbids sign-in with a password. PasswordsOn allows
	// it again. Nil: it is always allowed.
	PasswordsOff func(ctx context.Context, tx *db.Tx) (bool, error)
	PasswordsOn  func(ctx context.Context, tx *db.Tx) error
	// BouncerTimes returns when the bouncer with an id was created and last changed; it is
	// required with Bouncer.
	BouncerTimes func(ctx context.Context, tx *db.Tx, id string) (made, changed time.Time, err error)
}

// BouncerIdentity identifies an enforcement point in a scope.
type BouncerIdentity struct {
	ID, Name string
	Env      scope.Env
}

// Service authenticates callers and stores credentials. New makes one.
type Service struct {
	Config
	*keyring
	*tenantCache
	// Sessions signs browsers in and out.
	Sessions *Sessions
	// Factors manages people's second factors.
	Factors *Factors
	// Dedicated issues the keys of dedicated kinds of callers.
	Dedicated *Dedicated
	entries   *otter.Cache[[sha256.Size]byte, *entry]
	loads     singleflight.Group
	used      usage
	lobby     lockout.Limiter
	stop      func()
}

// New makes a Service and loads or creates its signing key. Close stops it.
func New(ctx context.Context, cfg Config) (*Service, error) {
	if cfg.Rotate <= 0 {
		cfg.Rotate = 30 * 24 * time.Hour
	}
	cfg.Blind = cmp.Or(cfg.Blind, DefaultBlind)
	if cfg.SessionLife <= 0 {
		cfg.SessionLife = 12 * time.Hour
	}
	if cfg.SessionIdle <= 0 {
		cfg.SessionIdle = time.Hour
	}
	if cfg.Pause == nil {
		cfg.Pause = pauseFor
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Issuer = cmp.Or(cfg.Issuer, "gatehouse")
	entries, err := otter.New(&otter.Options[[sha256.Size]byte, *entry]{MaximumSize: maxEntries})
	if err != nil {
		return nil, err
	}
	s := &Service{Config: cfg, keyring: &keyring{cfg: cfg}, tenantCache: &tenantCache{cfg: cfg}, entries: entries}
	s.Sessions, s.Dedicated = &Sessions{s: s}, &Dedicated{s: s}
	s.Factors = &Factors{s: s, Service: &factor.Service{Stores: cfg.Stores, Box: cfg.Box, Now: cfg.Now, Random: cfg.Random}}
	if err := s.rotate(ctx); err != nil {
		return nil, err
	}
	s.stop = cfg.Stores.Watch(s.onChange)
	return s, nil
}

// Close stops the goroutines of the Service, and its watch on the stores.
func (s *Service) Close() {
	s.stop()
	s.entries.StopAllGoroutines()
}

// entry is an accepted credential. It is valid for one generation of its tenant.
type entry struct {
	scope  scope.Scope
	who    Principal
	tenant *cachedTenant
	gen    uint64
	// expires is in Unix nanoseconds; 0: never.
	expires int64
	// used is set for credentials with a time of last use: API keys and people's sessions.
	used *lastUse
	// idle is how long the session lasts without use; 0: no limit.
	idle time.Duration
	// shown is how the credential must be sent.
	shown transport
}

// transport is how a credential was sent. Each kind of credential is only accepted in its own
// manner.
type transport uint8

const (
	asKey    transport = iota // an API key, or a bouncer's token, in either header
	asToken                   // a session token, as Authorization: Bearer
	asCookie                  // a browser's cookie
)

// expired reports whether an entry has ended, at its end or because it was not used.
func (e *entry) expired(now time.Time) bool {
	at := now.UnixNano()
	return e.expires != 0 && at >= e.expires || e.idle != 0 && at-e.used.at.Load() >= int64(e.idle)
}

func refused() error {
	return fault.New(fault.Unauthenticated, "invalid_credentials", "the credential is not valid")
}

// refuseGone refuses a tenant, session or key that no longer exists.
func refuseGone(err error) error {
	if errors.Is(err, db.ErrNoRows) || fault.Is(err, fault.NotFound) {
		return refused()
	}
	return err
}

// Authenticate returns who calls, and in which tenant and environment. Faults: 401 for
// anything that is not a valid credential; 403 tenant_access_denied if the tenant is not
// the credential's (404 tenant_not_found for a platform administrator); 403
// environment_denied if the credential is for the other environment; 403
// second_factor_enrolment_required if the person must enrol a second factor first. With the last three it
// also returns the Principal: the credential is valid, and its request counts.
func (s *Service) Authenticate(ctx context.Context, c Credential) (scope.Scope, Principal, error) {
	text, err := c.text()
	if err != nil {
		return scope.Scope{}, Principal{}, err
	}
	if text == "" || len(text) > maxCredential {
		return scope.Scope{}, Principal{}, refused()
	}
	now := s.Now()
	e, err := s.find(ctx, c, text, now)
	if err != nil {
		return scope.Scope{}, Principal{}, err
	}
	if e.shown == asToken && c.APIKey != "" {
		return scope.Scope{}, Principal{}, refused()
	}
	if e.used != nil && !c.Idle {
		s.used.note(e.used, now)
	}
	if e.scope.EnrolOnly && !c.Enrolling {
		return scope.Scope{}, e.who, enrolFirst()
	}
	sc := e.scope
	sc.RequestID, sc.Actor.IP = c.RequestID, c.IP
	if c.EnvHint != scope.AnyEnv && c.EnvHint != sc.Env {
		if err := sc.May(c.EnvHint); err != nil {
			return scope.Scope{}, e.who, err
		}
		sc.Env = c.EnvHint
	}
	if c.TenantHint != "" && c.TenantHint != sc.Tenant {
		if sc, err = s.InTenant(ctx, sc, c.TenantHint); err != nil {
			return scope.Scope{}, e.who, err
		}
	}
	return sc, e.who, nil
}

// text returns the one credential that was sent; empty for none.
func (c Credential) text() (string, error) {
	text := ""
	for _, one := range [...]string{c.APIKey, c.Bearer, c.Cookie} {
		if one == "" {
			continue
		}
		if text != "" {
			return "", fault.New(fault.BadRequest, "ambiguous_credentials", "send only one credential")
		}
		text = one
	}
	return text, nil
}

// entryDigest returns the key of an entry. The digest of a cookie never equals that of another kind
// of credential.
func entryDigest(c Credential, text string) [sha256.Size]byte {
	if c.Cookie != "" {
		return cookieDigest(text)
	}
	return sha256.Sum256([]byte(text))
}

// find returns the entry of a credential: the cached one while it is valid, otherwise a new
// one. Requests with the same credential that arrive together load it once.
func (s *Service) find(ctx context.Context, c Credential, text string, now time.Time) (*entry, error) {
	digest := entryDigest(c, text)
	if e, ok := s.entries.GetIfPresent(digest); ok {
		if err := s.ensureFresh(ctx, e.tenant, now); err != nil {
			return nil, refuseGone(err)
		}
		if e.gen == e.tenant.gen.Load() {
			if !e.expired(now) {
				return e, e.tenant.checkServed()
			}
			s.entries.Invalidate(digest)
			if e.idle == 0 {
				return nil, refused()
			} // otherwise another replica may have seen a use
		}
	}
	got, err, _ := s.loads.Do(string(digest[:]), func() (any, error) {
		// The load must not fail for the others when the first caller disconnects.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return s.load(ctx, c, text, digest, now)
	})
	if err != nil {
		if fault.Is(err, fault.Unauthenticated) {
			s.entries.Invalidate(digest)
		}
		return nil, err
	}
	e, _ := got.(*entry)
	if e.gen != e.tenant.gen.Load() {
		// The shared load may have read before a revocation that was acknowledged before this call.
		// A new load cannot.
		if e, err = s.load(ctx, c, text, digest, now); err != nil {
			return nil, err
		}
	}
	s.entries.Set(digest, e)
	return e, nil
}

// load reads a credential from the stores.
func (s *Service) load(ctx context.Context, c Credential, text string, digest [sha256.Size]byte, now time.Time) (*entry, error) {
	if c.Cookie != "" {
		return s.Sessions.load(ctx, text, digest, now)
	}
	if looksLikeKey(text) {
		return s.loadKey(ctx, text, digest, now)
	}
	if strings.Count(text, ".") == 2 && c.APIKey == "" { // a token is no API key
		return s.loadToken(ctx, text, now)
	}
	return nil, refused()
}

// InTenant moves a platform administrator's scope to another tenant. Any other caller is
// refused, whether the tenant exists or not.
func (s *Service) InTenant(ctx context.Context, sc scope.Scope, id scope.TenantID) (scope.Scope, error) {
	if id == sc.Tenant {
		return sc, nil
	}
	if !sc.Platform {
		return sc, fault.New(fault.Forbidden, "tenant_access_denied", "this credential has no access to the tenant").With("tenant_id", string(id))
	}
	r, err := s.get(ctx, id, s.Now())
	if err != nil {
		return sc, err
	}
	if r.facts.Load().Status == tenant.Deleted {
		return sc, fault.New(fault.NotFound, "tenant_not_found", "there is no such tenant").With("tenant_id", string(id))
	}
	sc.Tenant = id
	return sc, nil
}

// SystemScope returns the scope of the service's own work in a tenant: jobs, and the command line
// on the server's host.
func SystemScope(t scope.TenantID, name, requestID string) scope.Scope {
	return scope.Scope{
		Tenant: t, Actor: scope.Actor{Kind: scope.System, ID: name, Name: name},
		Permissions: scope.Permissions{All: true}, Platform: t == scope.DefaultTenant, RequestID: requestID,
	}
}

// pauseFor waits for d, or until ctx ends; then it returns the context's error.
func pauseFor(ctx context.Context, d time.Duration) error {
	if d > 0 && !pause.For(ctx, d) {
		return ctx.Err()
	}
	return nil
}
