package auth

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// audience is the `aud` of our tokens: only this API.
const audience = "gatehouse"

// claims are the content of a token; its session says who it is for.
type claims struct {
	jwt.RegisteredClaims
	Tenant scope.TenantID `json:"tid"`
}

// session is the stored part of a token. Without the row, the token is not valid.
type session struct {
	ID string `db:"id"`
	// Root is the first session in the chain that this one was made from; a sign-in's own
	// id. Logging out ends all sessions of one root.
	Root   string `db:"root"`
	UserID string `db:"user_id"`
	KeyID  string `db:"key_id"`
	// Limited says that Scopes limit the session; without it, the session may do everything
	// that its person or key may.
	Limited   bool      `db:"limited"`
	Scopes    []string  `db:"scopes"`
	Env       scope.Env `db:"environment"`
	IP        string    `db:"ip"`
	CreatedAt time.Time `db:"created_at"`
	ExpiresAt time.Time `db:"expires_at"`
	// Digest is the hash of a browser's cookie; empty for the session of a token.
	Digest string    `db:"digest"`
	Agent  string    `db:"agent"`
	UsedAt time.Time `db:"used_at"`
	// Proof is what was proved in addition to the password (factor.Proof), or proofLink.
	Proof string `db:"proof"`
	Federation
}

// Grant is a token in the form of the answer (RFC 6749 section 5.1).
type Grant struct {
	AccessToken string `json:"access_token" doc:"Send it as Authorization: Bearer <access_token>."`
	TokenType   string `json:"token_type" enum:"bearer" doc:"Always bearer."`
	ExpiresIn   int64  `json:"expires_in" doc:"Seconds until the token expires."`
	Scope       string `json:"scope,omitempty" doc:"The scopes held, separated by spaces; absent where the roles decide."`
}

// beginSession writes a session and returns its token.
func (s *Service) beginSession(ctx context.Context, tx *db.Tx, t scope.TenantID, ss session) (Grant, error) {
	if err := s.Sessions.open(ctx, tx, &ss, TokenLife); err != nil {
		return Grant{}, err
	}
	subject := cmp.Or(ss.UserID, "key:"+ss.KeyID)
	token, err := s.sign(claims{Tenant: t, RegisteredClaims: jwt.RegisteredClaims{
		Issuer: s.Issuer, Subject: subject, Audience: jwt.ClaimStrings{audience}, ID: ss.ID,
		IssuedAt: jwt.NewNumericDate(ss.CreatedAt), ExpiresAt: jwt.NewNumericDate(ss.ExpiresAt),
	}})
	if err != nil {
		return Grant{}, fault.Wrap(err, "sign a token")
	}
	g := Grant{AccessToken: token, TokenType: "bearer", ExpiresIn: int64(ss.ExpiresAt.Sub(ss.CreatedAt) / time.Second)}
	if ss.Limited {
		g.Scope = strings.Join(ss.Scopes, " ")
	}
	return g, nil
}

// verify checks a token's form, signature and fixed claims. It checks its size and compares
// its header before it parses anything.
func (ring *keyring) verify(ctx context.Context, text string) (claims, error) {
	header, rest, ok := strings.Cut(text, ".")
	if !ok || len(text) > maxCredential || strings.Count(rest, ".") != 1 {
		return claims{}, refused()
	}
	key, ok := ring.keyFor(ctx, header)
	if !ok {
		return claims{}, refused()
	}
	var c claims
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithIssuer(ring.cfg.Issuer), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(ring.cfg.Now), jwt.WithStrictDecoding(),
	)
	_, err := parser.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return ed25519.PublicKey(key.Public), nil })
	if err != nil || c.ID == "" || c.Tenant == "" || len(c.Audience) != 1 {
		return claims{}, refused()
	}
	return c, nil
}

// loadToken makes the entry of a session token.
func (s *Service) loadToken(ctx context.Context, text string, now time.Time) (*entry, error) {
	c, err := s.verify(ctx, text)
	if err != nil {
		return nil, err
	}
	e, err := s.newEntry(ctx, c.Tenant, now)
	if err != nil {
		return nil, err
	}
	e.expires, e.shown = c.ExpiresAt.UnixNano(), asToken
	store, err := s.Stores.Tenant(ctx, c.Tenant)
	if err != nil {
		return nil, err
	}
	err = store.Read(ctx, func(tx *db.Tx) error {
		ss, err := selectSession(ctx, tx, c.ID)
		if err != nil {
			return err
		}
		if !ss.ExpiresAt.After(now) {
			return refused()
		}
		if ss.KeyID != "" {
			return fillFromSessionKey(ctx, tx, e, ss, now, s.Holders)
		}
		if err := fillFromUser(ctx, tx, e, ss); err != nil {
			return err
		}
		return s.Sessions.limitToRoot(ctx, tx, e, ss, now)
	})
	return e, refuseGone(err)
}

