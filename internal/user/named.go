package user

import (
	"context"
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// ByName finds a person by user name, e-mail address or id. Fault: NotFound.
func (s *Service) ByName(ctx context.Context, sc scope.Scope, name string) (User, error) {
	var found User
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		found, err = selectByName(ctx, tx, Fold(name))
		if errors.Is(err, db.ErrNoRows) {
			found, err = ByID(ctx, tx, name)
		}
		return err
	})
	if errors.Is(err, db.ErrNoRows) || fault.Is(err, fault.NotFound) {
		return User{}, fault.NotFoundf("no such person")
	}
	return found, err
}
