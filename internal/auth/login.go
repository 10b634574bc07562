package auth

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Login checks a password and starts a session. sc is the scope of a stranger: tenant,
// address, request id. Faults: the same 401 invalid_credentials for every failure, after
// the same work; 429 locked once this address has guessed too often at this account, known
// or not; 429 too_many_sign_ins when too many callers wait.
func (s *Service) Login(ctx context.Context, sc scope.Scope, name, password string) (Grant, error) {
	return s.grant(ctx, sc, name, password, nil)
}

// grant signs in for a token of some scopes, or of all that the person has.
func (s *Service) grant(ctx context.Context, sc scope.Scope, name, password string, scopes []string) (g Grant, err error) {
	err = s.login(ctx, sc, name, password, func(tx *db.Tx, t scope.TenantID, ss session) (map[string]any, error) {
		ss.Limited, ss.Scopes = len(scopes) > 0, scopes
		g, err = s.beginSession(ctx, tx, t, ss)
		return nil, err
	})
	return g, err
}

// opener writes the session of a person who has proved their identity. It returns what the
// audit entry says about the session.
type opener func(tx *db.Tx, t scope.TenantID, ss session) (map[string]any, error)

// login checks a password and has open write the session.
func (s *Service) login(ctx context.Context, sc scope.Scope, name, password string, open opener) error {
	store, served, err := s.loginStore(ctx, sc.Tenant)
	if err != nil {
		return err
	}
	if err := checkPasswords(ctx, store, s.PasswordsOff); err != nil {
		return err
	}
	if !served { // the same work, for a name that nobody can have
		name = "\ufffd" + string(sc.Tenant) + "\ufffd" + name
	}
	right, g, rehash, err := s.check(ctx, store, sc, name, password)
	if err != nil {
		return err
	}
	if !right || g.user.Status != user.Active {
		if err := store.Write(ctx, func(tx *db.Tx) error { return s.recordFailure(ctx, tx, sc, g) }); err != nil {
			return err
		}
		return wrongPassword()
	}
	return s.recordSuccess(ctx, store, sc, g, rehash, open)
}

// check counts a guess and checks the password. A locked pair is refused before anything is
// hashed. rehash is a new hash of a right password whose hash has another cost.
func (s *Service) check(ctx context.Context, store *db.DB, sc scope.Scope, name, password string) (right bool, g guess, rehash string, err error) {
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		g, err = s.loadGuess(ctx, tx, sc, name)
		return err
	})
	if err != nil {
		return false, g, "", err
	}
	if wait := g.lockedFor(s.Now()); wait > 0 {
		return false, g, "", locked(wait)
	}
	if !g.familiar {
		if !s.lobby.Enter(g.network, SeatsNetwork) {
			return false, g, "", TooManySignIns()
		}
		defer s.lobby.Leave(g.network)
		if err := s.Pause(ctx, g.delay(s.Now())); err != nil {
			return false, g, "", err
		}
	}
	turn, err := s.Hasher.Turn(ctx, g.familiar)
	if err != nil {
		return false, g, "", err
	}
	defer turn.Done()
	var wait time.Duration
	err = store.Write(ctx, func(tx *db.Tx) (err error) {
		wait, err = s.reserve(ctx, tx, &g)
		return err
	})
	if err != nil {
		return false, g, "", err
	}
	if wait > 0 { // locked by guesses while we waited
		return false, g, "", locked(wait)
	}
	right, stale := turn.Verify(g.user.PasswordHash, password)
	if right && stale {
		rehash, err = turn.Hash(password)
	}
	return right, g, rehash, err
}

// wrongPassword is the one answer to every sign-in that fails.
func wrongPassword() error {
	return fault.New(fault.Unauthenticated, "invalid_credentials", "the user name or the password is wrong")
}

// loginStore returns the store of a tenant in which people can sign in; for any other
// tenant, the default tenant's, where the attempt is counted and fails.
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

// recordFailure writes the traces of a failed sign-in. Known and unknown accounts leave the
// same number of rows.
func (s *Service) recordFailure(ctx context.Context, tx *db.Tx, sc scope.Scope, g guess) error {
	locks := g.pair.Failures >= pairGuesses
	if !g.shouldRecord(locks) {
		return nil
	}
	now := s.Now()
	sc.Actor = scope.Actor{Kind: scope.Person, Name: "anonymous", IP: sc.Actor.IP}
	data := map[string]any{"failures": g.account.Failures, "ip_address": sc.Actor.IP}
	kind := "LOGIN_FAILED"
	if locks {
		kind = "ACCOUNT_LOCKED"
		data["locked_until"] = g.pair.LockedUntil
	}
	err := audit.Append(ctx, tx, sc, now, audit.Entry{
		Type: kind, Object: "user", ObjectID: g.user.ID, ObjectName: g.user.Username, EventContext: data,
	})
	if err != nil || g.account.Failures != alertAt && !locks {
		return err
	}
	data["severity"] = "warning"
	return event.Emit(ctx, tx, sc, event.Event{Type: event.FailedLogins, ObjectKind: "user", ObjectID: g.user.ID, ObjectName: g.user.Username, Data: data})
}

