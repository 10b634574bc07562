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
	"github.com/gatehouse-dev/gatehouse/internal/factor"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/lockout"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Proof is what a person signs in with: a name and a password, and a code if the person has a
// second factor. A challenge replaces the name and the password.
type Proof struct {
	Username, Password string
	// Code is a code from the authenticator app, or a recovery code.
	Code string
	// Challenge comes from an earlier sign-in with a correct password.
	Challenge string
}

// purpose is the purpose of a challenge, which is valid for nothing else.
type purpose string

const (
	// noChallenge is for callers that send the password again, with the code.
	noChallenge purpose = ""
	forToken    purpose = "token"
	forBrowser  purpose = "browser"
)

// Login checks a password and starts a session. sc is the scope of a stranger: tenant, address,
// request id. Faults: the same 401 invalid_credentials for every failure, after the same work; 429
// locked if this address has made too many guesses at this account, whether it exists or not; 429
// too_many_sign_ins if too many callers wait. After a correct password: 401 second_factor_required
// if the code is missing, 401 second_factor_invalid if it is wrong.
func (s *Service) Login(ctx context.Context, sc scope.Scope, p Proof) (Grant, error) {
	return s.grant(ctx, sc, p, forToken, nil)
}

// grant signs a person in, and returns a token with these scopes, or with all that the person has.
func (s *Service) grant(ctx context.Context, sc scope.Scope, p Proof, what purpose, scopes []string) (g Grant, err error) {
	err = s.login(ctx, sc, p, what, func(tx *db.Tx, t scope.TenantID, ss session) (map[string]any, error) {
		ss.Limited, ss.Scopes = len(scopes) > 0, scopes
		g, err = s.beginSession(ctx, tx, t, ss)
		return nil, err
	})
	return g, err
}

// opener writes the session of a person who has proved their identity. It returns what the
// audit entry says about the session.
type opener func(tx *db.Tx, t scope.TenantID, ss session) (map[string]any, error)

// login checks the proof of a person, and lets open write the session.
func (s *Service) login(ctx context.Context, sc scope.Scope, p Proof, what purpose, open opener) error {
	store, served, err := s.loginStore(ctx, sc.Tenant)
	if err != nil {
		return err
	}
	if err := checkPasswords(ctx, store, s.PasswordsOff); err != nil && (served || !fault.Is(err, fault.Forbidden)) {
		return err
	}
	name := p.Username
	if !served { // the same work, for a name and a challenge that nobody can have
		nobody := "\ufffd" + string(sc.Tenant) + "\ufffd"
		name, p.Challenge = nobody+name, unknownText(nobody, p.Challenge)
	}
	if p.Challenge != "" {
		return s.Factors.answer(ctx, store, sc, p, what, open)
	}
	right, g, rehash, err := s.check(ctx, store, sc, name, p.Password)
	if err != nil {
		return err
	}
	if !right || g.User.Status != user.Active {
		if err := store.Write(ctx, func(tx *db.Tx) error { return s.recordFailure(ctx, tx, sc, g) }); err != nil {
			return err
		}
		return wrongPassword()
	}
	return s.finish(ctx, store, sc, &passwordSignIn{Guess: g, rehash: rehash, code: p.Code, purpose: what}, open)
}

// unknownText returns a text that is not stored anywhere, in place of text. An empty text stays empty.
func unknownText(nobody, text string) string {
	if text == "" {
		return ""
	}
	return nobody + text
}

// check counts a guess and checks the password. A locked pair is refused before any hashing. rehash
// is a new hash of a correct password whose hash has an outdated cost.
func (s *Service) check(ctx context.Context, store *db.DB, sc scope.Scope, name, password string) (right bool, g lockout.Guess, rehash string, err error) {
	g, err = db.ReadStore(ctx, store, func(tx *db.Tx) (lockout.Guess, error) { return lockout.Load(ctx, tx, sc.Actor.IP, name, s.Now()) })
	if err != nil {
		return false, g, "", err
	}
	if wait := g.LockedFor(s.Now()); wait > 0 {
		return false, g, "", lockout.Locked(wait)
	}
	if !g.Familiar {
		if !s.lobby.Acquire(g.Network, lockout.MaxInNetwork) {
			return false, g, "", lockout.TooManySignIns()
		}
		defer s.lobby.Release(g.Network)
		if err := s.Pause(ctx, g.Delay(s.Now())); err != nil {
			return false, g, "", err
		}
	}
	turn, err := s.Hasher.AcquireSlot(ctx, g.Familiar)
	if err != nil {
		return false, g, "", err
	}
	defer turn.Release()
	var wait time.Duration
	err = store.Write(ctx, func(tx *db.Tx) (err error) {
		wait, err = g.Reserve(ctx, tx, s.Now())
		return err
	})
	if err != nil {
		return false, g, "", err
	}
	if wait > 0 { // locked by guesses while we waited
		return false, g, "", lockout.Locked(wait)
	}
	right, stale := turn.Verify(g.User.PasswordHash, password)
	if right && stale {
		rehash, err = turn.Hash(password)
	}
	return right, g, rehash, err
}

