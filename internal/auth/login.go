package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/big"
	"net/netip"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// FailedLogins is the type of the built-in alert on failed sign-ins. It goes
// through the outbox like an event, but nobody can subscribe to it.
const FailedLogins = "alert.failed_logins"

// The lock on guessing (contract section 3). An address gets more, for many
// people may share one.
const (
	guessWindow    = 15 * time.Minute
	lockTime       = 15 * time.Minute
	accountGuesses = 10
	addressGuesses = 100
	alertAt        = 5
)

// attempt is what is known of the guesses at one account or from one address.
type attempt struct {
	Subject     string    `db:"subject"`
	Failures    int64     `db:"failures"`
	Refused     int64     `db:"refused"`
	Since       time.Time `db:"since"`
	LockedUntil time.Time `db:"locked_until"`
}

// reserve counts a guess before it is checked, so that parallel ones cannot
// pass the limit together. A locked subject is not counted further: the lock
// ends when it was said to.
func (a attempt) reserve(now time.Time, limit int64) (after attempt, locked bool) {
	if now.Before(a.LockedUntil) {
		a.Refused++
		return a, true
	}
	if now.Sub(a.Since) >= guessWindow || !a.LockedUntil.IsZero() {
		a.Failures, a.Since, a.LockedUntil = 0, now, time.Time{}
	}
	a.Failures++
	if a.Failures >= limit {
		a.LockedUntil = now.Add(lockTime)
	}
	return a, false
}

// guess is a sign-in on its way: who it might be, and what was counted.
type guess struct {
	user             user.User // zero: unknown
	account, address attempt
	locked           bool
}

// Login checks a password and begins a session. sc is the scope of a stranger:
// tenant, address, request id. Whatever is wrong, the answer is one 401
// invalid_credentials, after the same work.
func (s *Service) Login(ctx context.Context, sc scope.Scope, name, password string) (Grant, error) {
	return s.login(ctx, sc, name, password, nil)
}

func (s *Service) login(ctx context.Context, sc scope.Scope, name, password string, scopes []string) (Grant, error) {
	store, served, err := s.loginStore(ctx, sc.Tenant)
	if err != nil {
		return Grant{}, err
	}
	if !served { // the same work, for a name that nobody can have
		name = "\ufffd" + string(sc.Tenant) + "\ufffd" + name
	}
	now := s.Now()
	var g guess
	err = store.Write(ctx, func(tx *db.Tx) (err error) {
		g, err = s.reserve(ctx, tx, sc, name, now)
		return err
	})
	if err != nil {
		return Grant{}, err
	}
	right, stale, err := s.Hasher.Verify(ctx, g.user.PasswordHash, password)
	if err != nil {
		return Grant{}, err
	}
	if !right || g.locked || g.user.Status != user.Active {
		if err := store.Write(ctx, func(tx *db.Tx) error { return s.failed(ctx, tx, sc, g) }); err != nil {
			return Grant{}, err
		}
		return Grant{}, wrongPassword()
	}
	rehash := ""
	if stale {
		if rehash, err = s.Hasher.Hash(ctx, password); err != nil {
			return Grant{}, err
		}
	}
	ss := session{UserID: g.user.ID, IP: sc.Actor.IP, Limited: len(scopes) > 0, Scopes: scopes}
	return s.succeed(ctx, store, sc, g, ss, rehash)
}

// wrongPassword is the one answer to every sign-in that fails.
func wrongPassword() error {
	return fault.New(fault.Unauthenticated, "invalid_credentials", "the user name or the password is not right")
}

// loginStore is the store of a tenant in which people can sign in; for any other
// it is the default tenant's, where the attempt is counted and comes to nothing.
func (s *Service) loginStore(ctx context.Context, id scope.TenantID) (store *db.DB, served bool, err error) {
	r, err := s.realm(ctx, id, s.Now())
	if err == nil {
		err = r.serves()
	}
	switch {
	case err == nil:
		served = true
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Forbidden), fault.Is(err, fault.Unauthenticated):
		id = scope.DefaultTenant
	default:
		return nil, false, err
	}
	store, err = s.Stores.Tenant(ctx, id)
	return store, served, err
}

// reserve finds the account and counts the guess, known account or not.
func (s *Service) reserve(ctx context.Context, tx *db.Tx, sc scope.Scope, name string, now time.Time) (guess, error) {
	var g guess
	u, err := user.ByName(ctx, tx, name)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return g, err
	}
	g.user = u
	sum := sha256.Sum256([]byte(user.Fold(name)))
	account := "account:?" + hex.EncodeToString(sum[:])
	if u.ID != "" { // one account under both of its names
		account = "account:" + u.ID
	}
	if g.account, err = lockAttempt(ctx, tx, account); err != nil {
		return g, err
	}
	if g.address, err = lockAttempt(ctx, tx, "address:"+network(sc.Actor.IP)); err != nil {
		return g, err
	}
	var byAccount, byAddress bool
	g.account, byAccount = g.account.reserve(now, accountGuesses)
	g.address, byAddress = g.address.reserve(now, addressGuesses)
	g.locked = byAccount || byAddress
	for _, a := range []attempt{g.account, g.address} {
		if err := putAttempt(ctx, tx, a); err != nil {
			return g, err
		}
	}
	return g, dropAttempts(ctx, tx, now.Add(-24*time.Hour))
}

