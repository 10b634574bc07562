package user

import (
	"context"
	"errors"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Lookup finds a person by id, otherwise by user name or e-mail address. Fault: NotFound.
func (s *Service) Lookup(ctx context.Context, sc scope.Scope, id string) (User, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (User, error) { return findBySubject(ctx, tx, id) })
}

// IsDisabled reports whether a subject names a disabled person, by id, user name or address.
func IsDisabled(ctx context.Context, tx *db.Tx, subject string) (bool, error) {
	u, err := findBySubject(ctx, tx, subject)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return u.Status == Disabled, err
}

// findBySubject finds a person by id, else by user name or address.
func findBySubject(ctx context.Context, tx *db.Tx, subject string) (User, error) {
	u, err := ByID(ctx, tx, subject)
	if fault.Is(err, fault.NotFound) {
		u, err = selectByName(ctx, tx, Fold(subject))
	}
	if errors.Is(err, db.ErrNoRows) {
		err = fault.NotFoundf("no such person")
	}
	return u, err
}

// Usernames lists the names of all people who may sign in, sorted.
func (s *Service) Usernames(ctx context.Context, sc scope.Scope) ([]string, error) {
	names, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) ([]string, error) { return selectUsernames(ctx, tx) })
	slices.Sort(names) // the backends order letters differently
	return names, err
}
