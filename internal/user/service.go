package user

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Revision is the name of the revision that is bumped whenever what people and
// keys may do has changed; package auth watches it.
const Revision = "auth"

// LimitKind is what people are called in a tenant's limits.
const LimitKind = "users"

// Service holds the use cases on people. All fields but ForgetHooks and Withdraw are needed.
type Service struct {
	Stores *db.Cluster
	Hasher *Hasher
	Now    func() time.Time
	// NewID gives a new, random id.
	NewID func() string
	// CheckLimit refuses n more of a kind (tenant.Service.CheckLimit), and
	// Released tells that there is one less.
	CheckLimit func(ctx context.Context, tx *db.Tx, kind string, n int64) error
	Released   func(ctx context.Context, tx *db.Tx, kind string) error
	// Revoke ends a person's sessions, and what else is to end, within tx
	// (auth.Service.RevokeUser).
	Revoke func(ctx context.Context, tx *db.Tx, userID string, what Ending) error
	// ForgetHooks delete within tx what others keep of a person who is removed, so
	// that a later one with the same id finds nothing of it.
	ForgetHooks []func(ctx context.Context, tx *db.Tx, who scope.Actor) error
	// Withdraw ends within tx what was granted for a time to a person who is disabled or
	// removed; nil: nothing is.
	Withdraw func(ctx context.Context, tx *db.Tx, sc scope.Scope, u User, removed bool) error
}

// withdraw calls Withdraw.
func (s *Service) withdraw(ctx context.Context, tx *db.Tx, sc scope.Scope, u User, removed bool) error {
	if s.Withdraw == nil {
		return nil
	}
	return s.Withdraw(ctx, tx, sc, u, removed)
}

// Create adds a person. It answers 403 where the caller does not hold what the
// roles allow or the tenant's max_users is reached, 409 where a name is taken,
// 422 for names and passwords that cannot be.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (User, error) {
	u := s.userOf(d)
	if err := d.check(); err != nil {
		return User{}, err
	}
	if err := checkMayGrant(sc, nil, u.Roles); err != nil {
		return User{}, err
	}
	if d.Password != "" {
		var err error
		if u.PasswordHash, err = s.Hasher.Hash(ctx, d.Password); err != nil {
			return User{}, fault.Wrap(err, "hash a password")
		}
	}
	return u, s.write(ctx, sc, func(tx *db.Tx) error { return s.insert(ctx, tx, sc, u) })
}

// userOf is the person that a draft describes, without a password.
func (s *Service) userOf(d Draft) User {
	now := db.Stamp(s.Now())
	u := User{
		ID: d.ID, Email: strings.TrimSpace(d.Email), Username: strings.TrimSpace(d.Username), Roles: FoldRoles(d.Roles),
		Department: d.Department, Attributes: d.Attributes, Status: Active, CreatedAt: now, UpdatedAt: now,
	}
	if u.ID == "" {
		u.ID = s.NewID()
	}
	if u.Attributes == nil {
		u.Attributes = map[string]any{}
	}
	return u
}

// insert adds people within tx: 409 where an id or a name is taken.
func (s *Service) insert(ctx context.Context, tx *db.Tx, sc scope.Scope, people ...User) error {
	if err := s.CheckLimit(ctx, tx, LimitKind, int64(len(people))); err != nil {
		return err
	}
	if err := putNames(ctx, tx, people...); err != nil {
		return err
	}
	if err := insertUsers(ctx, tx, people); err != nil {
		return err
	}
	entries, events := make([]audit.Entry, len(people)), make([]event.Event, len(people))
	for i, u := range people {
		entries[i], events[i] = recordOf(u, "USER_CREATED", event.UserCreated, map[string]any{"username": u.Username, "roles": u.Roles}, nil)
	}
	if err := audit.Append(ctx, tx, sc, s.Now(), entries...); err != nil {
		return err
	}
	return event.Emit(ctx, tx, sc, events...)
}