// network is what an address is counted as: itself, or its /64 for IPv6, which
// is what one household has.
func network(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	if a = a.Unmap(); a.Is6() {
		p, _ := a.WithZone("").Prefix(64)
		return p.String()
	}
	return a.String()
}

// failed writes what a failed sign-in leaves behind. Known and unknown accounts
// leave the same number of rows.
func (s *Service) failed(ctx context.Context, tx *db.Tx, sc scope.Scope, g guess) error {
	if g.locked {
		return noteRefusal(ctx, tx, g.account.Subject)
	}
	now := s.Now()
	sc.Actor = scope.Actor{Kind: scope.Person, Name: "anonymous", IP: sc.Actor.IP}
	data := map[string]any{"failures": g.account.Failures, "ip_address": sc.Actor.IP}
	kind := "LOGIN_FAILED"
	if g.account.Failures >= accountGuesses {
		kind = "ACCOUNT_LOCKED"
		data["locked_until"] = g.account.LockedUntil
	}
	err := audit.Append(ctx, tx, sc, now, audit.Entry{
		Type: kind, Object: "user", ObjectID: g.user.ID, ObjectName: g.user.Username, EventContext: data,
	})
	if err != nil || (g.account.Failures != alertAt && g.account.Failures != accountGuesses) {
		return err
	}
	data["severity"] = "warning"
	return event.Emit(ctx, tx, sc, event.Event{Type: FailedLogins, ObjectKind: "user", ObjectID: g.user.ID, ObjectName: g.user.Username, Data: data})
}

// succeed clears the account's count, takes this guess back from the address's,
// and begins the session.
func (s *Service) succeed(ctx context.Context, store *db.DB, sc scope.Scope, g guess, ss session, rehash string) (Grant, error) {
	now := s.Now()
	var grant Grant
	err := store.Write(ctx, func(tx *db.Tx) error {
		u, err := user.ByID(ctx, tx, g.user.ID)
		if fault.Is(err, fault.NotFound) {
			return wrongPassword()
		}
		if err != nil {
			return err
		}
		if u.Status != user.Active || u.PasswordHash != g.user.PasswordHash { // changed while we hashed
			return wrongPassword()
		}
		if err := dropAttempt(ctx, tx, g.account.Subject); err != nil {
			return err
		}
		if err := takeBack(ctx, tx, g.address.Subject, addressGuesses); err != nil {
			return err
		}
		if err := user.SignedIn(ctx, tx, u.ID, now, rehash); err != nil {
			return err
		}
		if grant, err = s.begin(ctx, tx, store.TenantID(), ss); err != nil {
			return err
		}
		sc.Actor = scope.Actor{Kind: scope.Person, ID: u.ID, Name: u.Username, Roles: u.Roles, IP: sc.Actor.IP}
		return audit.Append(ctx, tx, sc, now, audit.Entry{Type: "LOGIN", Object: "user", ObjectID: u.ID, ObjectName: u.Username})
	})
	return grant, err
}

// Logout ends the session of a token, and those that were made from it.
func (s *Service) Logout(ctx context.Context, sc scope.Scope, bearer string) error {
	if bearer == "" || looksLikeKey(bearer) {
		return fault.New(fault.BadRequest, "not_a_session", "an API key has no session; revoke the key instead")
	}
	c, err := s.verify(ctx, bearer)
	if err != nil {
		return err
	}
	return s.Stores.Write(ctx, c.Tenant, func(tx *db.Tx) error {
		ss, err := selectSession(ctx, tx, c.ID)
		if errors.Is(err, db.ErrNoRows) {
			return refused()
		}
		if err != nil {
			return err
		}
		if err := deleteRoot(ctx, tx, ss.Root); err != nil {
			return err
		}
		if _, err := tx.Bump(ctx, user.Revision); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: "LOGOUT", Object: "user", ObjectID: sc.Actor.ID, ObjectName: sc.Actor.Name})
	})
}

// Me is the caller as a record: a person, or a key or bouncer in the shape of one.
func (s *Service) Me(ctx context.Context, sc scope.Scope) (user.User, error) {
	home, err := s.home(ctx, sc)
	if err != nil {
		return user.User{}, err
	}
	me := user.User{ID: sc.Actor.ID, Username: sc.Actor.Name, Roles: []string{}, Attributes: map[string]any{}, Status: user.Active}
	err = home.Read(ctx, func(tx *db.Tx) error {
		switch sc.Actor.Kind {
		case scope.Person:
			me, err = user.ByID(ctx, tx, sc.Actor.ID)
			return err
		case scope.Key:
			k, err := selectKey(ctx, tx, sc.Actor.ID)
			me.CreatedAt, me.UpdatedAt = k.CreatedAt, k.CreatedAt
			return unknownKey(err)
		case scope.Bouncer:
			me.CreatedAt, me.UpdatedAt, err = s.BouncerTimes(ctx, tx, sc.Actor.ID)
			return gone(err)
		}
		return nil
	})
	me.Permissions = user.Strings(sc.Permissions)
	return me, err
}