// wrongPassword returns the answer to every sign-in that fails.
func wrongPassword() error {
	return fault.New(fault.Unauthenticated, "invalid_credentials", "the user name or the password is wrong")
}

// HomeTenant returns the tenant in which a person signs in. For a tenant that is unknown, suspended or
// deleted, it returns false and the default tenant, where the caller does the same work and then
// refuses. It always reads the stores: with a cache, the response time would show which tenants
// exist.
func (s *Service) HomeTenant(ctx context.Context, id scope.TenantID) (home scope.TenantID, served bool, err error) {
	facts, _, err := s.loadFacts(ctx, id)
	if err == nil {
		err = checkServed(id, facts)
	}
	switch {
	case err == nil:
		return id, true, nil
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Forbidden), fault.Is(err, fault.Unauthenticated):
		return scope.DefaultTenant, false, nil
	default:
		return "", false, err
	}
}

// loginStore returns the store of a tenant in which people can sign in. For any other tenant it
// returns the default tenant's store, where the attempt is counted and fails.
func (s *Service) loginStore(ctx context.Context, id scope.TenantID) (store *db.DB, served bool, err error) {
	home, served, err := s.HomeTenant(ctx, id)
	if err != nil {
		return nil, false, err
	}
	store, err = s.Stores.Tenant(ctx, home)
	return store, served, err
}

// recordFailure records a failed sign-in. It writes the same number of rows for known and
// unknown accounts.
func (s *Service) recordFailure(ctx context.Context, tx *db.Tx, sc scope.Scope, g lockout.Guess) error {
	locks := g.WillLock()
	if !g.ShouldRecord() {
		return nil
	}
	now := s.Now()
	sc.Actor = scope.Actor{Kind: scope.Person, Name: "anonymous", IP: sc.Actor.IP}
	data := map[string]any{"failures": g.Account.Failures, "ip_address": sc.Actor.IP}
	kind := "LOGIN_FAILED"
	if locks {
		kind = "ACCOUNT_LOCKED"
		data["locked_until"] = g.Pair.LockedUntil
	}
	err := audit.Append(ctx, tx, sc, now, audit.Entry{
		Type: kind, Object: "user", ObjectID: g.User.ID, ObjectName: g.User.Username, EventContext: data,
	})
	if err != nil || g.Account.Failures != lockout.AlertAt && !locks {
		return err
	}
	data["severity"] = "warning"
	return event.Emit(ctx, tx, sc, event.Event{Type: event.FailedLogins, ObjectKind: "user", ObjectID: g.User.ID, ObjectName: g.User.Username, Data: data})
}

// passwordSignIn is a sign-in with a correct password.
type passwordSignIn struct {
	lockout.Guess
	// rehash is a new hash of the password, if it needs one.
	rehash string
	// code is what was sent for the second factor.
	code    string
	purpose purpose
	// challenge is the one that this sign-in answers; nil for none.
	challenge *challenge
}

// finish checks the second factor, if the person has one, and starts the session. It clears
// the pair's count, removes this guess from the counts of account and network, and records
// where the person signed in.
func (s *Service) finish(ctx context.Context, store *db.DB, sc scope.Scope, in *passwordSignIn, open opener) error {
	var refusal error // returned after the transaction, which must commit to count the attempt
	err := store.Write(ctx, func(tx *db.Tx) (err error) {
		u, err := user.LockByID(ctx, tx, in.User.ID)
		if fault.Is(err, fault.NotFound) {
			return wrongPassword()
		}
		if err != nil {
			return err
		}
		if u.Status != user.Active || u.PasswordHash != in.User.PasswordHash { // changed while we hashed
			return wrongPassword()
		}
		proof, why, err := s.Factors.secondFactor(ctx, tx, store.TenantID(), sc, u, in)
		if err != nil || why != nil {
			refusal = why
			return err
		}
		return s.completeSignIn(ctx, tx, store.TenantID(), sc, u, in, proof, open)
	})
	if err != nil {
		return err
	}
	return refusal
}