// First adds a person where the tenant has none yet; made says whether it did.
// Two replicas that start at once add one. It is for the first administrator.
func (s *Service) First(ctx context.Context, sc scope.Scope, d Draft) (made bool, err error) {
	now := db.Stamp(s.Now())
	u := User{
		ID: s.NewID(), Email: d.Email, Username: d.Username, Roles: FoldRoles(d.Roles), Attributes: map[string]any{},
		Status: Active, CreatedAt: now, UpdatedAt: now,
	}
	var n int64
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		n, err = countUsers(ctx, tx)
		return err
	})
	if err != nil || n > 0 {
		return false, err
	}
	if u.PasswordHash, err = s.Hasher.Hash(ctx, d.Password); err != nil {
		return false, err
	}
	err = s.write(ctx, sc, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "users.first"); err != nil {
			return err
		}
		n, err := countUsers(ctx, tx)
		made = err == nil && n == 0
		if !made {
			return err
		}
		return s.insert(ctx, tx, sc, u)
	})
	return made && err == nil, err
}

// Recover gives a person a new password, enables them and ends their sessions,
// on the word of whoever sits at the server's host.
func (s *Service) Recover(ctx context.Context, sc scope.Scope, id, password string) error {
	_, err := s.Update(ctx, sc, id, Change{Password: patch.Set(password), Status: patch.Set(Active)})
	return err
}

// Get finds a person by id.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id string) (User, error) {
	var u User
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		u, err = selectUser(ctx, tx, id)
		return err
	})
	return u, err
}

// List gives a page of people, oldest first.
func (s *Service) List(ctx context.Context, sc scope.Scope, f Filter) (Page, error) {
	var p Page
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		p, err = selectPage(ctx, tx, f)
		return err
	})
	return p, err
}

// Update changes what was sent. Whoever changes a person must hold all that the
// person may do, before and after: nobody takes over a stronger account by
// giving it a password.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id string, ch Change) (User, error) {
	hash := ""
	var weak error
	if ch.Password.Sent {
		weak = CheckPassword("/password", ch.Password.Value, ch.Username.Value, ch.Email.Value)
	}
	if ch.Password.Sent && weak == nil {
		var err error
		if hash, err = s.Hasher.Hash(ctx, ch.Password.Value); err != nil {
			return User{}, fault.Wrap(err, "hash a password")
		}
	}
	var after User
	err := s.write(ctx, sc, func(tx *db.Tx) (err error) {
		after, err = s.change(ctx, tx, sc, id, ch, hash, weak)
		return err
	})
	return after, err
}

// change is the transaction of Update. hash is that of a new password, empty for none;
// offences are told with those of the names.
func (s *Service) change(ctx context.Context, tx *db.Tx, sc scope.Scope, id string, ch Change, hash string, offences ...error) (User, error) {
	before, err := lockUser(ctx, tx, id)
	if err != nil {
		return User{}, err
	}
	after, ends := decideChange(before, ch)
	if err := fault.Join(append([]error{checkNames(before, after)}, offences...)...); err != nil {
		return User{}, err
	}
	after.UpdatedAt = db.Stamp(s.Now())
	if hash != "" {
		after.PasswordHash = hash
	}
	return after, s.replace(ctx, tx, sc, before, after, ends, "")
}

// SetRoles gives a person new roles, and ends the sessions that stood on the
// old ones. The reason goes into the audit.
func (s *Service) SetRoles(ctx context.Context, sc scope.Scope, id string, ch RolesChange) (User, error) {
	var after User
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		before, err := lockUser(ctx, tx, id)
		if err != nil {
			return err
		}
		after = before
		after.Roles, after.UpdatedAt = FoldRoles(ch.Roles), db.Stamp(s.Now())
		if err := checkNames(before, after); err != nil {
			return err
		}
		ends := EndsNothing
		if !sameRoles(before.Roles, after.Roles) {
			ends = EndsSessions
		}
		return s.replace(ctx, tx, sc, before, after, ends, ch.Reason)
	})
	return after, err
}