// TokenRequest is a request to the token endpoint (RFC 6749 sections 4.3 and 4.4).
type TokenRequest struct {
	GrantType    string `json:"grant_type" enum:"password,client_credentials" doc:"password, or client_credentials with an API key as the secret."`
	Username     string `json:"username,omitempty" doc:"For password."`
	Password     string `json:"password,omitempty" doc:"For password."`
	ClientID     string `json:"client_id,omitempty" doc:"For client_credentials: the key's id, or whatever the client calls itself; the key alone counts."`
	ClientSecret string `json:"client_secret,omitempty" doc:"For client_credentials: the API key."`
	Scope        string `json:"scope,omitempty" doc:"Scopes separated by spaces, to ask for fewer than there are."`
	// Named is the tenant that the request names, by host, header or query; empty
	// for none. The stranger's scope has the default one for either.
	Named scope.TenantID `json:"-"`
}

// Token is OAuth's token endpoint: the grants password and client_credentials.
// Its errors are those of RFC 6749 section 5.2.
func (s *Service) Token(ctx context.Context, sc scope.Scope, req TokenRequest) (Grant, error) {
	scopes := strings.Fields(req.Scope)
	if _, err := user.ParseScopes("/scope", scopes); err != nil {
		return Grant{}, fault.New(fault.BadRequest, "invalid_scope", "an unknown scope was asked for")
	}
	switch req.GrantType {
	case "password":
		g, err := s.login(ctx, sc, req.Username, req.Password, scopes)
		if fault.Is(err, fault.Unauthenticated) {
			err = fault.New(fault.BadRequest, "invalid_grant", "the user name or the password is not right")
		}
		return g, err
	case "client_credentials":
		caller, _, err := s.Authenticate(ctx, Credential{
			APIKey: req.ClientSecret, TenantHint: req.Named, EnvHint: sc.Env, IP: sc.Actor.IP, RequestID: sc.RequestID,
		})
		if fault.Is(err, fault.Unauthenticated) {
			return Grant{}, fault.New(fault.Unauthenticated, "invalid_client", "the client is not known")
		}
		if err != nil {
			return Grant{}, err
		}
		g, err := s.Portal(ctx, caller, "", scopes)
		if fault.Is(err, fault.Forbidden) {
			err = fault.New(fault.BadRequest, "invalid_scope", "the key does not hold a scope that was asked for")
		}
		return g, err
	case "":
		return Grant{}, fault.New(fault.BadRequest, "invalid_request", "grant_type is missing")
	}
	return Grant{}, fault.New(fault.BadRequest, "unsupported_grant_type", "grant_type is password or client_credentials")
}

// randomPassword has 128 random bits.
func (s *Service) randomPassword() (string, error) {
	var raw [16]byte
	if _, err := io.ReadFull(s.Random, raw[:]); err != nil {
		return "", err
	}
	return digits(new(big.Int).SetBytes(raw[:]), 22), nil
}

// EnsureAdmin makes the first administrator, `admin`, where the default tenant
// has no people yet. Without a password it makes one up and gives it back, for
// the only time; the answer is empty in every other case.
func (s *Service) EnsureAdmin(ctx context.Context, password string) (generated string, err error) {
	if password == "" {
		if generated, err = s.randomPassword(); err != nil {
			return "", err
		}
		password = generated
	}
	sc := SystemScope(scope.DefaultTenant, "setup", "")
	made, err := s.Users.First(ctx, sc, user.Draft{
		Username: "admin", Email: "admin@localhost", Password: password, Roles: []string{user.RolePlatformAdmin},
	})
	if err != nil || !made {
		return "", err
	}
	return generated, nil
}

// ResetPassword gives a person a new password on the word of whoever sits at the
// server's host, lifts a lock, enables the person again and ends all sessions.
// An empty password has one made up. It answers the password.
func (s *Service) ResetPassword(ctx context.Context, t scope.TenantID, name, password string) (string, error) {
	store, err := s.Stores.Tenant(ctx, t)
	if err != nil {
		return "", err
	}
	var u user.User
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		u, err = user.ByName(ctx, tx, name)
		return err
	})
	if errors.Is(err, db.ErrNoRows) {
		return "", fault.NotFoundf("there is no user %q in the tenant %q", name, t)
	}
	if err != nil {
		return "", err
	}
	if password == "" {
		if password, err = s.randomPassword(); err != nil {
			return "", err
		}
	}
	if err := s.Users.Recover(ctx, SystemScope(t, "reset-password", ""), u.ID, password); err != nil {
		return "", err
	}
	return password, store.Write(ctx, func(tx *db.Tx) error { return dropAttempt(ctx, tx, "account:"+u.ID) })
}