// completeSignIn is the last part of finish. The person has given all proofs.
func (s *Service) completeSignIn(ctx context.Context, tx *db.Tx, t scope.TenantID, sc scope.Scope, u user.User, in *passwordSignIn, proof factor.Proof, open opener) error {
	if err := in.NoteSuccess(ctx, tx); err != nil {
		return err
	}
	now := s.Now()
	if err := lockout.RecordNetwork(ctx, tx, u.ID, in.Network, now); err != nil {
		return err
	}
	if err := user.RecordSignIn(ctx, tx, u.ID, now, in.rehash); err != nil {
		return err
	}
	if in.rehash != "" {
		u.PasswordHash = in.rehash
	}
	if err := user.RecordPasswordUse(ctx, tx, u, proof.Methods()); err != nil {
		return err
	}
	return s.Sessions.startSession(ctx, tx, t, sc, u, func(tx *db.Tx, t scope.TenantID, ss session) (map[string]any, error) {
		ss.Proof = string(proof)
		about, err := open(tx, t, ss)
		if err != nil || proof == factor.None {
			return about, err
		}
		if about == nil {
			about = map[string]any{}
		}
		about["second_factor"] = string(proof)
		return about, nil
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
	Code         string `json:"code,omitempty" doc:"For password: the second factor's code, for people who have one. Without it: 400 second_factor_required."`
	Scope        string `json:"scope,omitempty" doc:"Space-separated scopes, to request fewer than the credential holds."`
	// Named is the tenant that the request names, by host, header or query; empty for none.
	// A stranger's scope then has the default tenant.
	Named scope.TenantID `json:"-"`
}

// Token is OAuth's token endpoint, with the grants password and client_credentials. Its errors
// are those of RFC 6749 section 5.2.
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
		g, err := s.grant(ctx, sc, Proof{Username: req.Username, Password: req.Password, Code: req.Code}, noChallenge, scopes)
		return g, asGrantFault(err)
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
		g, err := s.IssuePortalToken(ctx, caller, scopes)
		if fault.Is(err, fault.Forbidden) {
			err = fault.New(fault.BadRequest, "invalid_scope", "the key does not hold a requested scope")
		}
		return g, err
	case "":
		return Grant{}, fault.New(fault.BadRequest, "invalid_request", "grant_type is missing")
	}
	return Grant{}, fault.New(fault.BadRequest, "unsupported_grant_type", "grant_type must be password or client_credentials")
}

// asGrantFault gives a failed sign-in the form of RFC 6749 section 5.2. A missing code has a
// code of its own, so that clients know to ask for it.
func asGrantFault(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Kind != fault.Unauthenticated {
		return err
	}
	switch f.Code {
	case codeRequired:
		return fault.New(fault.BadRequest, codeRequired, f.Message)
	case codeInvalid:
		return fault.New(fault.BadRequest, "invalid_grant", f.Message)
	}
	return fault.New(fault.BadRequest, "invalid_grant", "the user name or the password is wrong")
}

// RandomPassword generates a password with 128 random bits.
func RandomPassword(random io.Reader) (string, error) {
	return secret.RandomText(random, 16, 22)
}

// EnsureAdmin creates the first administrator, `admin`, if the default tenant has no people
// yet. If the password is empty, it generates one and returns it. Otherwise it returns "".
func (s *Service) EnsureAdmin(ctx context.Context, password string) (generated string, err error) {
	if password == "" {
		if generated, err = RandomPassword(s.Random); err != nil {
			return "", err
		}
		password = generated
	}
	sc := SystemScope(scope.DefaultTenant, "setup", "")
	made, err := s.Users.CreateFirst(ctx, sc, user.Draft{
		Username: "admin", Email: "admin@localhost", Password: password, Roles: []string{user.RolePlatformAdmin},
	})
	if err != nil || !made {
		return "", err
	}
	return generated, nil
}

// ResetPassword sets a new password for a person, for an operator on the server's host. It removes
// a lock, enables the person, allows the tenant's people to sign in with passwords again, and ends
// all sessions. If the password is empty, it generates one. With dropFactor, it also removes the
// second factor. It returns the password.
func (s *Service) ResetPassword(ctx context.Context, t scope.TenantID, name, password string, dropFactor bool) (string, error) {
	store, err := s.Stores.Tenant(ctx, t)
	if err != nil {
		return "", err
	}
	u, err := db.ReadStore(ctx, store, func(tx *db.Tx) (user.User, error) { return user.ByName(ctx, tx, name) })
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
	sc := SystemScope(t, "reset-password", "")
	if err := s.Users.Recover(ctx, sc, u.ID, password); err != nil {
		return "", err
	}
	return password, store.Write(ctx, func(tx *db.Tx) error {
		if s.PasswordsOn != nil {
			if err := s.PasswordsOn(ctx, tx); err != nil {
				return err
			}
		}
		if err := lockout.Unlock(ctx, tx, u.ID); err != nil || !dropFactor {
			return err
		}
		return s.Factors.drop(ctx, tx, sc, u)
	})
}