// replace writes a change of a person that the caller may make, with everything that hangs on it.
func (s *Service) replace(ctx context.Context, tx *db.Tx, sc scope.Scope, before, after User, ends Ending, reason string) error {
	if err := checkMayGrant(sc, before.Roles, after.Roles); err != nil {
		return err
	}
	if err := keepAdministrator(ctx, tx, sc, before, after); err != nil {
		return err
	}
	if Fold(before.Username) != Fold(after.Username) || Fold(before.Email) != Fold(after.Email) {
		if err := dropNames(ctx, tx, before.ID); err != nil {
			return err
		}
		if err := putNames(ctx, tx, after); err != nil {
			return err
		}
	}
	if err := updateUser(ctx, tx, after); err != nil {
		return err
	}
	if ends != EndsNothing {
		if err := s.Revoke(ctx, tx, after.ID, ends); err != nil {
			return err
		}
	}
	if before.Status == Active && after.Status != Active {
		if err := s.withdraw(ctx, tx, sc, before, false); err != nil {
			return err
		}
	}
	changes := changesOf(before, after)
	if ends == EndsKeys {
		changes["api_keys_ended"] = true
	}
	if !sameRoles(before.Roles, after.Roles) {
		return s.record(ctx, tx, sc, after, "USER_ROLES_CHANGED", event.UserRoleChanged, changes, map[string]any{"reason": reason})
	}
	return s.record(ctx, tx, sc, after, "USER_UPDATED", event.UserUpdated, changes, nil)
}

// Delete removes a person for good, with sessions and own keys.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id string) (User, error) {
	var u User
	err := s.write(ctx, sc, func(tx *db.Tx) (err error) {
		u, err = s.Remove(ctx, tx, sc, id)
		return err
	})
	return u, err
}

// Remove is Delete within tx; the caller bumps Revision.
func (s *Service) Remove(ctx context.Context, tx *db.Tx, sc scope.Scope, id string) (User, error) {
	u, err := lockUser(ctx, tx, id)
	if err != nil {
		return User{}, err
	}
	if err := checkMayGrant(sc, u.Roles, nil); err != nil {
		return User{}, err
	}
	gone := u
	gone.Status, gone.Roles = Disabled, nil
	if err := keepAdministrator(ctx, tx, sc, u, gone); err != nil {
		return User{}, err
	}
	if err := deleteUser(ctx, tx, id); err != nil {
		return User{}, err
	}
	if err := s.Revoke(ctx, tx, id, EndsAll); err != nil {
		return User{}, err
	}
	if err := s.withdraw(ctx, tx, sc, u, true); err != nil {
		return User{}, err
	}
	for _, forget := range s.ForgetHooks {
		if err := forget(ctx, tx, scope.Actor{Kind: scope.Person, ID: id}); err != nil {
			return User{}, err
		}
	}
	if err := s.Released(ctx, tx, LimitKind); err != nil {
		return User{}, err
	}
	return u, s.record(ctx, tx, sc, u, "USER_DELETED", event.UserDeleted, map[string]any{"username": u.Username}, nil)
}

// Add is Create within tx, without a password; the caller bumps Revision. status is Active
// or Disabled.
func (s *Service) Add(ctx context.Context, tx *db.Tx, sc scope.Scope, d Draft, status string) (User, error) {
	if err := fault.Join(d.check(), d.checkSizes()); err != nil {
		return User{}, err
	}
	u := s.userOf(d)
	u.Status = status
	if err := checkMayGrant(sc, nil, u.Roles); err != nil {
		return User{}, err
	}
	return u, s.insert(ctx, tx, sc, u)
}

// ByName finds who signs in under a user name or an e-mail address. Unknown
// names are db.ErrNoRows. It is for package auth, inside its transaction.
func ByName(ctx context.Context, tx *db.Tx, name string) (User, error) {
	return selectByName(ctx, tx, Fold(name))
}

// Locked is ByID, and keeps others from changing the person until the transaction ends.
func Locked(ctx context.Context, tx *db.Tx, id string) (User, error) { return lockUser(ctx, tx, id) }

// ByID finds a person inside somebody else's transaction.
func ByID(ctx context.Context, tx *db.Tx, id string) (User, error) { return selectUser(ctx, tx, id) }

// SignedIn notes the time of a sign-in and, where rehash is not empty, renews
// the password's hash.
func SignedIn(ctx context.Context, tx *db.Tx, id string, at time.Time, rehash string) error {
	return touchUser(ctx, tx, id, at, rehash)
}

// Count is how many people the tenant has, for its limits.
func Count(ctx context.Context, tx *db.Tx) (int64, error) { return countUsers(ctx, tx) }

