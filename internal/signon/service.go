package signon

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/guess"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// failureWindow is how long the failures of a network count.
const failureWindow = 15 * time.Minute

// seatsTenant is how many calls of one tenant may wait for its provider at once: more than
// one network can make, and half of all.
const seatsTenant = 256

// lock is held while a tenant's record changes.
const lock = "sign_on"

// Service holds the use cases of sign-on. All fields are needed.
type Service struct {
	Stores *db.Cluster
	Auth   *auth.Service
	Users  *user.Service
	// Box seals client secrets, sign-ins in progress and ID tokens.
	Box    *secret.Box
	Target *outbound.Client
	Now    func() time.Time
	Random io.Reader
	// Count counts failures in a window (cache.Cache.Count).
	Count func(ctx context.Context, tenant, key string, n int64, window time.Duration) (cache.Window, error)
	// URL is where browsers reach this server, without a path.
	URL string
	// Provisioned finds the person whom the tenant's directory added with a subject of the
	// provider (scim.BySubject). Fault: NotFound.
	Provisioned func(ctx context.Context, tx *db.Tx, subject string) (string, error)
	// Managed reports whether the directory decides on a person's roles and department
	// (scim.Manages).
	Managed func(ctx context.Context, tx *db.Tx, userID string) (bool, error)

	providers providers
	// Sign-ins in progress, by network and by tenant: a provider that hangs holds up the
	// sign-ins of its own tenant alone.
	networks, tenants guess.Lobby
}

// Paths of the operations that providers and browsers are sent to.
const (
	callbackPath = "/api/v1/auth/sso/callback"
	logoutPath   = "/api/v1/auth/sso/backchannel-logout"
	signInPage   = "/login"
)

// Get returns the tenant's record. Fault: NotFound where it has none.
func (s *Service) Get(ctx context.Context, sc scope.Scope) (SignOn, error) {
	r, err := s.load(ctx, sc.Tenant)
	return s.view(sc.Tenant, r), err
}

func (s *Service) load(ctx context.Context, t scope.TenantID) (record, error) {
	var r record
	err := s.Stores.Read(ctx, t, func(tx *db.Tx) (err error) {
		r, err = selectRecord(ctx, tx)
		return err
	})
	return r, err
}

func (s *Service) view(t scope.TenantID, r record) SignOn {
	return SignOn{Settings: r.Settings, SecretSet: len(r.Secret) > 0, UpdatedAt: r.UpdatedAt, Registration: s.registration(t)}
}

func (s *Service) registration(t scope.TenantID) Registration {
	return Registration{
		RedirectURI: s.URL + callbackPath, LogoutURI: s.URL + logoutPath + "?" + url.Values{"tenant_id": {string(t)}}.Encode(), ReturnURI: s.URL + signInPage,
	}
}

// Put makes the tenant's record, or changes what was sent. The caller must hold what all
// roles of the record allow: whoever chooses the provider chooses who gets them. Faults:
// Invalid, Forbidden, target_refused, provider_unfit.
func (s *Service) Put(ctx context.Context, sc scope.Scope, ch Change) (SignOn, error) {
	before, err := s.load(ctx, sc.Tenant)
	if fault.Is(err, fault.NotFound) {
		before, err = record{Settings: defaults()}, nil
	}
	if err != nil {
		return SignOn{}, err
	}
	after, err := s.changed(sc, before, ch)
	if err != nil {
		return SignOn{}, err
	}
	if after.Settings.Enabled {
		_, err = s.probe(ctx, after.Settings.Issuer)
	} else {
		err = s.Target.Check(ctx, "/issuer", after.Settings.Issuer)
	}
	if err != nil {
		return SignOn{}, err
	}
	err = s.Stores.WriteUnder(ctx, sc.Tenant, lock, func(tx *db.Tx) error {
		now, err := selectRecord(ctx, tx)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if !now.UpdatedAt.Equal(before.UpdatedAt) {
			return fault.New(fault.Conflict, "sign_on_changed", "another request changed the sign-on; try again")
		}
		if err := putRecord(ctx, tx, after); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, "SIGN_ON_UPDATED", map[string]any{
			"enabled": after.Settings.Enabled, "issuer": after.Settings.Issuer, "client_id": after.Settings.ClientID,
			"create_users": after.Settings.CreateUsers, "password_login": after.Settings.PasswordLogin,
			"roles": after.Settings.roles(), "client_secret_changed": ch.ClientSecret.Sent,
		})
	})
	return s.view(sc.Tenant, after), err
}