// recordSuccess clears the pair's count, removes this guess from the counts of account and
// network, records where the person signed in, and starts the session.
func (s *Service) recordSuccess(ctx context.Context, store *db.DB, sc scope.Scope, g guess, rehash string, open opener) error {
	return store.Write(ctx, func(tx *db.Tx) error {
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
		if err := dropAttempt(ctx, tx, g.pair.Subject); err != nil {
			return err
		}
		for _, a := range []attempt{g.account, g.address} {
			if err := decrementAttempt(ctx, tx, a.Subject); err != nil {
				return err
			}
		}
		now := s.Now()
		if err := putPlace(ctx, tx, u.ID, g.network, now); err != nil {
			return err
		}
		if err := user.SignedIn(ctx, tx, u.ID, now, rehash); err != nil {
			return err
		}
		if err := user.NotePassword(ctx, tx, u); err != nil {
			return err
		}
		return s.Sessions.enterAs(ctx, tx, store.TenantID(), sc, u, open)
	})
}

// Me returns the caller as a record: a person, or a key or bouncer in the same form.
func (s *Service) Me(ctx context.Context, sc scope.Scope) (user.User, error) {
	home, err := homeStore(ctx, s.Stores, sc)
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
			return refuseGone(err)
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
	ClientID     string `json:"client_id,omitempty" doc:"For client_credentials: the key's id or any client name. Only the key itself is checked."`
	ClientSecret string `json:"client_secret,omitempty" doc:"For client_credentials: the API key."`
	Scope        string `json:"scope,omitempty" doc:"Space-separated scopes, to request fewer than the credential holds."`
	// Named is the tenant that the request names, by host, header or query; empty for none.
	// A stranger's scope then has the default tenant.
	Named scope.TenantID `json:"-"`
}

// Token is OAuth's token endpoint, with the grants password and client_credentials. Its
// errors are those of RFC 6749 section 5.2.
func (s *Service) Token(ctx context.Context, sc scope.Scope, req TokenRequest) (Grant, error) {
	scopes := strings.Fields(req.Scope)
	if _, err := user.ParseScopes("/scope", scopes); err != nil {
		return Grant{}, fault.New(fault.BadRequest, "invalid_scope", "a requested scope is unknown")
	}
	switch req.GrantType {
	case "password":
		if req.Username == "" || req.Password == "" {
			return Grant{}, fault.New(fault.BadRequest, "invalid_request", "username or password is missing")
		}
		g, err := s.grant(ctx, sc, req.Username, req.Password, scopes)
		if fault.Is(err, fault.Unauthenticated) {
			err = fault.New(fault.BadRequest, "invalid_grant", "the user name or the password is wrong")
		}
		return g, err
	case "client_credentials":
		caller, _, err := s.Authenticate(ctx, Credential{
			APIKey: req.ClientSecret, TenantHint: req.Named, EnvHint: sc.Env, IP: sc.Actor.IP, RequestID: sc.RequestID,
		})
		if fault.Is(err, fault.Unauthenticated) {
			return Grant{}, fault.New(fault.Unauthenticated, "invalid_client", "the client is unknown")
		}
		if err != nil {
			return Grant{}, err
		}
		g, err := s.Portal(ctx, caller, scopes)
		if fault.Is(err, fault.Forbidden) {
			err = fault.New(fault.BadRequest, "invalid_scope", "the key does not hold a requested scope")
		}
		return g, err
	case "":
		return Grant{}, fault.New(fault.BadRequest, "invalid_request", "grant_type is missing")
	}
	return Grant{}, fault.New(fault.BadRequest, "unsupported_grant_type", "grant_type must be password or client_credentials")
}

// RandomPassword generates a password with 128 random bits.
func RandomPassword(random io.Reader) (string, error) {
	return secret.Draw(random, 16, 22)
}

// EnsureAdmin creates the first administrator, `admin`, if the default tenant has no people
// yet. Without a password it generates one and returns it, this once; otherwise it returns
// "".
func (s *Service) EnsureAdmin(ctx context.Context, password string) (generated string, err error) {
	if password == "" {
		if generated, err = RandomPassword(s.Random); err != nil {
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

// ResetPassword sets a new password for a person, on the authority of somebody on the
// server's host. It removes a lock, enables the person, lets the tenant's people sign in with passwords again, and ends all sessions. An empty
// password means a generated one. It returns the password.
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
		if password, err = RandomPassword(s.Random); err != nil {
			return "", err
		}
	}
	if err := s.Users.Recover(ctx, SystemScope(t, "reset-password", ""), u.ID, password); err != nil {
		return "", err
	}
	return password, store.Write(ctx, func(tx *db.Tx) error {
		if s.PasswordsOn != nil {
			if err := s.PasswordsOn(ctx, tx); err != nil {
				return err
			}
		}
		return dropAttemptsAt(ctx, tx, "account:"+u.ID)
	})
}
