package identity

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/factor"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// userFactor registers the second factors of people, for administrators.
func (h *Handler) userFactor(r *rest.Router) {
	tags, path := []string{"Users"}, "/users/{user_id}/second-factor"
	rest.Register(r, rest.Op{
		ID: "get-user-second-factor", Method: http.MethodGet, Path: path, Permission: "users:read", Tags: tags,
		Summary: "The second factor of a user", Description: "Whether the user's sign-ins with a password need a code, and how many recovery codes are left. It shows no secret.",
	}, func(ctx context.Context, sc scope.Scope, in *UserPath) (*rest.JSON[factor.State], error) {
		return rest.Answer(h.Auth.Factors.StateOf(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "reset-user-second-factor", Method: http.MethodDelete, Path: path, Permission: "users:write", Tags: tags,
		Errors:  []int{http.StatusConflict},
		Summary: "Reset the second factor of a user", Description: "For a user who has lost the app and the recovery codes. Removes both, and ends all of the user's sessions at once. Then the password alone signs in, or where the tenant requires a second factor, enrols a new one. The caller must hold what the user may do (403), and cannot reset their own. 409 `no_second_factor`: the user has none.",
	}, func(ctx context.Context, sc scope.Scope, in *UserPath) (*struct{}, error) {
		return nil, h.Auth.Factors.ResetOf(ctx, sc, in.ID)
	})
}
