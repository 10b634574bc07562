// Package settings reads the bouncer's configuration from a bundle, and the credentials for its
// application.
package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/session"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

// Mode says whether denials are enforced.
type Mode uint8

const (
	// Enforcing refuses what is denied. It is the zero value, so a mode that is not set is the strict one.
	Enforcing Mode = iota
	// Shadowing lets everything pass, and records what it would have done.
	Shadowing
)

// String returns the mode's name in bundles, status reports and metrics.
func (m Mode) String() string {
	if m == Shadowing {
		return "shadow"
	}
	return "enforce"
}

// bundleMeta is what the control plane says about this bouncer: the member `bouncer` of the
// manifest's metadata, or of the bundle's gatehouse/data.json.
type bundleMeta struct {
	ID          json.Number `json:"id"`
	Name        string      `json:"name"`
	Tenant      string      `json:"tenant"`
	Environment string      `json:"environment"`
	Mode        string      `json:"mode"`
	Credentials int64       `json:"credentials"` // the number of the credentials for this bundle
	// Replay is off if the tenant keeps no inputs for replay. Otherwise it is absent.
	Replay string        `json:"replay"`
	Config configuration `json:"configuration"`
}

// configuration is the part of a bouncer's `configuration` object that the data plane reads. It
// ignores unknown members.
type configuration struct {
	// EnforcementMode `shadow` rolls this bouncer back while its environment enforces.
	EnforcementMode string `json:"enforcement_mode"`
	// DefaultAction is pass_through (default) or deny. It applies if no control is in scope.
	DefaultAction string `json:"default_action"`
	// MaxStale is a duration such as 24h. If it is empty, the last good bundle never expires.
	MaxStale string `json:"max_stale"`
	// Signing is signed or unsigned: whether the control plane signs the bundles. Config.Verify
	// decides whether the bouncer requires that, because a bundle must not relax its own check.
	Signing string `json:"signing"`
	// CacheTTL is a duration such as 30s: the maximum age of an entry of the decision cache. If it
	// is empty, an entry is valid until something that it depends on changes.
	CacheTTL string `json:"cache_ttl"`
	// CacheEnabled turns the decision cache on or off; absent: on.
	CacheEnabled *bool `json:"cache_enabled"`
	// Headers are the request headers that controls see in input.request.headers.
	Headers []string `json:"headers"`
	// KeepTrailingSlash forwards `/x/` as `/x/`. By default, it is forwarded as `/x`.
	KeepTrailingSlash bool `json:"keep_trailing_slash"`
	// Discovery is on (default) or off: whether hosts that no resource names are reported.
	Discovery string `json:"discovery"`
	// Audit is best_effort (default) or required: whether a request may pass if its decision cannot
	// be logged.
	Audit    string          `json:"audit"`
	Identity identity.Config `json:"identity"`
}

// Settings are the parsed configuration. They are immutable.
type Settings struct {
	Bouncer, Name, Tenant, Environment string

	Mode          Mode
	RolledBack    bool
	DenyByDefault bool
	MaxStale      time.Duration
	Cache         bool
	CacheTTL      time.Duration // 0: no limit
	Signed        bool
	KeepSlash     bool
	Discovery     bool
	ReplayOff     bool // no event carries its input for replay
	LogRequired   bool // a request whose decision cannot be logged is refused
	Names         header.Names
	ShowHeaders   []string // canonical
	Trusted       identity.Proxies
	ByHeaders     bool // identity headers on forward-auth
	PassToken     bool // the caller's token is forwarded to the application
	// CredentialsNo is the number of the credentials that belong to the bundle.
	CredentialsNo int64
	Tokens        *identity.Verifier
	HashKey       masking.HashKey // of the tenant; empty: values to hash are redacted
	SessionSeal   *session.Seal   // nil without a key
	KeyClosed     bool            // there is a key, but it cannot be decrypted
	identity      string          // the identity configuration, to detect changes
}

