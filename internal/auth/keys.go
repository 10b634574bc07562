package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/factor"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/lockout"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// The kinds of credential in the system store.
const (
	credentialKey     = "api_key"
	credentialBouncer = "bouncer"
)

// Key is an API key (specification, "Tenant API key").
type Key struct {
	ID          string     `json:"id" db:"id" doc:"Identifies the key; not secret."`
	Name        string     `json:"name" db:"name" doc:"What the key is for."`
	Key         string     `json:"key,omitempty" db:"-" doc:"The key itself; only the answer that creates it contains it."`
	Hint        string     `json:"hint" db:"hint" doc:"The beginning of the key, to recognise it."`
	Scopes      []string   `json:"scopes" db:"scopes" nullable:"false" doc:"What the key may do: <area>:<read|write>."`
	Environment scope.Env  `json:"environment,omitempty" db:"environment" enum:"sandbox,production" doc:"The only environment in which the key is valid; absent: both."`
	Owner       string     `json:"owner,omitempty" db:"owner" doc:"The owner of the key. The key can do no more than this person and ends with the account. Absent for the tenant's own keys."`
	CreatedBy   string     `json:"created_by" db:"created_by" doc:"Who created it."`
	CreatedAt   time.Time  `json:"created_at" db:"created_at" doc:"When it was created."`
	ExpiresAt   *time.Time `json:"expires_at" db:"expires_at" doc:"When it ends; null: only when it is revoked."`
	LastUsedAt  *time.Time `json:"last_used_at" db:"last_used_at" doc:"When it was last used, accurate to half a minute."`
	Digest      string     `json:"-" db:"digest"`
	// Dedicated is the kind of caller that the key is for (Service.Dedicated), and Holder
	// the caller's id; empty for ordinary keys.
	Dedicated scope.ActorKind `json:"-" db:"dedicated"`
	Holder    string          `json:"-" db:"holder"`
	// Lineage is the id of the first key in a row of rotations; empty for a key that replaced none.
	Lineage string `json:"-" db:"lineage"`
}

// counted returns the id under which the key's requests are counted. A rotation starts no new count.
func (k Key) counted() string { return cmp.Or(k.Lineage, k.ID) }

// KeyDraft is the input for a new API key.
type KeyDraft struct {
	Name        string     `json:"name" minLength:"1" maxLength:"128" doc:"What the key is for."`
	Scopes      []string   `json:"scopes" minItems:"1" maxItems:"64" nullable:"false" doc:"What the key may do: <area>:<read|write>; write implies read. The caller must hold them."`
	Environment scope.Env  `json:"environment,omitempty" enum:"sandbox,production" doc:"The only environment in which the key is valid; absent: both."`
	ExpiresAt   *time.Time `json:"expires_at,omitempty" doc:"When it ends; absent: only when it is revoked."`
}

// Offences returns the errors in a draft that its schema cannot express, to report them
// with the schema's errors; whether its end has passed depends on the clock.
func (d KeyDraft) Offences() []fault.Detail {
	_, _, err := checkNameAndScopes(d.Name, d.Scopes)
	return fault.Offences(err)
}

// checkNameAndScopes returns the name and scopes of a key, or every error in them.
func checkNameAndScopes(name string, scopes []string) (string, []scope.Permission, error) {
	var unnamed error
	if name = strings.TrimSpace(name); name == "" {
		unnamed = fault.Invalidf("/name", "must not be empty")
	}
	ps, unknown := user.ParseScopes("/scopes", scopes)
	if len(scopes) == 0 {
		unknown = fault.Invalidf("/scopes", "a key needs at least one scope")
	}
	return name, ps, fault.Join(unnamed, unknown)
}