// fillFromUser fills an entry for a person's session.
func fillFromUser(ctx context.Context, tx *db.Tx, e *entry, ss session) error {
	u, err := user.ByID(ctx, tx, ss.UserID)
	if err != nil {
		return err
	}
	if u.Status != user.Active {
		return refused()
	}
	ps, platform := user.Permissions(e.tenant.id, u.Roles)
	e.who = Principal{Plan: e.tenant.facts.Load().Plan}
	e.scope = scope.Scope{
		Tenant: e.tenant.id, Env: ss.Env, EnvBound: ss.Env != scope.AnyEnv, Platform: platform, Permissions: ps,
		Actor:   scope.Actor{Kind: scope.Person, ID: u.ID, Name: u.Username, Roles: u.Roles},
		Session: ss.ID,
	}
	e.used = &lastUse{tenant: e.tenant.id, id: ss.ID, session: true}
	e.used.at.Store(ss.UsedAt.UnixNano())
	limitToSession(e, ss)
	e.scope.EnrolOnly, err = mustEnrol(ctx, tx, e.tenant, ss)
	return err
}

// fillFromSessionKey fills an entry for a token that was made from an API key: it can do no
// more than the key, and ends no later.
func fillFromSessionKey(ctx context.Context, tx *db.Tx, e *entry, ss session, now time.Time, holders Holders) error {
	k, err := selectKey(ctx, tx, ss.KeyID)
	if err != nil {
		return err
	}
	if err := fillFromKeyRow(ctx, tx, e, k, now, holders); err != nil {
		return err
	}
	e.scope.Session = ss.ID
	limitToSession(e, ss)
	return nil
}

// limitToSession limits an entry to the scopes of its session.
func limitToSession(e *entry, ss session) {
	if !ss.Limited {
		return
	}
	e.scope.Permissions = user.Intersect(e.scope.Permissions, scope.Permissions{List: parsePermissions(ss.Scopes)})
	e.scope.Platform = false
}

// parsePermissions reads stored scopes as permissions.
func parsePermissions(scopes []string) []scope.Permission {
	out := make([]scope.Permission, len(scopes))
	for i, sc := range scopes {
		out[i] = scope.Permission(sc)
	}
	return user.Imply(out)
}

// IssuePortalToken returns a token for the caller, valid for an hour and for what the caller may do
// now, limited to scopes if there are any. A token made by a session ends with that session
// at the latest.
func (s *Service) IssuePortalToken(ctx context.Context, sc scope.Scope, scopes []string) (Grant, error) {
	ss := session{Env: scope.AnyEnv, IP: sc.Actor.IP}
	if sc.EnvBound {
		ss.Env = sc.Env
	}
	switch sc.Actor.Kind {
	case scope.Person:
		ss.UserID = sc.Actor.ID
	case scope.Key:
		ss.KeyID = sc.Actor.ID
	default:
		return Grant{}, fault.New(fault.Forbidden, "permission_denied", "only people and API keys get tokens")
	}
	asked, err := user.ParseScopes("/scopes", scopes)
	if err != nil {
		return Grant{}, err
	}
	if err := user.MayGrant(sc, scope.Permissions{List: asked}); err != nil {
		return Grant{}, err
	}
	ss.Limited = len(asked) > 0 || !sc.Permissions.All
	if len(asked) == 0 {
		asked = sc.Permissions.List
	}
	if ss.Limited {
		ss.Scopes = user.Scopes(scope.Permissions{List: user.Imply(slices.Clone(asked))})
	}
	home, err := homeStore(ctx, s.Stores, sc)
	if err != nil {
		return Grant{}, err
	}
	var g Grant
	own := sc
	own.Tenant = home.TenantID()
	err = home.Write(ctx, func(tx *db.Tx) (err error) {
		if err := user.RequireActor(ctx, tx, own); err != nil {
			return err
		}
		if sc.Session != "" {
			from, err := selectSession(ctx, tx, sc.Session)
			if errors.Is(err, db.ErrNoRows) {
				return refused()
			}
			if err != nil {
				return err
			}
			// It ends with the session that it was made from: a renewal does not extend it.
			ss.Root, ss.ExpiresAt, ss.Proof = from.Root, from.ExpiresAt, from.Proof
		}
		if ss.KeyID != "" {
			k, err := selectKey(ctx, tx, ss.KeyID)
			if err != nil {
				return err
			}
			if k.ExpiresAt != nil && (ss.ExpiresAt.IsZero() || k.ExpiresAt.Before(ss.ExpiresAt)) {
				ss.ExpiresAt = *k.ExpiresAt
			}
		}
		g, err = s.beginSession(ctx, tx, home.TenantID(), ss)
		return err
	})
	return g, err
}

// homeStore returns the store of the caller's own tenant: platform administrators belong to
// the default tenant wherever they work.
func homeStore(ctx context.Context, stores *db.Cluster, sc scope.Scope) (*db.DB, error) {
	return stores.Tenant(ctx, Home(sc))
}

// Home returns the caller's own tenant, wherever the caller works.
func Home(sc scope.Scope) scope.TenantID {
	if sc.Platform {
		return scope.DefaultTenant
	}
	return sc.Tenant
}
