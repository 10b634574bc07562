package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/jwks"
)

// Config says how callers prove their identity.
type Config struct {
	JWKSURL    string          `json:"jwks_url"`
	JWKS       json.RawMessage `json:"jwks"`        // an inline key set
	PublicKeys []string        `json:"public_keys"` // PEM
	Issuer     string          `json:"issuer"`
	Audience   Texts           `json:"audience"` // the token must be for one of them
	// TokenHeader is the header of the token. The default is Authorization with a bearer token.
	TokenHeader string `json:"token_header"`
	// PassToken forwards verified tokens to the application.
	PassToken bool `json:"pass_token"`
	// LeewaySeconds is the accepted clock difference, 0 to 60.
	LeewaySeconds int `json:"leeway_seconds"`

	UserClaim   string `json:"user_claim"`   // default sub
	EmailClaim  string `json:"email_claim"`  // default email
	RolesClaim  string `json:"roles_claim"`  // default roles
	GroupsClaim string `json:"groups_claim"` // default groups

	// UserHeader, EmailHeader and GroupsHeader replace X-Auth-Request-User, -Email and -Groups.
	UserHeader   string `json:"user_header"`
	EmailHeader  string `json:"email_header"`
	GroupsHeader string `json:"groups_header"`
	// TrustedProxies is ignored if the bouncer's own configuration names proxies.
	TrustedProxies []string `json:"trusted_proxies"`
	// ForwardAuthHeaders accepts identity headers on /_bouncer/auth too. nginx and Traefik forward
	// what the client sent, so this is off by default.
	ForwardAuthHeaders bool `json:"forward_auth_headers"`
}

// Texts is a JSON string or an array of strings.
type Texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = Texts{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// HasKeys reports whether keys are configured, so that bearer tokens are verified.
func (c *Config) HasKeys() bool {
	return c.JWKSURL != "" || len(c.JWKS) > 0 || len(c.PublicKeys) > 0
}

// NewVerifier returns the verifier for a configuration with keys. client fetches the key set; now
// is the clock.
func NewVerifier(c Config, client *http.Client, now func() time.Time) (*Verifier, error) {
	if c.Issuer == "" || len(c.Audience) == 0 {
		return nil, errors.New("configuration.identity: keys need an issuer and an audience to check")
	}
	if c.LeewaySeconds < 0 || c.LeewaySeconds > 60 {
		return nil, errors.New("configuration.identity.leeway_seconds: 0 to 60")
	}
	keys := &jwks.Set{URL: c.JWKSURL, Client: client, Now: now}
	if c.JWKSURL != "" {
		u, err := url.Parse(c.JWKSURL)
		if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.User != nil {
			return nil, errors.New("configuration.identity.jwks_url: an http(s) address is needed")
		}
	}
	if len(c.JWKS) > 0 {
		var err error
		if keys.Static, err = jwks.Parse(c.JWKS); err != nil {
			return nil, fmt.Errorf("configuration.identity.jwks: %w", err)
		}
	}
	for i, text := range c.PublicKeys {
		k, err := jwks.ParsePEM(text)
		if err != nil {
			return nil, fmt.Errorf("configuration.identity.public_keys[%d]: %w", i, err)
		}
		keys.Static = append(keys.Static, k)
	}
	return newVerifier(c, keys, now), nil
}