// PortalDraft is the input for a new key of the developer portal; all members are optional.
type PortalDraft struct {
	Name      string     `json:"name,omitempty" maxLength:"128" doc:"What the key is for."`
	Scopes    []string   `json:"scopes,omitempty" maxItems:"64" nullable:"false" doc:"What the key may do; absent: decisions:read, policies:read and resources:read, as far as the caller holds them. Scopes that have no use within one environment, such as users:read, are dropped; scopes in the answer lists those granted."`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"When it ends; absent: only when it is revoked."`
}

// KeyPage is one page of keys.
type KeyPage struct {
	Keys  []Key `json:"api_keys" nullable:"false" doc:"The keys, oldest first; the keys themselves are never returned."`
	Total int64 `json:"total" doc:"Total number."`
}

// RotateRequest is the body of a rotation.
type RotateRequest struct {
	GraceSeconds int64 `json:"grace_seconds,omitempty" minimum:"0" maximum:"2592000" doc:"How long the old key still works, in seconds; 0: not at all."`
}

// Grace returns how long the old key continues to work: 0 without a body.
func (r *RotateRequest) Grace() time.Duration {
	if r == nil {
		return 0
	}
	return time.Duration(r.GraceSeconds) * time.Second
}

// CreateKey creates a key of the tenant, for both environments or for a named one. Faults: 403 for
// scopes that the caller does not hold, an end later than the caller's own, or a caller limited to
// another environment; 422 for unknown scopes.
func (s *Service) CreateKey(ctx context.Context, sc scope.Scope, d KeyDraft) (Key, error) {
	return s.makeKey(ctx, sc, Key{Name: d.Name, Scopes: d.Scopes, Environment: d.Environment, ExpiresAt: d.ExpiresAt})
}

// GenerateKey creates a key for one environment. It gets only those of its scopes that are
// in useful, the permissions that an operation of one environment needs. A person's key
// belongs to that person: it never does more than the person may and ends with the account.
// An API key creates others only if it may manage the tenant's keys, because they outlive
// it.
func (s *Service) GenerateKey(ctx context.Context, sc scope.Scope, env scope.Env, useful []scope.Permission, d PortalDraft) (Key, error) {
	if !env.Valid() {
		return Key{}, fault.NotFoundf("the environment must be sandbox or production")
	}
	switch sc.Actor.Kind {
	case scope.Key:
		if err := sc.Require("tenants:write"); err != nil {
			return Key{}, err
		}
	case scope.Bouncer:
		return Key{}, fault.New(fault.Forbidden, "permission_denied", "only people and API keys can create keys")
	}
	k := Key{Name: d.Name, Scopes: d.Scopes, Environment: env, ExpiresAt: d.ExpiresAt}
	if strings.TrimSpace(k.Name) == "" {
		k.Name = string(env) + " key of " + sc.Actor.Name
	}
	if len(k.Scopes) == 0 {
		k.Scopes = defaultScopes(sc)
	}
	k, err := s.validateNewKey(sc, k)
	if err != nil {
		return Key{}, err
	}
	if k.Scopes = usefulScopes(k.Scopes, useful); len(k.Scopes) == 0 {
		return Key{}, fault.Invalidf("/scopes", "none of these scopes can be used within one environment")
	}
	if sc.Actor.Kind == scope.Person && (!sc.Platform || sc.Tenant == scope.DefaultTenant) {
		k.Owner = sc.Actor.ID
	}
	return s.storeKey(ctx, sc, k, "API_KEY_CREATED", nil)
}

// defaultScopes returns the scopes of a key for which none were requested: those that request
// decisions and read what they are based on, if the caller holds them.
func defaultScopes(sc scope.Scope) []string {
	var out []string
	for _, p := range []scope.Permission{"decisions:read", "policies:read", "resources:read"} {
		if sc.Permissions.Has(p) {
			out = append(out, string(p))
		}
	}
	return out
}

// usefulScopes returns the scopes that allow something in useful.
func usefulScopes(scopes []string, useful []scope.Permission) []string {
	return slices.DeleteFunc(scopes, func(s string) bool {
		return !slices.ContainsFunc(user.Imply([]scope.Permission{scope.Permission(s)}), func(p scope.Permission) bool { return slices.Contains(useful, p) })
	})
}

// makeKey checks, generates and stores a key.
func (s *Service) makeKey(ctx context.Context, sc scope.Scope, k Key) (Key, error) {
	if k.Environment != scope.AnyEnv && !k.Environment.Valid() {
		return Key{}, fault.Invalidf("/environment", "the environment must be sandbox or production")
	}
	k, err := s.validateNewKey(sc, k)
	if err != nil {
		return Key{}, err
	}
	return s.storeKey(ctx, sc, k, "API_KEY_CREATED", nil)
}

// validateNewKey returns a key in its stored form, or every error in it; and 403 for a key that
// the caller may not create.
func (s *Service) validateNewKey(sc scope.Scope, k Key) (Key, error) {
	name, ps, wrong := checkNameAndScopes(k.Name, k.Scopes)
	var ended error
	if k.ExpiresAt != nil {
		at := db.Stamp(*k.ExpiresAt)
		if k.ExpiresAt = &at; !at.After(s.Now()) {
			ended = fault.Invalidf("/expires_at", "must be in the future")
		}
	}
	if err := fault.Join(wrong, ended); err != nil {
		return Key{}, err
	}
	k.Name = name
	if err := user.MayGrant(sc, scope.Permissions{List: ps}); err != nil {
		return Key{}, err
	}
	if err := sc.May(k.Environment); err != nil {
		return Key{}, err
	}
	k.Scopes = user.Scopes(scope.Permissions{List: ps})
	return k, nil
}

// storeKey generates the key itself and writes it. It writes the hash to the system store first,
// because a hash without a key is harmless. more runs in the transaction that inserts the key.
func (s *Service) storeKey(ctx context.Context, sc scope.Scope, k Key, kind string, more func(tx *db.Tx, made Key) error) (Key, error) {
	text, err := newKey(s.Random, kindOf(k))
	if err != nil {
		return Key{}, fault.Wrap(err, "generate a key")
	}
	k.ID, k.Digest, k.Hint = s.NewID(), secret.DigestOf(text), hint(text)
	k.CreatedAt, k.CreatedBy, k.LastUsedAt = db.Stamp(s.Now()), sc.Actor.Name, nil
	store, err := s.Stores.Tenant(ctx, sc.Tenant)
	if err != nil {
		return Key{}, err
	}
	system := s.Stores.System()
	err = system.Write(ctx, func(tx *db.Tx) error { return putCredential(ctx, tx, k.Digest, sc.Tenant, credentialKey, k.ID) })
	if err != nil {
		return Key{}, err
	}
	err = store.Write(ctx, func(tx *db.Tx) error {
		if err := requireOwner(ctx, tx, sc, k); err != nil {
			return err
		}
		if err := checkKeyLifetime(ctx, tx, sc, k); err != nil {
			return err
		}
		if err := insertKey(ctx, tx, k); err != nil {
			return err
		}
		if more != nil {
			if err := more(tx, k); err != nil {
				return err
			}
		}
		return s.recordKey(ctx, tx, sc, k, kind)
	})
	if err != nil {
		clean := context.WithoutCancel(ctx)
		return Key{}, errors.Join(err, system.Write(clean, func(tx *db.Tx) error { return dropCredential(clean, tx, k.Digest) }))
	}
	k.Key = text
	return k, nil
}

// requireOwner refuses a key whose creator or owner was removed since the request began. It locks
// both, so that a removal ends the key, too.
func requireOwner(ctx context.Context, tx *db.Tx, sc scope.Scope, k Key) error {
	if err := user.RequireActor(ctx, tx, sc); err != nil || k.Owner == "" {
		return err
	}
	_, err := user.LockByID(ctx, tx, k.Owner)
	if fault.Is(err, fault.NotFound) {
		return unknownKey(db.ErrNoRows)
	}
	return err
}

// checkKeyLifetime refuses a key that outlives the key that creates or changes it.
func checkKeyLifetime(ctx context.Context, tx *db.Tx, sc scope.Scope, k Key) error {
	if sc.Actor.Kind != scope.Key {
		return nil
	}
	own, err := selectKey(ctx, tx, sc.Actor.ID)
	if err != nil {
		return err
	}
	if own.ExpiresAt != nil && (k.ExpiresAt == nil || k.ExpiresAt.After(*own.ExpiresAt)) {
		return fault.New(fault.Forbidden, "permission_denied", "an API key cannot create a key that ends later than itself, or extend one")
	}
	return nil
}

// Keys lists the tenant's keys.
func (s *Service) Keys(ctx context.Context, sc scope.Scope, skip, limit int) (KeyPage, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (KeyPage, error) { return selectKeys(ctx, tx, skip, limit) })
}

// Key returns a key of the tenant. Fault: NotFound.
func (s *Service) Key(ctx context.Context, sc scope.Scope, id string) (Key, error) {
	k, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Key, error) { return ordinaryKey(selectKey(ctx, tx, id)) })
	return k, unknownKey(err)
}

// ordinaryKey hides dedicated keys from those who manage the tenant's keys.
func ordinaryKey(k Key, err error) (Key, error) {
	if err == nil && k.Dedicated != "" {
		return Key{}, db.ErrNoRows
	}
	return k, err
}

func unknownKey(err error) error {
	if errors.Is(err, db.ErrNoRows) {
		return fault.NotFoundf("there is no such API key")
	}
	return err
}

// RevokeKey ends a key and the tokens made from it, at once.
func (s *Service) RevokeKey(ctx context.Context, sc scope.Scope, id string) (Key, error) {
	var k Key
	err := s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if k, err = lockKey(ctx, tx, id); err != nil {
			return err
		}
		if err := deleteKey(ctx, tx, id); err != nil {
			return err
		}
		if _, err := tx.Bump(ctx, user.Revision); err != nil {
			return err
		}
		return s.recordKey(ctx, tx, sc, k, "API_KEY_REVOKED")
	})
	if err != nil {
		return Key{}, err
	}
	dropEnded(ctx, s, k)
	return k, nil
}

// dropEnded removes the entries of keys that no longer work from the system store. The keys stay
// ended if that fails, so it only logs a failure.
func dropEnded(ctx context.Context, s *Service, keys ...Key) {
	if len(keys) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	err := s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		for _, k := range keys {
			if err := dropCredential(ctx, tx, k.Digest); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.Logger.WarnContext(ctx, "the entries of ended keys could not be removed from the system store; the keys do not work", "keys", len(keys), "error", err)
	}
}

// RotateKey creates a key with the same name, scopes and end. The old key works until the end of
// the grace period. The caller sees the new key, and so must hold its scopes. An ended key cannot
// be rotated: 409.
func (s *Service) RotateKey(ctx context.Context, sc scope.Scope, id string, grace time.Duration) (Key, error) {
	old, err := s.Key(ctx, sc, id)
	if err != nil {
		return Key{}, err
	}
	if err := user.MayGrant(sc, scope.Permissions{List: parsePermissions(old.Scopes)}); err != nil {
		return Key{}, err
	}
	if err := sc.May(old.Environment); err != nil {
		return Key{}, err
	}
	if err := checkLive(old, s.Now()); err != nil {
		return Key{}, err
	}
	end := s.Now().Add(grace)
	fresh := Key{Name: old.Name, Scopes: old.Scopes, Environment: old.Environment, Owner: old.Owner, ExpiresAt: old.ExpiresAt, Lineage: old.counted()}
	fresh, err = s.storeKey(ctx, sc, fresh, "API_KEY_ROTATED", func(tx *db.Tx, _ Key) error {
		if err := lockUnchanged(ctx, tx, old); err != nil {
			return err
		}
		if _, err := tx.Bump(ctx, user.Revision); err != nil {
			return err
		}
		if grace <= 0 {
			return deleteKey(ctx, tx, old.ID)
		}
		if old.ExpiresAt != nil && old.ExpiresAt.Before(end) {
			return nil
		}
		return expireKey(ctx, tx, old.ID, end)
	})
	if err != nil {
		return Key{}, err
	}
	if grace <= 0 {
		dropEnded(ctx, s, old)
	}
	return fresh, nil
}

// RevokeUser ends a person's sessions within tx, and optionally keys. It is
// user.Service.Revoke.
func RevokeUser(ctx context.Context, tx *db.Tx, userID string, what user.SessionEnd) error {
	if err := deleteSessionsOf(ctx, tx, userID); err != nil {
		return err
	}
	if what >= user.EndsKeys {
		if err := deleteKeysOf(ctx, tx, userID); err != nil {
			return err
		}
	}
	if what >= user.EndsAll {
		if err := lockout.DropPlaces(ctx, tx, userID); err != nil {
			return err
		}
		if err := factor.Forget(ctx, tx, userID); err != nil {
			return err
		}
	}
	_, err := tx.Bump(ctx, user.Revision)
	return err
}

// RevokeAll ends every key, session and password of a tenant within tx. It is one of
// tenant.Service.RevokeHooks.
func RevokeAll(ctx context.Context, tx *db.Tx) error {
	if err := deleteAll(ctx, tx); err != nil {
		return err
	}
	if err := user.DropPasswords(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Bump(ctx, user.Revision)
	return err
}

func (s *Service) recordKey(ctx context.Context, tx *db.Tx, sc scope.Scope, k Key, kind string) error {
	return s.noteKey(ctx, tx, sc, k, kind, map[string]any{"scopes": k.Scopes, "hint": k.Hint, "expires_at": k.ExpiresAt})
}

func (s *Service) noteKey(ctx context.Context, tx *db.Tx, sc scope.Scope, k Key, kind string, changes map[string]any) error {
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
		Type: kind, Object: "key", ObjectID: k.ID, ObjectName: k.Name, Env: k.Environment, Changes: changes,
	})
}

// loadKey makes the entry of an API key.
func (s *Service) loadKey(ctx context.Context, text string, digest [sha256.Size]byte, now time.Time) (*entry, error) {
	if !wellFormed(text) {
		return nil, refused()
	}
	kind := credentialKey
	if strings.HasPrefix(text, keyPrefix+credentialBouncer+"_") {
		kind = credentialBouncer
	}
	return s.loadDigest(ctx, digest, kind, now)
}

// loadDigest makes the entry for a hash in the system store, if it is of the expected kind.
func (s *Service) loadDigest(ctx context.Context, sum [sha256.Size]byte, kind string, now time.Time) (*entry, error) {
	digest := hex.EncodeToString(sum[:])
	c, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (credential, error) { return selectCredential(ctx, tx, digest) })
	if err != nil {
		return nil, refuseGone(err)
	}
	if c.Kind != kind {
		return nil, refused()
	}
	e, err := s.newEntry(ctx, c.Tenant, now)
	if err != nil {
		return nil, err
	}
	store, err := s.Stores.Tenant(ctx, c.Tenant)
	if err != nil {
		return nil, err
	}
	err = store.Read(ctx, func(tx *db.Tx) error {
		if kind == credentialBouncer {
			return s.fillFromBouncer(ctx, tx, e, digest)
		}
		k, err := selectKey(ctx, tx, c.Ref)
		if err != nil {
			return err
		}
		if k.Digest != digest {
			return refused()
		}
		return fillFromKeyRow(ctx, tx, e, k, now, s.Holders)
	})
	return e, refuseGone(err)
}

// newEntry starts an entry in a tenant that is served. It records the generation before it
// reads anything else, so that a change in between voids it.
func (s *Service) newEntry(ctx context.Context, id scope.TenantID, now time.Time) (*entry, error) {
	r, err := s.get(ctx, id, now)
	if err != nil {
		return nil, refuseGone(err)
	}
	return &entry{tenant: r, gen: r.gen.Load()}, r.checkServed()
}

// fillFromBouncer fills an entry for an enforcement point: it has no permissions; its
// identity decides what it may do on the bridge.
func (s *Service) fillFromBouncer(ctx context.Context, tx *db.Tx, e *entry, digest string) error {
	if s.Bouncer == nil {
		return refused()
	}
	b, err := s.Bouncer(ctx, tx, digest)
	if err != nil {
		return err
	}
	e.who = Principal{Plan: e.tenant.facts.Load().Plan}
	e.scope = scope.Scope{
		Tenant: e.tenant.id, Env: b.Env, EnvBound: true,
		Actor: scope.Actor{Kind: scope.Bouncer, ID: b.ID, Name: b.Name},
	}
	return nil
}

// fillFromKeyRow fills an entry for an API key. A person's key may do what both the key and
// the person may.
func fillFromKeyRow(ctx context.Context, tx *db.Tx, e *entry, k Key, now time.Time, holders Holders) error {
	if k.ExpiresAt != nil {
		if !k.ExpiresAt.After(now) {
			return refused()
		}
		if end := k.ExpiresAt.UnixNano(); e.expires == 0 || end < e.expires {
			e.expires = end
		}
	}
	e.used = &lastUse{tenant: e.tenant.id, id: k.ID}
	if k.LastUsedAt != nil {
		e.used.at.Store(k.LastUsedAt.UnixNano())
	}
	if k.Dedicated != "" {
		return holders.fill(ctx, tx, e, k)
	}
	ps := scope.Permissions{List: parsePermissions(k.Scopes)}
	if k.Owner != "" {
		owner, err := user.ByID(ctx, tx, k.Owner)
		if err != nil {
			return err
		}
		if owner.Status != user.Active {
			return refused()
		}
		may, _ := user.Permissions(e.tenant.id, owner.Roles)
		ps = user.Intersect(may, ps)
	}
	e.who = Principal{KeyID: k.counted(), Tenant: e.tenant.id, Plan: e.tenant.facts.Load().Plan, RateLimited: true}
	e.scope = scope.Scope{
		Tenant: e.tenant.id, Env: k.Environment, EnvBound: k.Environment != scope.AnyEnv, Permissions: ps,
		Actor: scope.Actor{Kind: scope.Key, ID: k.ID, Name: k.Name},
	}
	return nil
}
