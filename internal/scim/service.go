package scim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scim/document"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Root is the path of the protocol.
const Root = "/scim/v2"

// lock is held while a directory's people, groups or settings change, so that roles always match
// groups.
const lock = "scim"

// Service holds the use cases of provisioning. All fields are needed.
type Service struct {
	Stores *db.Cluster
	Users  *user.Service
	Now    func() time.Time
	// NewID returns a new, random id.
	NewID func() string
	// URL is the address at which directories reach this server, without a path.
	URL string

	people, groups *document.Kind
	scans          *scans
}

// New returns a Service with the exported fields of s.
func New(s Service) *Service {
	s.people, s.groups = document.UserKind(), document.GroupKind()
	s.scans = &scans{most: maxExamined, running: map[scope.TenantID]bool{}}
	return &s
}

// Get returns the settings of the tenant's directory.
func (s *Service) Get(ctx context.Context, sc scope.Scope) (Directory, error) {
	var d Directory
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		r, err := selectRecord(ctx, tx)
		if err != nil {
			return err
		}
		d, err = s.view(ctx, tx, r)
		return err
	})
	return d, err
}

func (s *Service) view(ctx context.Context, tx *db.Tx, r record) (Directory, error) {
	d := Directory{Settings: r.Settings, BaseURL: s.URL + Root, Version: r.Version}
	if r.Version > 0 {
		d.UpdatedAt = &r.UpdatedAt
	}
	var err error
	if d.People, err = countManaged(ctx, tx); err == nil {
		d.Groups, err = countGroups(ctx, tx)
	}
	return d, err
}

// Put changes the settings, and the roles of everybody whom the directory manages. The caller must
// hold the permissions of all roles in the settings, before and after, because the directory can
// grant these roles. version is the expected version; 0 means any. Faults: Invalid, Forbidden,
// Precondition.
func (s *Service) Put(ctx context.Context, sc scope.Scope, version int64, ch Change) (Directory, error) {
	var d Directory
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		before, err := selectRecord(ctx, tx)
		if err != nil {
			return err
		}
		if err := fault.CheckVersion("settings", before.Version, version); err != nil {
			return err
		}
		after := record{Settings: before.Settings.apply(ch), Version: before.Version + 1, UpdatedAt: db.Stamp(s.Now())}
		if err := after.Settings.check(); err != nil {
			return err
		}
		if err := user.MayGrantRoles(sc, append(before.Settings.roles(), after.Settings.roles()...)); err != nil {
			return err
		}
		if err := putRecord(ctx, tx, after); err != nil {
			return err
		}
		if err := audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
			Type: "DIRECTORY_UPDATED", Object: "directory", ObjectID: "directory", ObjectName: "directory",
			EventContext: map[string]any{"roles": after.Settings.roles(), "match_subject": after.Settings.MatchSubject},
		}); err != nil {
			return err
		}
		managed, err := selectManaged(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.assignRoles(ctx, tx, s.grantScope(sc, before.Settings, after.Settings), after.Settings, managed); err != nil {
			return err
		}
		d, err = s.view(ctx, tx, after)
		return err
	})
	return d, err
}

// grantScope returns the scope in which a directory grants roles: the caller's, with exactly the
// permissions of the roles in the settings.
func (s *Service) grantScope(sc scope.Scope, all ...Settings) scope.Scope {
	var roles []string
	for _, st := range all {
		roles = append(roles, st.roles()...)
	}
	sc.Permissions, sc.Platform = user.Permissions(sc.Tenant, roles)
	return sc
}

// removalScope returns the scope in which a directory removes the access of people whom it manages,
// whatever their permissions: the caller's, with all permissions.
func removalScope(sc scope.Scope) scope.Scope {
	sc.Permissions, sc.Platform = scope.Permissions{All: true}, true
	return sc
}

// assignRoles gives people whom the directory manages the roles that their groups and the
// attribute roles map to. People who may do more than sc keep their roles.
func (s *Service) assignRoles(ctx context.Context, tx *db.Tx, sc scope.Scope, st Settings, ids []string) error {
	if !st.manages() || len(ids) == 0 {
		return nil
	}
	people, err := selectPeopleIn(ctx, tx, ids)
	if err != nil {
		return err
	}
	slices.SortFunc(people, func(a, b person) int { return strings.Compare(a.ID, b.ID) })
	groups, err := groupNames(ctx, tx, ids)
	if err != nil {
		return err
	}
	for _, p := range people {
		if p.Text == nil || user.MayChange(sc, p.User) != nil {
			continue
		}
		roles := st.rolesOf(append(groups[p.ID], p.roleValues()...))
		if sameRoles(roles, p.Roles) {
			continue
		}
		if _, err := s.Users.UpdateWithin(ctx, tx, sc, p.ID, user.Change{Roles: patch.Set(roles)}); err != nil {
			return err
		}
	}
	return nil
}

// groupNames returns the names of people's groups, by person.
func groupNames(ctx context.Context, tx *db.Tx, ids []string) (map[string][]string, error) {
	list, err := selectGroupsOf(ctx, tx, ids)
	out := map[string][]string{}
	for _, m := range list {
		out[m.UserID] = append(out[m.UserID], m.Group)
	}
	return out, err
}

// write runs fn under the lock of the tenant's directory, and increases user.Revision.
func (s *Service) write(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	return s.Stores.WriteUnder(ctx, sc.Tenant, lock, func(tx *db.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		_, err := tx.Bump(ctx, user.Revision)
		return err
	})
}

// BySubject returns the id of the person whose externalId is a subject at the tenant's identity
// provider. It is signon.Service.Provisioned. Fault: NotFound, also if match_subject is off or two
// people have the externalId.
func BySubject(ctx context.Context, tx *db.Tx, subject string) (string, error) {
	none := fault.NotFoundf("the directory has added nobody with this subject")
	r, err := selectRecord(ctx, tx)
	if err != nil {
		return "", err
	}
	if !r.Settings.MatchSubject || subject == "" {
		return "", none
	}
	ids, err := selectByExternalID(ctx, tx, subject)
	if err == nil && len(ids) != 1 {
		err = none
	}
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// Manages reports whether the directory decides a person's roles and department. It is
// signon.Service.Managed.
func Manages(ctx context.Context, tx *db.Tx, userID string) (bool, error) {
	r, err := selectRecord(ctx, tx)
	if err != nil || !r.Settings.manages() {
		return false, err
	}
	p, err := selectPerson(ctx, tx, userID)
	return p.Text != nil, err
}

// Forget removes, within tx, what the directory stored about a person who is being removed. It is
// one of user.Service.ForgetHooks.
func Forget(ctx context.Context, tx *db.Tx, who scope.Actor) error {
	if err := touchGroupsOf(ctx, tx, who.ID); err != nil {
		return err
	}
	return deletePerson(ctx, tx, who.ID)
}
