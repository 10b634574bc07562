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

// Revision is the counter that is incremented when permissions of people or keys may have changed.
// Package auth watches it.
const Revision = "auth"

// LimitKind is the name of people in a tenant's limits.
const LimitKind = "users"

// Service has the use cases of people. All exported fields except ForgetHooks and Withdraw are
// required.
type Service struct {
	Stores *db.Cluster
	Hasher *Hasher
	Now    func() time.Time
	// NewID returns a new, random id.
	NewID func() string
	// CheckLimit refuses n more of a kind (tenant.Service.CheckLimit), and
	// Released tells that there is one less.
	CheckLimit func(ctx context.Context, tx *db.Tx, kind string, n int64) error
	Released   func(ctx context.Context, tx *db.Tx, kind string) error
	// Revoke ends a person's sessions, and what else is to end, within tx
	// (auth.Service.RevokeUser).
	Revoke func(ctx context.Context, tx *db.Tx, userID string, what SessionEnd) error
	// ForgetHooks delete within tx what others keep of a person who is removed, so
	// that a later one with the same id finds nothing of it.
	ForgetHooks []func(ctx context.Context, tx *db.Tx, who scope.Actor) error
	// Withdraw ends within tx what was granted for a time to a person who is disabled or
	// removed; nil: nothing is.
	Withdraw func(ctx context.Context, tx *db.Tx, sc scope.Scope, u User, removed bool) error
}

// withdraw calls Withdraw if it is set.
func (s *Service) withdraw(ctx context.Context, tx *db.Tx, sc scope.Scope, u User, removed bool) error {
	if s.Withdraw == nil {
		return nil
	}
	return s.Withdraw(ctx, tx, sc, u, removed)
}

// Create adds a person. Faults: Forbidden if the caller lacks permissions of the roles, or
// max_users is reached; Conflict if a name is in use; Invalid for invalid names and passwords.
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
	return u, s.write(ctx, sc, func(tx *db.Tx) error {
		if err := s.insert(ctx, tx, sc, u); err != nil || d.ID == "" {
			return err
		}
		return s.forget(ctx, tx, u.ID) // whatever is left of an earlier person with this id
	})
}

// userOf returns the person that a draft describes, without a password.
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

// insert adds people within tx. Fault: Conflict if an id or a name is in use.
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

// CreateFirst adds a person if the tenant has none. made reports whether it did. If two replicas start at
// once, one person is added. It creates the first administrator.
func (s *Service) CreateFirst(ctx context.Context, sc scope.Scope, d Draft) (made bool, err error) {
	now := db.Stamp(s.Now())
	u := User{
		ID: s.NewID(), Email: d.Email, Username: d.Username, Roles: FoldRoles(d.Roles), Attributes: map[string]any{},
		Status: Active, CreatedAt: now, UpdatedAt: now,
	}
	n, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (int64, error) { return Count(ctx, tx) })
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
		n, err := Count(ctx, tx)
		made = err == nil && n == 0
		if !made {
			return err
		}
		return s.insert(ctx, tx, sc, u)
	})
	return made && err == nil, err
}

// Recover sets a new password, enables the person and ends their sessions. It needs no permission:
// only a command on the server's host calls it.
func (s *Service) Recover(ctx context.Context, sc scope.Scope, id, password string) error {
	_, err := s.Update(ctx, sc, id, Change{Password: patch.Set(password), Status: patch.Set(Active)})
	return err
}

// Get finds a person by id.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id string) (User, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (User, error) { return ByID(ctx, tx, id) })
}

// List returns one page of people, oldest first.
func (s *Service) List(ctx context.Context, sc scope.Scope, f Filter) (Page, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Page, error) { return selectPage(ctx, tx, f) })
}

// Update changes the members that were sent. The caller must hold all permissions that the person
// has before and after the change: otherwise a caller could take over a stronger account by setting
// its password.
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

// change is the transaction of Update. hash is that of a new password; empty for none. offences are
// reported together with those of the names.
func (s *Service) change(ctx context.Context, tx *db.Tx, sc scope.Scope, id string, ch Change, hash string, offences ...error) (User, error) {
	before, err := LockByID(ctx, tx, id)
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

// SetRoles changes the roles of a person, and ends the sessions that rely on the old ones. The
// reason is recorded in the audit.
func (s *Service) SetRoles(ctx context.Context, sc scope.Scope, id string, ch RolesChange) (User, error) {
	var after User
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		before, err := LockByID(ctx, tx, id)
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

// replace writes a change of a person, which the caller is allowed to make, and all that follows
// from it.
func (s *Service) replace(ctx context.Context, tx *db.Tx, sc scope.Scope, before, after User, ends SessionEnd, reason string) error {
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

// Delete removes a person permanently, with their sessions and keys.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id string) (User, error) {
	var u User
	err := s.write(ctx, sc, func(tx *db.Tx) (err error) {
		u, err = s.Remove(ctx, tx, sc, id)
		return err
	})
	return u, err
}

// Remove is Delete within tx. The caller must increment Revision.
func (s *Service) Remove(ctx context.Context, tx *db.Tx, sc scope.Scope, id string) (User, error) {
	u, err := LockByID(ctx, tx, id)
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
	if err := s.withdraw(ctx, tx, sc, u, true); err != nil {
		return User{}, err
	}
	if err := s.forget(ctx, tx, id); err != nil {
		return User{}, err
	}
	if err := s.Released(ctx, tx, LimitKind); err != nil {
		return User{}, err
	}
	return u, s.record(ctx, tx, sc, u, "USER_DELETED", event.UserDeleted, map[string]any{"username": u.Username}, nil)
}

// forget deletes within tx what belongs to an id: sessions, keys, and what others keep.
func (s *Service) forget(ctx context.Context, tx *db.Tx, id string) error {
	if err := s.Revoke(ctx, tx, id, EndsAll); err != nil {
		return err
	}
	for _, forget := range s.ForgetHooks {
		if err := forget(ctx, tx, scope.Actor{Kind: scope.Person, ID: id}); err != nil {
			return err
		}
	}
	return nil
}

// Add is Create within tx, without a password. status is Active or Disabled. The caller must
// increment Revision.
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

// ByName finds a person by user name or e-mail address, for package auth, within its transaction.
// Error: db.ErrNoRows.
func ByName(ctx context.Context, tx *db.Tx, name string) (User, error) {
	return selectByName(ctx, tx, Fold(name))
}

// keepAdministrator returns Conflict "last_administrator" if nobody could administer the deployment
// any more. In other tenants a platform administrator can help, so there it only stops a directory
// from locking out everybody, because no person checks what a directory does.
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

// write runs fn in the tenant's store and increments Revision.
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

// checkMayGrant returns Forbidden if roles before or after a change grant permissions that the
// caller lacks. Only a platform administrator may assign platform_admin, even in a tenant where it
// grants nothing, because controls may read it and people may trust it.
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

// checkNames returns all offences in names and roles that a change modifies. It ignores unchanged
// ones, so that a newer rule locks nobody out.
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

// changesOf lists the members that differ, never the password.
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
