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
	"github.com/gatehouse-dev/gatehouse/internal/lockout"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// failureWindow is the time in which the failures of a network are counted.
const failureWindow = 15 * time.Minute

// seatsTenant is how many calls of one tenant may wait for its provider at once: more than one
// network may make, and half of all.
const seatsTenant = 256

// lock is the name of the lock that is held while a tenant's record changes.
const lock = "sign_on"

// Service holds the use cases of sign-on. All fields are needed.
type Service struct {
	Stores *db.Cluster
	Auth   *auth.Service
	Users  *user.Service
	// Box seals client secrets, flows and ID tokens.
	Box    *secret.Box
	Target *outbound.Client
	Now    func() time.Time
	Random io.Reader
	// Count counts failures in a time window (cache.Cache.Count).
	Count func(ctx context.Context, tenant, key string, n int64, window time.Duration) (cache.Window, error)
	// URL is the address at which browsers reach this server, without a path.
	URL string
	// Provisioned returns the id of the person whom the tenant's directory added with a subject of
	// the provider (scim.BySubject). Fault: NotFound.
	Provisioned func(ctx context.Context, tx *db.Tx, subject string) (string, error)
	// Managed reports whether the directory decides a person's roles and department
	// (scim.Manages).
	Managed func(ctx context.Context, tx *db.Tx, userID string) (bool, error)

	providers providers
	// networks and tenants count the calls that may wait for a provider, by network and by tenant, so
	// that a provider that hangs delays only the sign-ins of its own tenant.
	networks, tenants lockout.Limiter
}

// The paths that providers and browsers are sent to.
const (
	callbackPath = "/api/v1/auth/sso/callback"
	logoutPath   = "/api/v1/auth/sso/backchannel-logout"
	signInPage   = "/login"
)

// Get returns the tenant's record. Fault: NotFound if it has none.
func (s *Service) Get(ctx context.Context, sc scope.Scope) (SignOn, error) {
	r, err := s.load(ctx, sc.Tenant)
	return s.view(sc.Tenant, r), err
}

func (s *Service) load(ctx context.Context, t scope.TenantID) (record, error) {
	return db.Read(ctx, s.Stores, t, func(tx *db.Tx) (record, error) { return selectRecord(ctx, tx) })
}

func (s *Service) view(t scope.TenantID, r record) SignOn {
	return SignOn{Settings: r.Settings, SecretSet: len(r.Secret) > 0, UpdatedAt: r.UpdatedAt, Registration: s.registration(t)}
}

func (s *Service) registration(t scope.TenantID) Registration {
	return Registration{
		RedirectURI: s.URL + callbackPath, LogoutURI: s.URL + logoutPath + "?" + url.Values{"tenant_id": {string(t)}}.Encode(), ReturnURI: s.URL + signInPage,
	}
}

// Put creates the tenant's record, or changes the members that were sent. The caller must hold the
// permissions of all roles in the record, because the provider decides who gets these roles. Faults:
// Invalid, Forbidden, Conflict, target_refused, provider_unfit.
func (s *Service) Put(ctx context.Context, sc scope.Scope, ch Change) (SignOn, error) {
	before, err := s.load(ctx, sc.Tenant)
	if fault.Is(err, fault.NotFound) {
		before, err = record{Settings: defaults()}, nil
	}
	if err != nil {
		return SignOn{}, err
	}
	after, err := s.applyChange(sc, before, ch)
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

// applyChange returns a record after a change. Faults: Invalid, and Forbidden if the caller may not make
// the change.
func (s *Service) applyChange(sc scope.Scope, before record, ch Change) (record, error) {
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
		// Compare the whole issuer: one host may serve several providers on different paths.
		f := fault.Invalidf("/client_secret", "another issuer needs the secret again")
		f.Code = "credential_required"
		return record{}, f
	}
	return after, nil
}

// Delete removes the tenant's provider. Sessions stay, and people sign in with passwords again.
// Faults: NotFound, Forbidden.
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

// Offer returns how people of a tenant can sign in. A tenant that is not served looks like one
// without a provider.
func (s *Service) Offer(ctx context.Context, t scope.TenantID) (Offer, error) {
	r, err := s.enabledRecord(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return Offer{PasswordLogin: true}, nil
	}
	return Offer{Available: true, Name: r.Settings.Name, PasswordLogin: r.Settings.PasswordLogin}, err
}

// enabledRecord returns the record of a tenant that is served and has an enabled provider. For all others
// it returns the same fault, NotFound sign_on_off.
func (s *Service) enabledRecord(ctx context.Context, t scope.TenantID) (record, error) {
	none := fault.New(fault.NotFound, "sign_on_off", "single sign-on is not enabled for this tenant")
	home, served, err := s.Auth.HomeTenant(ctx, t)
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

// PasswordsDisabled reports whether people of a tenant may not sign in with a password. It is
// auth.Config.PasswordsOff.
func PasswordsDisabled(ctx context.Context, tx *db.Tx) (bool, error) {
	n, err := countPasswordsOff(ctx, tx)
	return n > 0, err
}

// EnablePasswords allows people of a tenant to sign in with a password again. It is
// auth.Config.PasswordsOn.
func EnablePasswords(ctx context.Context, tx *db.Tx) error {
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

// Disable turns off the sign-on of a tenant, within tx. It is one of tenant.Service.RevokeHooks:
// nobody may sign in to a deleted tenant.
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

// admit admits a call that may wait for a provider. It limits the calls at a time from one network
// and for one tenant, and delays networks with many failures. The caller must call leave. Fault:
// RateLimited.
func (s *Service) admit(ctx context.Context, sc scope.Scope, t scope.TenantID) (leave func(), err error) {
	network, tenant := lockout.Network(sc.Actor.IP), string(t)
	if !s.networks.Acquire(network, lockout.MaxInNetwork) {
		return nil, lockout.TooManySignIns()
	}
	failed, err := s.failures(ctx, sc, 0)
	if err == nil {
		err = s.Auth.Pause(ctx, lockout.NetworkDelay(failed))
	}
	if err == nil && !s.tenants.Acquire(tenant, seatsTenant) {
		err = lockout.TooManySignIns()
	}
	if err != nil {
		s.networks.Release(network)
		return nil, err
	}
	return func() { s.tenants.Release(tenant); s.networks.Release(network) }, nil
}

// failures counts n more failures of the caller's network, and returns how many there were within
// failureWindow.
func (s *Service) failures(ctx context.Context, sc scope.Scope, n int64) (int64, error) {
	w, err := s.Count(ctx, string(scope.DefaultTenant), "sign-on:"+lockout.Network(sc.Actor.IP), n, failureWindow)
	return w.Count, err
}

func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, kind string, about map[string]any) error {
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: kind, Object: "sign_on", ObjectID: "sign_on", ObjectName: "sign-on", EventContext: about})
}

// secretPlace names the tenant and purpose that a sealed client secret is bound to.
func secretPlace(t scope.TenantID) string { return "sign_on/" + string(t) + "/client_secret" }

func index(pointer string, i int) string { return pointer + "/" + strconv.Itoa(i) }
