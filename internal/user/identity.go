package user

import (
	"context"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// MethodsAttribute and LevelAttribute are the attributes that say how a person last signed
// in: the methods (RFC 8176) and the context class, as the identity provider says.
const (
	MethodsAttribute = "amr"
	LevelAttribute   = "acr"
)

// maxIdentities limits the identities of one person.
const maxIdentities = 20

// Identity links a person to a subject of an identity provider.
type Identity struct {
	ID         string     `json:"id" db:"id" doc:"Id of the link."`
	Issuer     string     `json:"issuer" db:"issuer" doc:"The provider's issuer identifier."`
	Subject    string     `json:"subject" db:"subject" doc:"The person's subject at the provider: the claim sub."`
	UserID     string     `json:"-" db:"user_id"`
	CreatedAt  time.Time  `json:"created_at" db:"created_at" doc:"When the link was created."`
	CreatedBy  string     `json:"created_by" db:"created_by" doc:"Who created it; sign-on for a person whom the first sign-in added."`
	LastUsedAt *time.Time `json:"last_used_at" db:"last_used_at" doc:"When the person last signed in with it; null if never."`
}

// IdentityDraft describes an identity to link.
type IdentityDraft struct {
	Issuer  string `json:"issuer" minLength:"1" maxLength:"512" doc:"The provider's issuer identifier, exactly as its tokens have it."`
	Subject string `json:"subject" minLength:"1" maxLength:"255" doc:"The person's subject at the provider: the claim sub of its tokens."`
}

// Identities lists a person's identities at identity providers, oldest first.
func (s *Service) Identities(ctx context.Context, sc scope.Scope, userID string) ([]Identity, error) {
	var list []Identity
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if _, err = ByID(ctx, tx, userID); err == nil {
			list, err = selectIdentities(ctx, tx, userID)
		}
		return err
	})
	return list, err
}

// Link allows a person to sign in as a subject of an identity provider. The caller must hold all
// permissions of the person, because a link is as powerful as a password. Faults: NotFound;
// Forbidden; Conflict if the subject is already linked.
func (s *Service) Link(ctx context.Context, sc scope.Scope, userID string, d IdentityDraft) (Identity, error) {
	made := Identity{ID: s.NewID(), Issuer: d.Issuer, Subject: d.Subject, UserID: userID, CreatedAt: db.Stamp(s.Now()), CreatedBy: sc.Actor.Name}
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		u, err := LockByID(ctx, tx, userID)
		if err != nil {
			return err
		}
		if err := MayChange(sc, u); err != nil {
			return err
		}
		list, err := selectIdentities(ctx, tx, userID)
		if err := fault.CheckCounted(int64(len(list)), err, maxIdentities, "a person may have %d identities"); err != nil {
			return err
		}
		return s.link(ctx, tx, sc, u, made)
	})
	return made, err
}

// link stores a link and its audit entry.
func (s *Service) link(ctx context.Context, tx *db.Tx, sc scope.Scope, u User, id Identity) error {
	added, err := insertIdentity(ctx, tx, id)
	if err != nil {
		return err
	}
	if !added {
		return fault.New(fault.Conflict, "already_exists", "a person is linked to this subject already")
	}
	return s.recordLink(ctx, tx, sc, u, "USER_IDENTITY_LINKED", id)
}

// Unlink removes a link and ends the person's sessions. The caller must hold all permissions of the
// person.
func (s *Service) Unlink(ctx context.Context, sc scope.Scope, userID, id string) error {
	return s.write(ctx, sc, func(tx *db.Tx) error {
		u, err := LockByID(ctx, tx, userID)
		if err != nil {
			return err
		}
		if err := MayChange(sc, u); err != nil {
			return err
		}
		list, err := selectIdentities(ctx, tx, userID)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(list, func(i Identity) bool { return i.ID == id })
		if at < 0 {
			return fault.New(fault.NotFound, "identity_not_found", "the person has no such identity")
		}
		if err := deleteIdentity(ctx, tx, id); err != nil {
			return err
		}
		if err := s.Revoke(ctx, tx, userID, EndsSessions); err != nil {
			return err
		}
		return s.recordLink(ctx, tx, sc, u, "USER_IDENTITY_UNLINKED", list[at])
	})
}

