package user

import (
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Lookup is the person with an id, else with that user name or e-mail address. An
// unknown one is a NotFound fault.
func (s *Service) Lookup(ctx context.Context, sc scope.Scope, id string) (User, error) {
	var u User
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if u, err = selectUser(ctx, tx, id); fault.Is(err, fault.NotFound) {
			u, err = selectByName(ctx, tx, Fold(id))
		}
		return err
	})
	return u, err
}

// Usernames are the names of all who may sign in, sorted.
func (s *Service) Usernames(ctx context.Context, sc scope.Scope) ([]string, error) {
	var names []string
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		names, err = selectUsernames(ctx, tx)
		return err
	})
	slices.Sort(names) // the backends order letters differently
	return names, err
}