// changed is a record after a change that the caller may make.
func (s *Service) changed(sc scope.Scope, before record, ch Change) (record, error) {
	after := record{Settings: before.Settings.apply(ch), Secret: before.Secret, UpdatedAt: db.Stamp(s.Now())}
	if !after.UpdatedAt.After(before.UpdatedAt) {
		after.UpdatedAt = before.UpdatedAt.Add(time.Microsecond)
	}
	if err := after.Settings.check(); err != nil {
		return record{}, err
	}
	if err := user.MayGrantRoles(sc, append(before.Settings.roles(), after.Settings.roles()...)); err != nil {
		return record{}, err
	}
	switch {
	case ch.ClientSecret.Sent:
		after.Secret = nil
		if ch.ClientSecret.Value != "" {
			sealed, err := s.Box.Seal([]byte(ch.ClientSecret.Value), secretPlace(sc.Tenant))
			if err != nil {
				return record{}, fault.Wrap(err, "seal the client secret")
			}
			after.Secret = sealed
		}
	case len(before.Secret) > 0 && before.Settings.Issuer != after.Settings.Issuer:
		// Even one host may serve several providers, each with a path of its own.
		f := fault.Invalidf("/client_secret", "another issuer needs the secret again")
		f.Code = "credential_required"
		return record{}, f
	}
	return after, nil
}

// Delete takes the tenant's provider away. Sessions go on; people sign in with passwords
// again.
func (s *Service) Delete(ctx context.Context, sc scope.Scope) error {
	return s.Stores.WriteUnder(ctx, sc.Tenant, lock, func(tx *db.Tx) error {
		r, err := selectRecord(ctx, tx)
		if err != nil {
			return err
		}
		if err := user.MayGrantRoles(sc, r.Settings.roles()); err != nil {
			return err
		}
		if err := deleteRecord(ctx, tx); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, "SIGN_ON_DELETED", map[string]any{"issuer": r.Settings.Issuer})
	})
}

// Offer says how people of a tenant can sign in. A tenant that is not served looks like one
// without a provider.
func (s *Service) Offer(ctx context.Context, t scope.TenantID) (Offer, error) {
	r, err := s.served(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return Offer{PasswordLogin: true}, nil
	}
	return Offer{Available: true, Name: r.Settings.Name, PasswordLogin: r.Settings.PasswordLogin}, err
}

// served is the record of a tenant that is served and has its provider enabled; else the
// one NotFound.
func (s *Service) served(ctx context.Context, t scope.TenantID) (record, error) {
	none := fault.New(fault.NotFound, "sign_on_off", "people of this tenant do not sign in at an identity provider")
	home, served, err := s.Auth.Serving(ctx, t)
	if err != nil {
		return record{}, err
	}
	r, err := s.load(ctx, home)
	if err == nil && !served {
		return record{}, none
	}
	if fault.Is(err, fault.NotFound) || err == nil && !r.Settings.Enabled {
		return r, none
	}
	return r, err
}

// PasswordsOff reports whether people of a tenant may not sign in with a password. It is
// auth.Config.PasswordsOff.
func PasswordsOff(ctx context.Context, tx *db.Tx) (bool, error) {
	n, err := countPasswordsOff(ctx, tx)
	return n > 0, err
}

// PasswordsOn lets people of a tenant sign in with a password again. It is
// auth.Config.PasswordsOn.
func PasswordsOn(ctx context.Context, tx *db.Tx) error {
	r, err := selectRecord(ctx, tx)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r.Settings.PasswordLogin = true
	return putRecord(ctx, tx, r)
}

// Disable turns the sign-on of a tenant off, within tx. It is one of
// tenant.Service.RevokeHooks: nobody signs in to a tenant that was deleted.
func Disable(ctx context.Context, tx *db.Tx) error {
	r, err := selectRecord(ctx, tx)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r.Settings.Enabled = false
	return putRecord(ctx, tx, r)
}

// enter admits a call that may wait for a provider: so many at once from one network, which
// is slowed after many failures, and for one tenant. Whoever got in leaves.
func (s *Service) enter(ctx context.Context, sc scope.Scope, t scope.TenantID) (leave func(), err error) {
	network, tenant := guess.Network(sc.Actor.IP), string(t)
	if !s.networks.Enter(network, guess.SeatsNetwork) {
		return nil, guess.TooManySignIns()
	}
	failed, err := s.failures(ctx, sc, 0)
	if err == nil {
		err = s.Auth.Pause(ctx, guess.NetworkDelay(failed))
	}
	if err == nil && !s.tenants.Enter(tenant, seatsTenant) {
		err = guess.TooManySignIns()
	}
	if err != nil {
		s.networks.Leave(network)
		return nil, err
	}
	return func() { s.tenants.Leave(tenant); s.networks.Leave(network) }, nil
}

// failures counts n more failures of a network and returns how many there were lately.
func (s *Service) failures(ctx context.Context, sc scope.Scope, n int64) (int64, error) {
	w, err := s.Count(ctx, string(scope.DefaultTenant), "sign-on:"+guess.Network(sc.Actor.IP), n, failureWindow)
	return w.Count, err
}

func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, kind string, about map[string]any) error {
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: kind, Object: "sign_on", ObjectID: "sign_on", ObjectName: "sign-on", EventContext: about})
}

// secretPlace is what a sealed client secret is bound to.
func secretPlace(t scope.TenantID) string { return "sign_on/" + string(t) + "/client_secret" }

func index(pointer string, i int) string { return pointer + "/" + strconv.Itoa(i) }
