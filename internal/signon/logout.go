package signon

import (
	"context"
	"encoding/base64"
	"net/url"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// endSessionWait is how long a sign-out waits for a provider's configuration.
const endSessionWait = 3 * time.Second

// tokenPlace names the tenant and purpose that a sealed ID token is bound to.
func tokenPlace(t scope.TenantID) string { return "sign_on/" + string(t) + "/id_token" }

// federation returns what a session stores about the sign-in at the provider.
func (s *Service) federation(f flow, claims value.Value, idToken string) (auth.Federation, error) {
	by := auth.Federation{Issuer: f.Issuer}
	by.Subject, _ = claims.Get("sub").Str()
	by.ProviderSession, _ = claims.Get("sid").Str()
	sealed, err := s.Box.Seal([]byte(idToken), tokenPlace(f.Tenant))
	by.IDToken = base64.RawStdEncoding.EncodeToString(sealed)
	return by, fault.Wrap(err, "seal an ID token")
}

// EndSessionURL returns the address at which a browser ends its session at the provider, after the
// session here has ended (OpenID Connect RP-Initiated Logout). It is empty if the provider has no
// such address, or if its configuration cannot be read.
func (s *Service) EndSessionURL(ctx context.Context, t scope.TenantID, by auth.Federation) string {
	if by.Issuer == "" {
		return ""
	}
	r, err := s.enabledRecord(ctx, t)
	if err != nil || r.Settings.Issuer != by.Issuer {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, endSessionWait)
	defer cancel()
	p, err := s.provider(ctx, by.Issuer)
	if err != nil || p.endSession == "" {
		return ""
	}
	query := url.Values{"client_id": {r.Settings.ClientID}, "post_logout_redirect_uri": {s.URL + signInPage}}
	if sealed, err := base64.RawStdEncoding.DecodeString(by.IDToken); err == nil {
		if token, err := s.Box.Open(sealed, tokenPlace(t)); err == nil {
			query.Set("id_token_hint", string(token))
		}
	}
	return withQuery(p.endSession, query)
}

// EndOnRequest ends the sessions that a logout token of the tenant's provider names (OpenID Connect
// Back-Channel Logout). Faults: Unauthenticated if the token is not valid, not of the tenant's
// provider, or was used before; NotFound sign_on_off, RateLimited, BadGateway.
func (s *Service) EndOnRequest(ctx context.Context, sc scope.Scope, token string) error {
	r, err := s.enabledRecord(ctx, sc.Tenant)
	if err != nil {
		return err
	}
	leave, err := s.admit(ctx, sc, sc.Tenant)
	if err != nil {
		return err
	}
	defer leave()
	p, err := s.provider(ctx, r.Settings.Issuer)
	if err != nil {
		return err
	}
	claims, err := s.logoutClaims(ctx, p, token, r.Settings.Issuer, r.Settings.ClientID)
	if err != nil {
		return err
	}
	jti, _ := claims.Get("jti").Str()
	by := auth.Federation{Issuer: r.Settings.Issuer}
	by.Subject, _ = claims.Get("sub").Str()
	by.ProviderSession, _ = claims.Get("sid").Str()
	sc.Actor = scope.Actor{Kind: scope.System, ID: "sign-on", Name: "sign-on", IP: sc.Actor.IP}
	return s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		first, err := s.useOnce(ctx, tx, "logout", jti, s.Now().Add(maxTokenAge+2*leeway))
		if err != nil {
			return err
		}
		if !first {
			return refused("invalid_logout_token", "this logout token was used already")
		}
		n, err := auth.EndFederated(ctx, tx, by)
		if err != nil {
			return err
		}
		return s.record(ctx, tx, sc, "SESSION_ENDED", map[string]any{"issuer": by.Issuer, "subject": by.Subject, "sessions": n})
	})
}
