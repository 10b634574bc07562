package user

import (
	"context"
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Named is the id of the person whom a username, an e-mail address or an id
// stands for; NotFound for nobody.
func (s *Service) Named(ctx context.Context, sc scope.Scope, name string) (string, error) {
	store, err := s.Stores.Tenant(ctx, sc.Tenant)
	if err != nil {
		return "", err
	}
	var found User
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		found, err = selectByName(ctx, tx, Fold(name))
		if errors.Is(err, db.ErrNoRows) {
			found, err = selectUser(ctx, tx, name)
		}
		return err
	})
	if errors.Is(err, db.ErrNoRows) || fault.Is(err, fault.NotFound) {
		return "", fault.NotFoundf("no such person")
	}
	return found.ID, err
}