// keepAdministrator refuses to leave the deployment without anybody who can administer it.
// In other tenants a platform administrator can help, so only a directory is kept from
// locking everybody out: nobody looks at what it does.
func keepAdministrator(ctx context.Context, tx *db.Tx, sc scope.Scope, before, after User) error {
	role, what := RolePlatformAdmin, "platform administrator"
	if sc.Tenant != scope.DefaultTenant {
		role, what = RoleAdmin, "administrator"
	}
	rules := func(u User) bool { return u.Status == Active && slices.Contains(u.Roles, role) }
	if sc.Tenant != scope.DefaultTenant && sc.Actor.Kind != scope.Directory || !rules(before) || rules(after) {
		return nil
	}
	if err := tx.Lock(ctx, "users.administrators"); err != nil {
		return err
	}
	people, err := selectActive(ctx, tx, role)
	if err != nil {
		return err
	}
	for _, u := range people {
		if u.ID != before.ID && rules(u) {
			return nil
		}
	}
	return fault.New(fault.Conflict, "last_administrator", "this is the last "+what+"; create another one first")
}

// write runs fn in the tenant's store and bumps the revision that auth watches.
func (s *Service) write(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	return s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		_, err := tx.Bump(ctx, Revision)
		return err
	})
}

// record writes the audit entry and the event of a change.
func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, u User, kind, ev string, changes, more map[string]any) error {
	entry, e := recordOf(u, kind, ev, changes, more)
	if err := audit.Append(ctx, tx, sc, s.Now(), entry); err != nil {
		return err
	}
	return event.Emit(ctx, tx, sc, e)
}

func recordOf(u User, kind, ev string, changes, more map[string]any) (audit.Entry, event.Event) {
	return audit.Entry{Type: kind, Object: "user", ObjectID: u.ID, ObjectName: u.Username, Changes: changes, EventContext: more},
		event.Event{Type: ev, ObjectKind: "user", ObjectID: u.ID, ObjectName: u.Username, Data: changes}
}

// checkMayGrant refuses with 403 roles, before or after, that allow what the caller
// may not do. platform_admin is a platform administrator's to hand out even in a
// tenant where it allows nothing: controls read it there, and people believe it.
func checkMayGrant(sc scope.Scope, before, after []string) error {
	for _, roles := range [][]string{before, after} {
		ps, _ := Permissions(sc.Tenant, roles)
		if err := MayGrant(sc, ps); err != nil {
			return err
		}
	}
	if !sc.Platform && slices.Contains(after, RolePlatformAdmin) && !slices.Contains(before, RolePlatformAdmin) {
		return fault.Newf(fault.Forbidden, "permission_denied", "you cannot grant permissions that you do not hold: %q", RolePlatformAdmin)
	}
	return nil
}

// checkNames gives all offences of what a change makes of names and roles. What
// it leaves alone is not looked at: nobody is locked out by a newer rule.
func checkNames(before, after User) error {
	var errs []error
	fresh := before.ID == ""
	if fresh || after.Username != before.Username {
		errs = append(errs, checkName("/username", after.Username), checkNoAgent("/username", after.Username))
	}
	if fresh || after.Email != before.Email {
		errs = append(errs, checkEmail("/email", after.Email))
	}
	for i, r := range after.Roles {
		if !slices.Contains(before.Roles, r) {
			errs = append(errs, checkRole("/roles/"+strconv.Itoa(i), r))
		}
	}
	return fault.Join(errs...)
}

// changesOf names what differs; never a password.
func changesOf(before, after User) map[string]any {
	out := map[string]any{}
	put := func(name string, was, is any, same bool) {
		if !same {
			out[name] = map[string]any{"from": was, "to": is}
		}
	}
	put("email", before.Email, after.Email, before.Email == after.Email)
	put("username", before.Username, after.Username, before.Username == after.Username)
	put("roles", before.Roles, after.Roles, sameRoles(before.Roles, after.Roles))
	put("department", before.Department, after.Department, before.Department == after.Department)
	put("status", before.Status, after.Status, before.Status == after.Status)
	if before.PasswordHash != after.PasswordHash {
		out["password_changed"] = true
	}
	return out
}