// neverShown are headers that no control may read. The author of a control must not see
// credentials, and what a control reads is recorded.
var neverShown = []string{"Authorization", "Cookie", "Proxy-Authorization", "Set-Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// Reader reads the settings of bundles.
type Reader struct {
	// Trusted are the proxies in the configuration of the process. If there are none, those in the
	// bundle apply.
	Trusted identity.Proxies
	// Token is the bouncer's credential. Keys in bundles are encrypted for it.
	Token string
	// Client fetches key sets.
	Client *http.Client
	Now    func() time.Time
}

// Read parses the bouncer's settings in a bundle. Anything unknown is an error, and the bundle is
// refused, because a wrong mode or a missing key set could grant access.
func (r *Reader) Read(bundle *bundle.Bundle, before *Settings) (*Settings, error) {
	var m bundleMeta
	own, err := json.Marshal(bundle.Meta["bouncer"]) // null if there is none, which changes nothing
	if err == nil {
		err = json.Unmarshal(own, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("the bouncer's configuration is malformed: %w", err)
	}
	c := &m.Config
	s := &Settings{
		Bouncer: m.ID.String(), Name: m.Name, Tenant: m.Tenant, Environment: m.Environment,
		KeepSlash: c.KeepTrailingSlash, ByHeaders: c.Identity.ForwardAuthHeaders,
		Trusted: r.Trusted, Signed: c.Signing == "signed", PassToken: c.Identity.PassToken, CredentialsNo: m.Credentials,
		ReplayOff: m.Replay == "off",
	}
	s.readHashKey(bundle, r.Token)
	if err := s.readCache(c); err != nil {
		return nil, err
	}
	if err := s.readModes(m.Mode, c); err != nil {
		return nil, err
	}
	for _, h := range c.Headers {
		h = textproto.CanonicalMIMEHeaderKey(h)
		if slices.Contains(neverShown, h) || strings.EqualFold(h, c.Identity.TokenHeader) {
			return nil, fmt.Errorf("configuration.headers: %s carries credentials and is never shown to controls", h)
		}
		s.ShowHeaders = append(s.ShowHeaders, h)
	}
	if len(s.Trusted) == 0 {
		list, err := identity.ParseProxies(c.Identity.TrustedProxies)
		if err != nil {
			return nil, fmt.Errorf("configuration.identity: %w", err)
		}
		s.Trusted = list
	}
	if err := s.readNames(c.Identity); err != nil {
		return nil, err
	}
	return s, r.readTokens(s, c.Identity, before)
}

// readHashKey decrypts the key of the tenant's masks, which is encrypted for the bouncer's token.
// If that fails, the bundle still becomes active and values to hash are redacted. This happens with
// a saved bundle that was fetched with an earlier token.
func (s *Settings) readHashKey(bundle *bundle.Bundle, token string) {
	own, ok := bundle.Meta[masking.KeyMember].(map[string]any)
	if !ok {
		return // the control plane has no key yet
	}
	id, _ := own["id"].(string)
	sealed, _ := own["sealed"].(string)
	key, err := masking.OpenHashKey(sealed, token, masking.KeyPlace(s.Tenant, id))
	s.HashKey, s.KeyClosed = key, err != nil
	s.SessionSeal = session.NewSeal(key)
}

func (s *Settings) readCache(c *configuration) error {
	s.Cache = c.CacheEnabled == nil || *c.CacheEnabled
	if c.CacheTTL == "" {
		return nil
	}
	d, err := time.ParseDuration(c.CacheTTL)
	if err != nil || d < 0 {
		return fmt.Errorf("configuration.cache_ttl: %q is not a duration", c.CacheTTL)
	}
	s.Cache = s.Cache && d > 0
	s.CacheTTL = d
	return nil
}

func (s *Settings) readModes(environment string, c *configuration) error {
	switch environment {
	case "", "shadow": // a bouncer starts in shadow mode
		s.Mode = Shadowing
	case "enforce":
		s.Mode = Enforcing
	default:
		return fmt.Errorf("unknown mode %q", environment)
	}
	switch c.EnforcementMode {
	case "", "enforce": // one bouncer cannot enforce what its environment does not
	case "shadow":
		s.RolledBack = s.Mode == Enforcing
		s.Mode = Shadowing
	default:
		return fmt.Errorf("configuration.enforcement_mode: unknown mode %q", c.EnforcementMode)
	}
	switch c.DefaultAction {
	case "", "pass_through":
	case "deny":
		s.DenyByDefault = true
	default:
		return fmt.Errorf("configuration.default_action: %q is neither pass_through nor deny", c.DefaultAction)
	}
	if c.MaxStale != "" {
		d, err := time.ParseDuration(c.MaxStale)
		if err != nil || d < 0 {
			return fmt.Errorf("configuration.max_stale: %q is not a duration", c.MaxStale)
		}
		s.MaxStale = d
	}
	switch c.Audit {
	case "", "best_effort":
	case "required":
		s.LogRequired = true
	default:
		return fmt.Errorf("configuration.audit: %q is neither best_effort nor required", c.Audit)
	}
	switch c.Discovery {
	case "", "on":
		s.Discovery = true
	case "off":
	default:
		return fmt.Errorf("configuration.discovery: %q is neither on nor off", c.Discovery)
	}
	return nil
}

func (s *Settings) readNames(c identity.Config) error {
	s.Names = header.DefaultNames()
	for _, n := range []struct {
		to   *string
		from string
	}{{&s.Names.User, c.UserHeader}, {&s.Names.Email, c.EmailHeader}, {&s.Names.Groups, c.GroupsHeader}} {
		if n.from == "" {
			continue
		}
		name, odd := header.Fold(textproto.CanonicalMIMEHeaderKey(n.from))
		if odd || header.IsHopByHop(name) || header.IsFraming(name) {
			return fmt.Errorf("configuration.identity: %q cannot carry an identity", n.from)
		}
		*n.to = name
	}
	if c.TokenHeader != "" && !strings.EqualFold(c.TokenHeader, "Authorization") {
		name, odd := header.Fold(textproto.CanonicalMIMEHeaderKey(c.TokenHeader))
		if odd || header.IsHopByHop(name) || header.IsFraming(name) || name == s.Names.User || name == s.Names.Email || name == s.Names.Groups {
			return fmt.Errorf("configuration.identity.token_header: %q cannot carry a token", c.TokenHeader)
		}
		s.Names.Token = name
	}
	if s.Names.User == s.Names.Email || s.Names.User == s.Names.Groups || s.Names.Email == s.Names.Groups {
		return errors.New("configuration.identity: the three identity headers must have different names")
	}
	return nil
}

// readTokens creates the token verifier. If its configuration is unchanged, it keeps the one that
// is running, whose keys and verified tokens are still valid.
func (r *Reader) readTokens(s *Settings, c identity.Config, before *Settings) error {
	if !c.HasKeys() {
		return nil
	}
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	s.identity = string(data)
	if before != nil && before.identity == s.identity {
		s.Tokens = before.Tokens
		return nil
	}
	s.Tokens, err = identity.NewVerifier(c, r.Client, r.Now)
	return err
}

// Initial returns the settings before the first bundle. They trust the proxies in the configuration
// of the process, and have no keys.
func Initial(initial Mode, trusted []netip.Prefix) *Settings {
	return &Settings{Mode: initial, Names: header.DefaultNames(), Trusted: trusted, Cache: true}
}

// IdentityFields passes the identity headers for the application to add: one value each, and none
// for what is unknown.
func (s *Settings) IdentityFields(who *identity.Caller, add func(name, value string)) {
	if who == nil || !who.IsKnown() {
		return
	}
	add(s.Names.User, who.ID)
	if who.Email != "" {
		add(s.Names.Email, who.Email)
	}
	var list []string
	for _, g := range who.Groups {
		// A comma in the name of a group would turn it into two groups.
		if g != "" && header.IsSafe(g) && !strings.Contains(g, ",") {
			list = append(list, g)
		}
	}
	if len(list) > 0 {
		add(s.Names.Groups, strings.Join(list, ","))
	}
}

// ShownHeaders returns the request headers that controls may see, with names in lower case.
func (s *Settings) ShownHeaders(h http.Header) map[string]string {
	if len(s.ShowHeaders) == 0 {
		return nil
	}
	out := make(map[string]string, len(s.ShowHeaders))
	for _, name := range s.ShowHeaders {
		if lines := h[name]; len(lines) > 0 {
			out[strings.ToLower(name)] = strings.Join(lines, ", ")
		}
	}
	return out
}

// CopyShown copies the headers that a decision reads, because the server reuses the request's map
// after the handler returns.
func (s *Settings) CopyShown(h http.Header) http.Header {
	if len(s.ShowHeaders) == 0 {
		return nil
	}
	out := make(http.Header, len(s.ShowHeaders))
	for _, name := range s.ShowHeaders {
		if lines := h[name]; len(lines) > 0 {
			out[name] = slices.Clone(lines)
		}
	}
	return out
}
