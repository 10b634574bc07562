// Package signon lets the people of a tenant sign in at their own identity provider: OpenID
// Connect's authorization code flow with PKCE (RFC 7636), state and nonce.
//
//	browser ─GET /auth/sso/login─▶ Start ──302──▶ provider
//	   ◀──────────── 302 with code and state ────────┘
//	browser ─GET /auth/sso/callback─▶ Finish: state once ─▶ code for tokens ─▶ ID token
//	                                  checked ─▶ person found or added ─▶ session cookie
//
// Only issuer and subject identify a person, never an e-mail address: the owner of another provider
// could claim any address. The start of a sign-in stores nothing on the server: a sealed cookie in
// the browser has the state, the nonce and the PKCE verifier.
package signon

import (
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// flowLife is how long a sign-in at the provider may take.
const flowLife = 10 * time.Minute

// The bounds on the settings.
const (
	maxRules = 200
	maxRoles = 64
)

// Settings say how a tenant's people sign in at an identity provider.
type Settings struct {
	Enabled         bool                `json:"enabled" doc:"Whether people can sign in at the provider."`
	Name            string              `json:"name" doc:"Name of the provider, for the button on the sign-in page."`
	Issuer          string              `json:"issuer" doc:"The provider's issuer identifier. Its configuration is read from /.well-known/openid-configuration below it."`
	ClientID        string              `json:"client_id" doc:"The id of this server at the provider."`
	Scopes          []string            `json:"scopes" nullable:"false" doc:"Scopes to request; openid is always one of them."`
	Audience        string              `json:"audience" doc:"The parameter audience of authorization requests, if the provider needs one; empty: not sent."`
	RoleClaim       string              `json:"role_claim" doc:"Claim with the person's roles or groups at the provider: a name, or a JSON pointer such as /realm_access/roles. Empty: the provider does not manage roles."`
	RoleMap         map[string][]string `json:"role_map" doc:"The gatehouse roles for each value of the role claim. Values without an entry give none."`
	DefaultRoles    []string            `json:"default_roles" nullable:"false" doc:"Roles of everybody who signs in at the provider."`
	DepartmentClaim string              `json:"department_claim" doc:"Claim with the person's department: a name or a JSON pointer; empty: you manage departments in gatehouse."`
	AttributeClaims map[string]string   `json:"attribute_claims" doc:"The claim, by name or JSON pointer, from which each attribute of the person is read."`
	EmailDomains    []string            `json:"allowed_email_domains" nullable:"false" doc:"Domains that a verified e-mail address must have; empty: any."`
	CreateUsers     bool                `json:"create_users" doc:"Whether the first sign-in of an unknown person adds them. Otherwise, an administrator links each person to the provider first."`
	PasswordLogin   bool                `json:"password_login" doc:"Whether people of the tenant may sign in with a password, too."`
}

// SignOn is the stored record, with what to register at the provider.
type SignOn struct {
	Settings
	SecretSet bool `json:"client_secret_set" doc:"Whether a client secret is stored. It is never returned."`
	Registration
	UpdatedAt time.Time `json:"updated_at" doc:"When the record last changed."`
}

// Registration is what to register at the provider.
type Registration struct {
	RedirectURI string `json:"redirect_uri" doc:"The redirect URI to register at the provider. If people use a domain of the tenant, also register the same path there."`
	LogoutURI   string `json:"backchannel_logout_uri" doc:"The back-channel logout URI to register at the provider."`
	ReturnURI   string `json:"post_logout_redirect_uri" doc:"The post-logout redirect URI to register at the provider."`
}

// Change is a change of the record: absent members stay, and null restores the default.
type Change struct {
	Enabled         patch.Field[bool]                `json:"enabled,omitzero" doc:"Whether people can sign in at the provider; by default they can. Enabling fetches the provider's configuration."`
	Name            patch.Field[string]              `json:"name,omitzero" maxLength:"64" doc:"Name of the provider, for the button on the sign-in page."`
	Issuer          patch.Field[string]              `json:"issuer,omitzero" minLength:"1" maxLength:"512" doc:"The provider's issuer identifier. With another issuer, the client secret must be sent again."`
	ClientID        patch.Field[string]              `json:"client_id,omitzero" minLength:"1" maxLength:"256" doc:"The id of this server at the provider."`
	ClientSecret    patch.Field[string]              `json:"client_secret,omitzero" maxLength:"1024" writeOnly:"true" doc:"The client's secret; null for a public client. Encrypted at rest and never returned."`
	Scopes          patch.Field[[]string]            `json:"scopes,omitzero" maxItems:"32" doc:"Scopes to request; by default openid, email and profile."`
	Audience        patch.Field[string]              `json:"audience,omitzero" maxLength:"512" doc:"The parameter audience of authorization requests."`
	RoleClaim       patch.Field[string]              `json:"role_claim,omitzero" maxLength:"256" doc:"Claim with the person's roles or groups at the provider: a name, or a JSON pointer such as /realm_access/roles."`
	RoleMap         patch.Field[map[string][]string] `json:"role_map,omitzero" doc:"The gatehouse roles for each value of the role claim. The caller must hold what they allow."`
	DefaultRoles    patch.Field[[]string]            `json:"default_roles,omitzero" maxItems:"64" doc:"Roles of everybody who signs in at the provider. The caller must hold what they allow."`
	DepartmentClaim patch.Field[string]              `json:"department_claim,omitzero" maxLength:"256" doc:"Claim with the person's department: a name or a JSON pointer."`
	AttributeClaims patch.Field[map[string]string]   `json:"attribute_claims,omitzero" doc:"The claim from which each attribute of the person is read. amr and acr are always read and cannot be named."`
	EmailDomains    patch.Field[[]string]            `json:"allowed_email_domains,omitzero" maxItems:"100" doc:"Domains that a verified e-mail address must have; empty: any."`
	CreateUsers     patch.Field[bool]                `json:"create_users,omitzero" doc:"Whether the first sign-in of an unknown person adds them; by default not."`
	PasswordLogin   patch.Field[bool]                `json:"password_login,omitzero" doc:"Whether people may sign in with a password, too; by default they may. On the server's host, gatehouse admin reset-password turns it on again."`
}

// Offer is what the sign-in page needs to know of a tenant.
type Offer struct {
	Available     bool   `json:"available" doc:"Whether people of the tenant can sign in at an identity provider."`
	Name          string `json:"name" doc:"Name of the provider; empty if there is none."`
	PasswordLogin bool   `json:"password_login" doc:"Whether people of the tenant can sign in with a password."`
}

// defaults returns the settings that the first change starts from.
func defaults() Settings {
	return Settings{Enabled: true, Scopes: []string{"openid", "email", "profile"}, PasswordLogin: true}
}

// apply returns the settings after a change, in their stored form.
func (s Settings) apply(c Change) Settings {
	def := defaults()
	set(&s.Enabled, c.Enabled, def.Enabled)
	set(&s.Name, c.Name, "")
	set(&s.Issuer, c.Issuer, "")
	set(&s.ClientID, c.ClientID, "")
	set(&s.Scopes, c.Scopes, def.Scopes)
	set(&s.Audience, c.Audience, "")
	set(&s.RoleClaim, c.RoleClaim, "")
	set(&s.RoleMap, c.RoleMap, nil)
	set(&s.DefaultRoles, c.DefaultRoles, nil)
	set(&s.DepartmentClaim, c.DepartmentClaim, "")
	set(&s.AttributeClaims, c.AttributeClaims, nil)
	set(&s.EmailDomains, c.EmailDomains, nil)
	set(&s.CreateUsers, c.CreateUsers, def.CreateUsers)
	set(&s.PasswordLogin, c.PasswordLogin, def.PasswordLogin)
	return s.normal()
}

// set sets dst to the value of a field that was sent, or to the default if the field is null.
func set[T any](dst *T, f patch.Field[T], def T) {
	if f.Null {
		*dst = def
		return
	}
	f.Apply(dst)
}

// normal returns the settings in their stored form.
func (s Settings) normal() Settings {
	if !slices.Contains(s.Scopes, "openid") {
		s.Scopes = append([]string{"openid"}, s.Scopes...)
	}
	s.DefaultRoles = user.FoldRoles(s.DefaultRoles)
	roles := make(map[string][]string, len(s.RoleMap))
	for value, names := range s.RoleMap {
		roles[value] = user.FoldRoles(names)
	}
	s.RoleMap = roles
	if s.AttributeClaims == nil {
		s.AttributeClaims = map[string]string{}
	}
	domains := make([]string, 0, len(s.EmailDomains))
	for _, d := range s.EmailDomains {
		domains = append(domains, foldDomain(strings.TrimSpace(d)))
	}
	s.EmailDomains = domains
	return s
}

// foldDomain returns the form in which domains of e-mail addresses are compared. It lowers only
// ASCII letters. Unicode's rules also map other characters to these, such as the Kelvin sign to k,
// and would let another domain pass for an allowed one.
func foldDomain(domain string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, domain)
}