func (s *Service) recordLink(ctx context.Context, tx *db.Tx, sc scope.Scope, u User, kind string, id Identity) error {
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
		Type: kind, Object: "user", ObjectID: u.ID, ObjectName: u.Username,
		EventContext: map[string]any{"issuer": id.Issuer, "subject": id.Subject},
	})
}

// ByIdentity finds the person who is linked to a subject of an identity provider, and locks the
// person until the end of the caller's transaction. Fault: NotFound.
func ByIdentity(ctx context.Context, tx *db.Tx, issuer, subject string) (User, error) {
	id, err := selectIdentity(ctx, tx, issuer, subject)
	if err != nil {
		return User{}, err
	}
	return LockByID(ctx, tx, id.UserID)
}

// Enrol creates a person from the data of an identity provider, within tx, and links them. Faults:
// those of Create, and Conflict if the subject is already linked.
func (s *Service) Enrol(ctx context.Context, tx *db.Tx, sc scope.Scope, d Draft, by IdentityDraft) (User, error) {
	if err := fault.Join(d.check(), d.checkSizes()); err != nil {
		return User{}, err
	}
	u := s.userOf(d)
	if err := checkMayGrant(sc, nil, u.Roles); err != nil {
		return User{}, err
	}
	if err := s.insert(ctx, tx, sc, u); err != nil {
		return User{}, err
	}
	return u, s.link(ctx, tx, sc, u, Identity{ID: s.NewID(), Issuer: by.Issuer, Subject: by.Subject, UserID: u.ID, CreatedAt: u.CreatedAt, CreatedBy: sc.Actor.Name})
}

// LinkWithin is Link within tx, for a person who was found by data of their directory.
func (s *Service) LinkWithin(ctx context.Context, tx *db.Tx, sc scope.Scope, userID string, by IdentityDraft) (User, error) {
	u, err := LockByID(ctx, tx, userID)
	if err != nil {
		return User{}, err
	}
	return u, s.link(ctx, tx, sc, u, Identity{ID: s.NewID(), Issuer: by.Issuer, Subject: by.Subject, UserID: u.ID, CreatedAt: db.Stamp(s.Now()), CreatedBy: sc.Actor.Name})
}

// UpdateWithin is Update within tx, without a password.
func (s *Service) UpdateWithin(ctx context.Context, tx *db.Tx, sc scope.Scope, id string, ch Change) (User, error) {
	return s.change(ctx, tx, sc, id, ch, "")
}

// RecordPasswordUse records that a person signed in with a password, and by which methods (RFC 8176). It
// stores nothing for a person who has only ever used a password alone.
func RecordPasswordUse(ctx context.Context, tx *db.Tx, u User, by []string) error {
	_, methods := u.Attributes[MethodsAttribute]
	_, level := u.Attributes[LevelAttribute]
	if !methods && !level && len(by) == 1 {
		return nil
	}
	u.Attributes[MethodsAttribute] = by
	delete(u.Attributes, LevelAttribute)
	if err := updateUser(ctx, tx, u); err != nil {
		return err
	}
	_, err := tx.Bump(ctx, Revision)
	return err
}

// MayChange returns Forbidden if a person has permissions that the caller lacks.
func MayChange(sc scope.Scope, u User) error { return checkMayGrant(sc, u.Roles, u.Roles) }

// MayGrantRoles returns Forbidden if roles grant permissions that the caller lacks.
func MayGrantRoles(sc scope.Scope, roles []string) error { return checkMayGrant(sc, nil, roles) }
