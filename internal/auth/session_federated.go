package auth

import (
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Federation names the identity provider of a sign-in; the zero value: none.
type Federation struct {
	Issuer string `db:"issuer"`
	// Subject is the person's id at the provider, and ProviderSession the session there, if the
	// provider named it.
	Subject         string `db:"issuer_subject"`
	ProviderSession string `db:"issuer_session"`
	// IDToken is the encrypted ID token, which ends the session at the provider.
	IDToken string `db:"id_token"`
}

// StartFederated starts a browser's session for a person whom an identity provider has authenticated. It
// runs in the transaction of the tenant's store that found the person. The caller ends the
// browser's earlier session with EndCookie.
func (b *Sessions) StartFederated(ctx context.Context, tx *db.Tx, sc scope.Scope, u user.User, from Browser, by Federation) (SignedIn, error) {
	var in SignedIn
	open := b.opener(ctx, &in, from, "provider")
	err := b.startSession(ctx, tx, sc.Tenant, sc, u, func(tx *db.Tx, t scope.TenantID, ss session) (map[string]any, error) {
		ss.Federation, ss.Proof = by, proofProvider
		about, err := open(tx, t, ss)
		if err == nil {
			about["issuer"] = by.Issuer
		}
		return about, err
	})
	return in, err
}

// EndFederated ends the sessions of an identity provider at its request: those of one of its
// sessions, or without one, all of a subject. It returns how many sign-ins ended.
func EndFederated(ctx context.Context, tx *db.Tx, by Federation) (int, error) {
	list, err := selectFederated(ctx, tx, by)
	if err != nil {
		return 0, err
	}
	for _, root := range list {
		if err := deleteRoot(ctx, tx, root); err != nil {
			return 0, err
		}
	}
	if len(list) > 0 {
		_, err = tx.Bump(ctx, user.Revision)
	}
	return len(list), err
}

// CheckServed refuses a tenant whose people cannot sign in: one that is unknown, suspended or
// deleted.
func (s *Service) CheckServed(ctx context.Context, t scope.TenantID) error {
	r, err := s.get(ctx, t, s.Now())
	if err != nil {
		return err
	}
	return r.checkServed()
}

// checkPasswords refuses to sign in with a password where the tenant allows none.
func checkPasswords(ctx context.Context, store *db.DB, off func(context.Context, *db.Tx) (bool, error)) error {
	if off == nil {
		return nil
	}
	none := false
	err := store.Read(ctx, func(tx *db.Tx) (err error) {
		none, err = off(ctx, tx)
		return err
	})
	if err == nil && none {
		return fault.New(fault.Forbidden, "password_login_off", "people of this tenant sign in through its identity provider")
	}
	return err
}

// ListOf returns the active sign-ins of any person, for a caller who may change that person.
func (b *Sessions) ListOf(ctx context.Context, sc scope.Scope, userID string) ([]SessionInfo, error) {
	out := []SessionInfo{}
	err := b.s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		if _, err := user.ByID(ctx, tx, userID); err != nil {
			return err
		}
		now := b.s.Now()
		list, err := selectSignIns(ctx, tx, userID, now, now.Add(-b.s.SessionIdle))
		for _, ss := range list {
			out = append(out, b.info(ss, sc.Session))
		}
		return err
	})
	return out, err
}

// EndOf ends one sign-in of a person, or all without an id, with the tokens made from them. It
// returns how many ended. The caller must hold all permissions of the person. Faults: NotFound for
// an unknown person or sign-in, Forbidden.
func (b *Sessions) EndOf(ctx context.Context, sc scope.Scope, userID, id string) (int, error) {
	ended := 0
	err := b.s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		u, err := user.ByID(ctx, tx, userID)
		if err != nil {
			return err
		}
		if err := user.MayChange(sc, u); err != nil {
			return err
		}
		now := b.s.Now()
		list, err := selectSignIns(ctx, tx, userID, now, now.Add(-b.s.SessionIdle))
		if err != nil {
			return err
		}
		ended = len(list)
		about := map[string]any{"sessions": ended}
		if id == "" {
			err = deleteSessionsOf(ctx, tx, userID)
		} else {
			if !slices.ContainsFunc(list, func(ss session) bool { return ss.ID == id }) {
				return fault.New(fault.NotFound, "session_not_found", "the person has no such session")
			}
			ended, about = 1, map[string]any{"session_id": id}
			err = deleteRoot(ctx, tx, id)
		}
		if err != nil {
			return err
		}
		if _, err := tx.Bump(ctx, user.Revision); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, now, audit.Entry{
			Type: "SESSION_ENDED", Object: "user", ObjectID: u.ID, ObjectName: u.Username, EventContext: about,
		})
	})
	return ended, err
}