// roles returns all roles that the settings can assign.
func (s Settings) roles() []string {
	return user.MappedRoles(s.DefaultRoles, s.RoleMap)
}

// checkIssuer refuses issuer identifiers with a query or a fragment (OpenID Connect Discovery
// section 3).
func checkIssuer(issuer string) error {
	if strings.ContainsAny(issuer, "?#") {
		return fault.Invalidf("/issuer", "must have no query and no fragment")
	}
	return nil
}

// check validates the settings, without a call to the provider. It returns all errors at once, as
// Invalid faults.
func (s Settings) check() error {
	var bad []error
	wrong := func(pointer, format string, args ...any) { bad = append(bad, fault.Invalidf(pointer, format, args...)) }
	if s.Issuer == "" {
		wrong("/issuer", "is missing")
	} else if err := checkIssuer(s.Issuer); err != nil {
		bad = append(bad, err)
	}
	if s.ClientID == "" {
		wrong("/client_id", "is missing")
	}
	for i, scope := range s.Scopes {
		if scope == "" || strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || r > '~' }) {
			wrong(index("/scopes", i), "is not a scope")
		}
	}
	for i, d := range s.EmailDomains {
		if d == "" || strings.ContainsAny(d, "@ ") || !strings.Contains(d, ".") {
			wrong(index("/allowed_email_domains", i), "must be a domain such as example.com")
		}
	}
	if len(s.RoleMap) > maxRules {
		wrong("/role_map", "must have at most %d entries", maxRules)
	}
	if len(s.RoleMap) > 0 && s.RoleClaim == "" {
		wrong("/role_claim", "is missing: role_map maps its values")
	}
	if roles := s.roles(); len(roles) > maxRoles {
		wrong("/role_map", "must give at most %d different roles", maxRoles)
	} else if err := user.CheckRoles("/role_map", roles); err != nil {
		bad = append(bad, err)
	}
	if len(s.AttributeClaims) > maxRules {
		wrong("/attribute_claims", "must have at most %d entries", maxRules)
	}
	for name, claim := range s.AttributeClaims {
		switch {
		case name == user.MethodsAttribute || name == user.LevelAttribute:
			wrong("/attribute_claims/"+name, "is always taken from the claim of its name")
		case name == "" || claim == "" || len(name) > 128 || len(claim) > 256:
			wrong("/attribute_claims", "must name attributes of 1 to 128 and claims of 1 to 256 characters")
		}
	}
	return fault.Join(bad...)
}
